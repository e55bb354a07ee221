//! Changes of input tables, gathered for one commit.
//!
//! In come upserts and removals in any number and order, the last one for a key wins; out they go, sorted
//! by key, to [`Engine::commit`](crate::Engine::commit). A batch must not know what the tables hold.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::handle::{Key, Table, TableId, Value};
use crate::table::{Erased, Wanted};

/// Changes of input tables, for one commit.
#[derive(Default)]
pub struct Batch {
    tables: BTreeMap<u16, (TableId, Erased)>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Batch::default()
    }

    /// The row of `key` shall be `value`.
    ///
    /// # Panics
    /// If `table` is not an input table, or of another builder than what the batch already holds for it:
    /// both are programming errors.
    pub fn upsert<K: Key, V: Value>(&mut self, table: Table<K, V>, key: K, value: V) {
        self.upsert_arc(table, key, Arc::new(value));
    }

    /// As [`upsert`](Self::upsert), for a value that is shared already.
    ///
    /// # Panics
    /// As [`upsert`](Self::upsert).
    pub fn upsert_arc<K: Key, V: Value>(&mut self, table: Table<K, V>, key: K, value: Arc<V>) {
        self.wanted(table).insert(key, Some(value));
    }

    /// There shall be no row of `key`. Harmless if there is none.
    ///
    /// # Panics
    /// As [`upsert`](Self::upsert).
    pub fn remove<K: Key, V: Value>(&mut self, table: Table<K, V>, key: K) {
        self.wanted(table).insert(key, None);
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    fn wanted<K: Key, V: Value>(&mut self, table: Table<K, V>) -> &mut Wanted<K, V> {
        assert!(
            table.id.input,
            "a batch changes input tables only, {table:?} is derived"
        );
        let (id, wanted) = self
            .tables
            .entry(table.id.table)
            .or_insert_with(|| (table.id, Box::new(Wanted::<K, V>::new())));
        assert!(
            *id == table.id,
            "a batch holds changes for one engine, {table:?} is of another"
        );
        (&mut **wanted as &mut dyn Any)
            .downcast_mut()
            .expect("a handle of one builder has the types of its table")
    }

    /// What is wanted, table by table in the order of their declaration.
    pub(crate) fn into_tables(self) -> impl Iterator<Item = (TableId, Erased)> {
        self.tables.into_values()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables: Vec<u16> = self.tables.keys().copied().collect();
        f.debug_struct("Batch").field("tables", &tables).finish()
    }
}
