//! Plain data for debugging and tests: why a row has its value, and how large the engine is.

use std::fmt;

/// The last run of a stage for a key: when it was and what it read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explain {
    /// The name of the stage, which is also the name of its table.
    pub stage: &'static str,
    /// The source key, formatted with `Debug`.
    pub key: String,
    /// The revision of the commit in which the stage ran.
    pub revision: u64,
    /// Its reads, sorted by table in declaration order, then by kind and key. If the source is a table, its row is
    /// always included.
    pub reads: Vec<Read>,
}

/// A read by a transform.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Read {
    /// The table.
    pub table: &'static str,
    /// The index of the table, if one was used.
    pub index: Option<&'static str>,
    /// The kind of read, which determines which changes rerun the stage.
    pub kind: ReadKind,
    /// The key, or index key, formatted with `Debug`.
    pub key: String,
}

/// The kind of a read, named after the method of [`Reader`](crate::Reader).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ReadKind {
    /// A row's value.
    Get,
    /// Whether a row exists.
    Exists,
    /// The rows of a group with their values.
    By,
    /// The keys of a group's rows.
    Keys,
    /// The size of a group.
    Count,
}

/// The size of an engine's data. All numbers are zero for an engine without rows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Footprint {
    /// Rows in all tables.
    pub rows: usize,
    /// Keys that have a row or a group, or are read: the possible targets of an edge.
    pub subjects: usize,
    /// Pairs of a row and an index group that contains it.
    pub memberships: usize,
    /// Source keys for which stages have run.
    pub nodes: usize,
    /// Recorded reads: pairs of a node and a subject other than the source's row.
    pub edges: usize,
    /// Slots allocated for all of the above, including free ones. Bounded by the peak, however often rows are added and
    /// removed.
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
