//! Tables with the rows, or the keys, of several sources.
//!
//! A union is stateless: for each key that changed in one source, it looks the key up in all sources. So its result
//! does not depend on history, and a key may move between sources within one commit.

use std::any::Any;
use std::sync::Arc;

use crate::edges::Tables;
use crate::explain::Footprint;
use crate::handle::{Key, Value};
use crate::stage::{AnyStage, Origin, StageContext, StageRun, source_key};
use crate::table::{AnyTable, typed, typed_mut};

/// Looks up a source's row for a key.
type Row<K, V> = Box<dyn Fn(&dyn AnyTable, u8, &K) -> Option<Arc<V>> + Send + Sync>;

pub(crate) struct Union<K, V> {
    sources: Vec<(u16, u8)>,
    output: u16,
    row: Row<K, V>,
    /// Whether a key may be in at most one source.
    exclusive: bool,
}

impl<K: Key, V: Value> Union<K, V> {
    /// A union of tables' rows.
    pub(crate) fn of_rows(sources: Vec<(u16, u8)>, output: u16) -> Self {
        let row = |table: &dyn AnyTable, _, key: &K| {
            let table = typed::<K, V>(table);
            table.value(table.rows.find(key)?).cloned()
        };
        Union {
            sources,
            output,
            row: Box::new(row),
            exclusive: true,
        }
    }

    /// The rows for `key`, each with its source table.
    fn rows(&self, tables: &Tables, key: &K) -> impl Iterator<Item = (u16, Arc<V>)> {
        let sources = self.sources.iter();
        sources.filter_map(move |&(table, part)| {
            let row = (self.row)(&*tables[usize::from(table)], part, key)?;
            Some((table, row))
        })
    }
}

impl<K: Key> Union<K, ()> {
    /// A union of the keys of tables and indexes.
    pub(crate) fn of_keys(sources: Vec<(u16, u8)>, output: u16) -> Self {
        let unit = Arc::new(());
        let row = move |table: &dyn AnyTable, part, key: &K| {
            let keys = table.subjects(part);
            let present = keys.is_present(keys.find_any(key)?);
            present.then(|| Arc::clone(&unit))
        };
        Union {
            sources,
            output,
            row: Box::new(row),
            exclusive: false,
        }
    }
}

impl<K: Key, V: Value> AnyStage for Union<K, V> {
    fn output(&self) -> u16 {
        self.output
    }

    fn sources(&self) -> &[(u16, u8)] {
        &self.sources
    }

    fn run(&mut self, _: u16, dirty: &[(u8, u32)], context: StageContext<'_>) -> StageRun {
        let (tables, rest) = context.tables.split_at_mut(usize::from(self.output));
        let output = typed_mut::<K, V>(&mut *rest[0]);
        let keys = dirty.iter().map(|&(source, slot)| {
            let (table, part) = self.sources[usize::from(source)];
            Arc::clone(source_key::<K>(&*tables[usize::from(table)], part, slot))
        });
        let mut keys: Vec<Arc<K>> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        let mut changed = Vec::new();
        for key in &keys {
            let mut rows = self.rows(tables, key);
            let first = rows.next();
            if cfg!(debug_assertions)
                && self.exclusive
                && let (Some((first, _)), Some((second, _))) = (&first, rows.next())
            {
                let names = context.names;
                panic!(
                    "table {:?}: key {key:?} is in both {:?} and {:?}",
                    output.name(),
                    names[usize::from(*first)],
                    names[usize::from(second)],
                );
            }
            let slot = match first {
                Some(_) => Some(output.rows.intern_shared(key)),
                None => output.rows.find(key),
            };
            let row = first.map(|(_, row)| row);
            changed.extend(
                slot.filter(|slot| output.differs(*slot, row.as_deref()))
                    .map(|slot| (slot, row)),
            );
        }
        StageRun {
            delta: output.apply(changed),
            count: keys.len(),
            keys: Box::new(keys),
        }
    }

    fn origin(&self, key: &dyn Any, tables: &Tables) -> Option<Origin> {
        if !self.exclusive {
            return None;
        }
        let (table, _) = self.rows(tables, key.downcast_ref()?).next()?;
        Some(Origin::Table(table))
    }

    fn reads_mut(&mut self, _: u32) -> Option<&mut u32> {
        None
    }

    fn add_to(&self, _: &mut Footprint) {}
}
