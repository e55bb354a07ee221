//! The result of a commit: changes to all tables, and the keys that ran.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::handle::{Key, Table, TableId, Value};
use crate::table::Erased;

/// What happened to a row.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// The row is new or has a new value.
    Upsert(Arc<V>),
    /// The row was removed.
    Remove,
}

impl<V> Change<V> {
    /// The row's value after the change.
    pub fn value(&self) -> Option<&Arc<V>> {
        match self {
            Change::Upsert(value) => Some(value),
            Change::Remove => None,
        }
    }
}

impl<V> Clone for Change<V> {
    fn clone(&self) -> Self {
        match self {
            Change::Upsert(value) => Change::Upsert(Arc::clone(value)),
            Change::Remove => Change::Remove,
        }
    }
}

/// The keys for which a stage ran.
pub(crate) struct Run {
    pub(crate) table: u16,
    /// `Vec<Arc<K>>` of the source's keys, sorted.
    pub(crate) keys: Erased,
}

/// The result of one [`Engine::commit`](crate::Engine::commit).
pub struct Commit {
    stamp: u32,
    revision: u64,
    /// `Vec<(K, Change<V>)>` by table, for tables that changed.
    pub(crate) changes: Vec<(u16, Erased)>,
    pub(crate) runs: Vec<Run>,
    /// The stage name and key count of each of `runs`.
    pub(crate) work: Vec<(&'static str, usize)>,
}

impl Commit {
    pub(crate) fn new(stamp: u32, revision: u64) -> Self {
        Commit {
            stamp,
            revision,
            changes: Vec::new(),
            runs: Vec::new(),
            work: Vec::new(),
        }
    }

    /// The revision of the engine after the commit. It increases by one if and only if a row changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether no table changed. If so, no stage ran.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes to `table`, sorted by key, at most one per key.
    ///
    /// # Panics
    /// If the table belongs to another engine.
    pub fn changes<K: Key, V: Value>(&self, table: Table<K, V>) -> &[(K, Change<V>)] {
        self.check(table.id);
        let found = self.changes.iter().find(|(of, _)| *of == table.id.table);
        let Some((_, changes)) = found else {
            return &[];
        };
        (&**changes as &dyn Any)
            .downcast_ref::<Vec<(K, Change<V>)>>()
            .expect("a handle's types match its table")
    }

    /// The keys for which `table`'s stage ran, sorted. Empty for input tables.
    ///
    /// # Panics
    /// If the table belongs to another engine, or if the key type of its source differs; see
    /// [`ran_keys`](Self::ran_keys) for that case.
    pub fn ran<K: Key, V: Value>(&self, table: Table<K, V>) -> Vec<K> {
        self.ran_keys::<K>(table)
    }

    /// The source keys, of type `S`, for which `table`'s stage ran, sorted. Empty for input tables.
    ///
    /// # Panics
    /// If the table belongs to another engine, or its source's keys are not of type `S`.
    pub fn ran_keys<S: Key>(&self, table: impl Into<TableId>) -> Vec<S> {
        let table = table.into();
        self.check(table);
        let Some(run) = self.runs.iter().find(|run| run.table == table.table) else {
            return Vec::new();
        };
        let keys = (&*run.keys as &dyn Any).downcast_ref::<Vec<Arc<S>>>();
        let keys = keys.expect("ran_keys is called with the source's key type");
        keys.iter().map(|key| S::clone(key)).collect()
    }

    /// The name and key count of each stage that ran, in declaration order.
    pub fn work(&self) -> &[(&'static str, usize)] {
        &self.work
    }

    fn check(&self, table: TableId) {
        assert!(
            table.stamp == self.stamp,
            "the table and the commit belong to different engines"
        );
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commit")
            .field("revision", &self.revision)
            .field("tables_changed", &self.changes.len())
            .field("work", &self.work)
            .finish()
    }
}
