//! What the engine tells about itself: why a row is what it is, and how much it holds.
//!
//! Plain data for people and tests; nothing here takes part in a commit.

use std::fmt;

/// How a stage came to the row of a key: when it ran last and what it read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explain {
    /// The stage, named as its table.
    pub stage: &'static str,
    /// The source key the stage ran for, in its `Debug` form.
    pub key: String,
    /// The revision of the commit in which it ran last.
    pub revision: u64,
    /// What it read, in the order of the tables' declaration, then of kind and key.
    pub reads: Vec<Read>,
}

/// One thing a run read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Read {
    /// The table that was read.
    pub table: &'static str,
    /// The index of the table, where one was used.
    pub index: Option<&'static str>,
    /// How it was read, and so on what it depends.
    pub kind: ReadKind,
    /// The key, or index key, in its `Debug` form.
    pub key: String,
}

/// How something was read: the method of [`Reader`](crate::Reader) of that name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ReadKind {
    /// A row's value.
    Get,
    /// Whether a row is there.
    Exists,
    /// The rows of a group with their values.
    By,
    /// The keys of a group's rows.
    Keys,
    /// The size of a group.
    Count,
}

/// What an engine holds, in numbers. All are zero in an engine without rows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Footprint {
    /// Rows of all tables.
    pub rows: usize,
    /// Keys that hold a row or a group, or are read: what an edge can point at.
    pub subjects: usize,
    /// Pairs of a row and a group of an index it is in.
    pub memberships: usize,
    /// Source keys that stages have run for.
    pub nodes: usize,
    /// Reads recorded: pairs of a node and a subject.
    pub edges: usize,
    /// Pairs of a source key and an output key, of `derive_many`.
    pub claims: usize,
    /// Places in memory for all of these, free ones included. Bounded by the most there ever was at the
    /// end of or within a commit, however often rows come and go.
    pub slots: usize,
}

impl fmt::Display for ReadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReadKind::Get => "get",
            ReadKind::Exists => "exists",
            ReadKind::By => "by",
            ReadKind::Keys => "keys",
            ReadKind::Count => "count",
        })
    }
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.table)?;
        if let Some(index) = self.index {
            write!(f, ".{index}")?;
        }
        write!(f, " {}", self.key)
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ran for {} at revision {}",
            self.stage, self.key, self.revision
        )?;
        for read in &self.reads {
            write!(f, "\n  {read}")?;
        }
        Ok(())
    }
}
