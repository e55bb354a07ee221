//! A transform's reads: by key or by index, each recorded. Never add a scan: see the guarantees in the crate docs.

use std::fmt;
use std::sync::Arc;

use crate::edges::{BY, COUNT, EXISTS, GET, KEYS, Subject, Tables};
use crate::handle::{Index, Key, Table, TableId, Value};
use crate::slots::Slots;
use crate::table::{TableStore, typed_mut};

/// A transform's read access to the tables declared before its own.
///
/// # Panics
/// All reads panic if the table belongs to another engine or is not declared before the stage.
pub struct Reader<'a> {
    /// All tables declared before the stage's own.
    pub(crate) tables: &'a mut Tables,
    /// The names of all tables.
    pub(crate) names: &'a [&'static str],
    pub(crate) stamp: u32,
    pub(crate) reads: &'a mut Vec<(Subject, u8)>,
}

impl Reader<'_> {
    /// The row for `key`. Depends on the row's value.
    pub fn get<K: Key, V: Value>(&mut self, table: Table<K, V>, key: &K) -> Option<Arc<V>> {
        let (slot, value) = {
            let store = self.store(table);
            let slot = store.rows.intern(key);
            (slot, store.value(slot).cloned())
        };
        self.record(table.id, 0, slot, GET);
        value
    }

    /// Whether `key` has a row. Does not depend on the row's value.
    pub fn exists<K: Key, V: Value>(&mut self, table: Table<K, V>, key: &K) -> bool {
        let (slot, exists) = {
            let store = self.store(table);
            let slot = store.rows.intern(key);
            (slot, store.value(slot).is_some())
        };
        self.record(table.id, 0, slot, EXISTS);
        exists
    }

    /// The rows in group `key` of the index, sorted by row key. Depends on the members and their values.
    /// Costs O(members).
    pub fn by<K: Key, V: Value, I: Key>(
        &mut self,
        index: Index<K, V, I>,
        key: &I,
    ) -> Vec<(K, Arc<V>)> {
        let group = self.group(index, key, BY);
        let store = self.store(index.table);
        store.members::<I, _>(index.part, group, |key, value| {
            (key.clone(), Arc::clone(value))
        })
    }

    /// The values of the rows in group `key` of the index, sorted by row key. Depends on the members and their values.
    /// Costs O(members).
    pub fn values_by<K: Key, V: Value, I: Key>(
        &mut self,
        index: Index<K, V, I>,
        key: &I,
    ) -> Vec<Arc<V>> {
        let group = self.group(index, key, BY);
        let store = self.store(index.table);
        store.members::<I, _>(index.part, group, |_, value| Arc::clone(value))
    }

    /// The keys of the rows in group `key` of the index, sorted. Depends on the members, not on their values.
    /// Costs O(members).
    pub fn keys<K: Key, V: Value, I: Key>(&mut self, index: Index<K, V, I>, key: &I) -> Vec<K> {
        let group = self.group(index, key, KEYS);
        let store = self.store(index.table);
        store.members::<I, _>(index.part, group, |key, _| key.clone())
    }

    /// The number of rows in group `key` of the index. Depends only on the number: replacing one member
    /// with another within a commit changes nothing. Costs O(1).
    pub fn count<K: Key, V: Value, I: Key>(&mut self, index: Index<K, V, I>, key: &I) -> usize {
        let group = self.group(index, key, COUNT);
        let groups = &self.store(index.table).index::<I>(index.part).groups;
        groups.data(group).len()
    }

    /// Records a read of a group and returns its slot.
    fn group<K: Key, V: Value, I: Key>(&mut self, index: Index<K, V, I>, key: &I, kind: u8) -> u32 {
        let groups: &mut Slots<I, _> =
            &mut self.store(index.table).index_mut::<I>(index.part).groups;
        let slot = groups.intern(key);
        self.record(index.table.id, index.part, slot, kind);
        slot
    }

    fn store<K: Key, V: Value>(&mut self, table: Table<K, V>) -> &mut TableStore<K, V> {
        // The number of the stage's own table.
        let (table_number, own) = (usize::from(table.id.table), self.tables.len());
        assert!(
            table.id.stamp == self.stamp,
            "stage {:?} reads {table:?}, which belongs to another engine",
            self.names[own],
        );
        assert!(
            table_number < own,
            "stage {:?} reads table {:?}, which is not declared before it",
            self.names[own],
            self.names[table_number],
        );
        typed_mut(&mut *self.tables[table_number])
    }

    fn record(&mut self, table: TableId, part: u8, slot: u32, kind: u8) {
        let table = table.table;
        self.reads.push((Subject { table, part, slot }, kind));
    }
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("stage", &self.names[self.tables.len()])
            .field("reads", &self.reads.len())
            .finish()
    }
}
