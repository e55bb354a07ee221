//! Declaring an engine: tables, indexes and stages, in order.
//!
//! In come names, functions and handles of what was declared before; out goes an [`Engine`]. After that
//! nothing can be added: the order of declaration is the order of the stages.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::claims::Many;
use crate::engine::Engine;
use crate::handle::{Index, Key, Keys, Table, TableId, Value};
use crate::index::IndexStore;
use crate::reader::Reader;
use crate::stage::{AnyStage, Emit, One, Stage};
use crate::table::{AnyTable, TableStore, typed_mut};

/// Tells the handles of one builder from those of another.
static STAMPS: AtomicU32 = AtomicU32::new(0);

/// Declares the tables, indexes and stages of an [`Engine`].
///
/// Its methods panic where a declaration makes no sense: a name used twice, or a handle of another
/// builder.
pub struct Builder {
    stamp: u32,
    tables: Vec<Box<dyn AnyTable>>,
    stages: Vec<Box<dyn AnyStage>>,
}

impl Builder {
    /// A builder without tables.
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
    /// If there is a table named `name` already.
    pub fn input<K: Key, V: Value>(&mut self, name: &'static str) -> Table<K, V> {
        self.table(name, true)
    }

    /// Declares an index of a table: for every row the index keys it is found by. Keys named twice count
    /// once.
    ///
    /// `keys` must be pure: the engine asks it again for a value to find out what a row has left.
    ///
    /// # Panics
    /// If the table has an index named `name` already, or is of another builder.
    pub fn index<K: Key, V: Value, I: Key>(
        &mut self,
        table: Table<K, V>,
        name: &'static str,
        keys: impl Fn(&K, &V) -> Vec<I> + Send + Sync + 'static,
    ) -> Index<K, V, I> {
        self.check(table.id);
        let store = typed_mut::<K, V>(&mut *self.tables[usize::from(table.id.table)]);
        let part = store.add_index(IndexStore::new(name, Box::new(keys)));
        Index::new(table, part)
    }

    /// Declares a table of at most one row per key of `source`, of the same key.
    ///
    /// `transform` must be pure: what it returns may depend only on its key and on what it reads through
    /// the [`Reader`]. If it panics, see [`Engine::commit`].
    ///
    /// # Panics
    /// If there is a table named `name` already, or `source` is of another builder.
    pub fn derive<K: Key, W: Value>(
        &mut self,
        name: &'static str,
        source: impl Into<Keys<K>>,
        transform: impl Fn(&mut Reader<'_>, &K) -> Option<W> + Send + Sync + 'static,
    ) -> Table<K, W> {
        self.stage(name, source.into(), One::new(transform))
    }

    /// Declares a table of any number of rows per key of `source`, under keys of their own.
    ///
    /// An output key belongs to the source key that puts it out. Where several do, the value of the
    /// smallest wins, and the next takes over when that one stops. Where one source key puts the same
    /// output key out twice, the last one counts. `transform` must be pure, as for
    /// [`derive`](Self::derive).
    ///
    /// # Panics
    /// As [`derive`](Self::derive).
    pub fn derive_many<K: Key, L: Key, W: Value>(
        &mut self,
        name: &'static str,
        source: impl Into<Keys<K>>,
        transform: impl Fn(&mut Reader<'_>, &K) -> Vec<(L, W)> + Send + Sync + 'static,
    ) -> Table<L, W> {
        self.stage(name, source.into(), Many::new(transform))
    }

    /// The engine as declared, with all tables empty.
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

    fn check(&self, id: TableId) {
        assert!(
            id.stamp == self.stamp,
            "a builder declares on its own tables only"
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
