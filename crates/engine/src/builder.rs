//! Declares the tables, indexes and stages of an [`Engine`]. Stages run in declaration order.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::emit::{Emit, Many, One};
use crate::engine::Engine;
use crate::handle::{Index, Key, Keys, Table, TableId, Value};
use crate::index::{Difference, IndexStore};
use crate::reader::Reader;
use crate::stage::{AnyStage, Stage};
use crate::table::{AnyTable, TableStore, typed_mut};
use crate::union::Union;

/// Distinguishes the handles of different builders.
static STAMPS: AtomicU32 = AtomicU32::new(0);

/// Declares the tables, indexes and stages of an [`Engine`].
///
/// Its methods panic on invalid declarations: duplicate names and handles from other builders.
pub struct Builder {
    stamp: u32,
    tables: Vec<Box<dyn AnyTable>>,
    stages: Vec<Box<dyn AnyStage>>,
}

impl Builder {
    /// Returns a builder without tables.
    pub fn new() -> Self {
        Builder {
            stamp: STAMPS.fetch_add(1, Ordering::Relaxed),
            tables: Vec::new(),
            stages: Vec::new(),
        }
    }

    /// Declares a table that is filled by batches.
    ///
    /// # Panics
    /// If a table named `name` already exists.
    pub fn input<K: Key, V: Value>(&mut self, name: &'static str) -> Table<K, V> {
        self.table(name, true)
    }

    /// Declares an index of a table. `keys` returns the index keys of a row; duplicates count once.
    ///
    /// `keys` must be pure: the engine calls it again with a row's old value to find the groups that the row leaves.
    ///
    /// # Panics
    /// If the table already has an index named `name`, or belongs to another builder.
    pub fn index<K: Key, V: Value, I: Key>(
        &mut self,
        table: Table<K, V>,
        name: &'static str,
        keys: impl Fn(&K, &V) -> Vec<I> + Send + Sync + 'static,
    ) -> Index<K, V, I> {
        self.add_index(table, IndexStore::new(name, Box::new(keys), None))
    }

    /// Declares the index keys of a table as a source, for rows with many index keys, of which a change affects few.
    ///
    /// Like [`index`](Self::index), but a changed row costs only the index keys in `difference`: those that only the old
    /// value has, and those that only the new value has, each sorted and without duplicates. In return, stages can't
    /// read the groups.
    ///
    /// # Panics
    /// Like [`index`](Self::index). In debug builds, commits panic if `difference` and `keys` disagree.
    pub fn index_keys<K: Key, V: Value, I: Key>(
        &mut self,
        table: Table<K, V>,
        name: &'static str,
        keys: impl Fn(&K, &V) -> Vec<I> + Send + Sync + 'static,
        difference: impl Fn(&K, &V, &V) -> [Vec<I>; 2] + Send + Sync + 'static,
    ) -> Keys<I> {
        let difference = Some(Box::new(difference) as Difference<K, V, I>);
        let store = IndexStore::new(name, Box::new(keys), difference);
        self.add_index(table, store).into()
    }

    /// Declares a table with at most one row for each key of `source`, under the same key.
    ///
    /// `transform` must be pure: its result may depend only on the key and on reads through the [`Reader`].
    /// If it panics, see [`Engine::commit`].
    ///
    /// # Panics
    /// If a table named `name` already exists, or `source` belongs to another builder.
    pub fn derive<K: Key, W: Value>(
        &mut self,
        name: &'static str,
        source: impl Into<Keys<K>>,
        transform: impl Fn(&mut Reader<'_>, &K) -> Option<W> + Send + Sync + 'static,
    ) -> Table<K, W> {
        self.stage(name, source.into(), One::new(transform))
    }

    /// Declares a table with any number of rows for each key of `source`, each with its own key.
    ///
    /// Only one source key may output a given row; the row may move to another source key within a commit. If two
    /// source keys output the same row, [`Engine::commit`] panics in debug builds, naming the table and the keys; in
    /// release builds the first source key keeps the row until it drops the row. To choose between several source keys,
    /// index their rows by the output key and derive a table from that index.
    ///
    /// If a source key outputs a row twice, the last output wins. `transform` must be pure, as for
    /// [`derive`](Self::derive).
    ///
    /// # Panics
    /// Like [`derive`](Self::derive).
    pub fn derive_many<K: Key, L: Key, W: Value>(
        &mut self,
        name: &'static str,
        source: impl Into<Keys<K>>,
        transform: impl Fn(&mut Reader<'_>, &K) -> Vec<(L, W)> + Send + Sync + 'static,
    ) -> Table<L, W> {
        self.stage(name, source.into(), Many::new(transform))
    }

    /// Declares a table with the rows of all `tables`. Values are shared, not cloned.
    ///
    /// Only one of the tables may have a row for a given key; the row may move to another table within a commit. If two
    /// tables have one, [`Engine::commit`] panics in debug builds, naming the tables and the key; in release builds the
    /// first of `tables` wins. To choose between several tables, see [`union_keys`](Self::union_keys).
    ///
    /// # Panics
    /// If a table named `name` already exists, or one of `tables` belongs to another builder.
    pub fn union<K: Key, V: Value>(
        &mut self,
        name: &'static str,
        tables: impl IntoIterator<Item = Table<K, V>>,
    ) -> Table<K, V> {
        let sources = self.sources(tables);
        let table = self.table(name, false);
        let union = Union::<K, V>::of_rows(sources, table.id.table);
        self.stages.push(Box::new(union));
        table
    }

    /// Declares a table of the keys that are in any of `sources`, for a stage that merges them. The stage reads each
    /// source by key and decides which source takes precedence.
    ///
    /// ```
    /// use sesame_engine::{Builder, Table};
    ///
    /// let mut b = Builder::new();
    /// let defaults: Table<String, u16> = b.input("defaults");
    /// let overrides: Table<String, u16> = b.input("overrides");
    /// let names = b.union_keys("names", [defaults.into(), overrides.into()]);
    /// let ports: Table<String, u16> = b.derive("ports", names, move |reader, name| {
    ///     let port = reader.get(overrides, name).or_else(|| reader.get(defaults, name))?;
    ///     Some(*port)
    /// });
    /// ```
    ///
    /// # Panics
    /// Like [`union`](Self::union).
    pub fn union_keys<K: Key>(
        &mut self,
        name: &'static str,
        sources: impl IntoIterator<Item = Keys<K>>,
    ) -> Table<K, ()> {
        let sources = self.sources(sources);
        let table = self.table(name, false);
        let union = Union::<K, ()>::of_keys(sources, table.id.table);
        self.stages.push(Box::new(union));
        table
    }

    /// Returns the engine, with empty tables.
    pub fn build(self) -> Engine {
        Engine::new(self.stamp, self.tables, self.stages)
    }

    fn table<K: Key, V: Value>(&mut self, name: &'static str, input: bool) -> Table<K, V> {
        assert!(
            self.tables.iter().all(|table| table.name() != name),
            "there are two tables named {name:?}"
        );
        let table = u16::try_from(self.tables.len()).expect("an engine has at most 65536 tables");
        self.tables.push(Box::new(TableStore::<K, V>::new(name)));
        Table::new(TableId {
            stamp: self.stamp,
            table,
            input,
        })
    }

    fn stage<K: Key, L: Key, W: Value>(
        &mut self,
        name: &'static str,
        source: Keys<K>,
        emit: impl Emit<K>,
    ) -> Table<L, W> {
        self.check(source.id);
        let table = self.table(name, false);
        let source = (source.id.table, source.part);
        self.stages
            .push(Box::new(Stage::new(source, table.id.table, emit)));
        table
    }

    fn add_index<K: Key, V: Value, I: Key>(
        &mut self,
        table: Table<K, V>,
        index: IndexStore<K, V, I>,
    ) -> Index<K, V, I> {
        self.check(table.id);
        let store = typed_mut::<K, V>(&mut *self.tables[usize::from(table.id.table)]);
        Index::new(table, store.add_index(index))
    }

    /// The table and part numbers of a union's sources.
    fn sources<K>(&self, keys: impl IntoIterator<Item = impl Into<Keys<K>>>) -> Vec<(u16, u8)> {
        let keys = keys.into_iter().map(Into::into);
        let sources: Vec<_> = keys
            .map(|keys| {
                self.check(keys.id);
                (keys.id.table, keys.part)
            })
            .collect();
        assert!(sources.len() <= 256, "a union has at most 256 sources");
        sources
    }

    fn check(&self, id: TableId) {
        assert!(
            id.stamp == self.stamp,
            "a builder accepts only handles of its own tables"
        );
    }
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.tables.iter().map(|table| table.name());
        f.debug_list().entries(names).finish()
    }
}
