//! Changes to input tables, collected for one [`Engine::commit`](crate::Engine::commit).

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::handle::{Key, Table, TableId, Value};
use crate::table::{Erased, TableBatch};

/// Upserts and removals for input tables, applied in one commit. The last change to a key wins.
#[derive(Default)]
pub struct Batch {
    tables: BTreeMap<u16, (TableId, Erased)>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Sets the row for `key` to `value`.
    ///
    /// # Panics
    /// If `table` is not an input table, or if the batch already holds changes for another engine.
    pub fn upsert<K: Key, V: Value>(&mut self, table: Table<K, V>, key: K, value: V) {
        self.upsert_arc(table, key, Arc::new(value));
    }

    /// Like [`upsert`](Self::upsert), for a value that is already shared.
    ///
    /// # Panics
    /// Like [`upsert`](Self::upsert).
    pub fn upsert_arc<K: Key, V: Value>(&mut self, table: Table<K, V>, key: K, value: Arc<V>) {
        self.changes_of(table).insert(key, Some(value));
    }

    /// Removes the row for `key`, if there is one.
    ///
    /// # Panics
    /// Like [`upsert`](Self::upsert).
    pub fn remove<K: Key, V: Value>(&mut self, table: Table<K, V>, key: K) {
        self.changes_of(table).insert(key, None);
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    fn changes_of<K: Key, V: Value>(&mut self, table: Table<K, V>) -> &mut TableBatch<K, V> {
        assert!(
            table.id.input,
            "a batch changes only input tables; {table:?} is derived"
        );
        let (id, changes) = self
            .tables
            .entry(table.id.table)
            .or_insert_with(|| (table.id, Box::new(TableBatch::<K, V>::new())));
        assert!(
            *id == table.id,
            "a batch holds changes for one engine; {table:?} belongs to another"
        );
        (&mut **changes as &mut dyn Any)
            .downcast_mut()
            .expect("the handle's builder matches, so its types do too")
    }

    /// The changes to each table, in declaration order.
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
