//! Turns the outputs of a transform into rows of the stage's table.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::capacity;
use crate::handle::{Key, Value};
use crate::reader::Reader;
use crate::slots::{NIL, Subjects};
use crate::table::{AnyTable, Delta, typed, typed_mut};

/// Turns the outputs of a transform into rows of the stage's table.
pub(crate) trait Emit<K>: Send + Sync + 'static {
    /// The return type of the transform.
    type Output;
    /// A node's record of its rows.
    type Rows: Default + Send + Sync;

    fn call(&self, reader: &mut Reader<'_>, key: &K) -> Self::Output;
    /// Replaces a node's rows with the output of its latest run.
    fn put(
        &mut self,
        node: (&Arc<K>, u32),
        output: Self::Output,
        rows: Self::Rows,
        table: &mut dyn AnyTable,
    ) -> Self::Rows;
    /// Removes the rows of a node.
    fn remove(&mut self, node: u32, rows: Self::Rows);
    /// Applies to the table all changes since the last call.
    fn settle(&mut self, source: &dyn Subjects, table: &mut dyn AnyTable) -> Delta;
    /// The node that outputs the row for `key`.
    fn owner(&self, key: &dyn Any, source: &dyn Subjects, table: &dyn AnyTable) -> Option<u32>;
    /// The number of slots in memory.
    fn slots(&self) -> usize;
}

/// A transform with at most one row per key, under the same key.
pub(crate) struct One<W, F> {
    transform: F,
    pending: Vec<(u32, Option<Arc<W>>)>,
}

impl<W, F> One<W, F> {
    pub(crate) fn new(transform: F) -> Self {
        One {
            transform,
            pending: Vec::new(),
        }
    }
}

/// The slot of a node's row in the stage's table.
pub(crate) struct RowSlot(u32);

impl Default for RowSlot {
    fn default() -> Self {
        RowSlot(NIL)
    }
}

impl<K, W, F> Emit<K> for One<W, F>
where
    K: Key,
    W: Value,
    F: Fn(&mut Reader<'_>, &K) -> Option<W> + Send + Sync + 'static,
{
    type Output = Option<W>;
    type Rows = RowSlot;

    fn call(&self, reader: &mut Reader<'_>, key: &K) -> Option<W> {
        (self.transform)(reader, key)
    }

    fn put(
        &mut self,
        (key, _): (&Arc<K>, u32),
        output: Option<W>,
        rows: RowSlot,
        table: &mut dyn AnyTable,
    ) -> RowSlot {
        let Some(value) = output else {
            if rows.0 != NIL {
                self.pending.push((rows.0, None));
            }
            return RowSlot(NIL);
        };
        let table = typed_mut::<K, W>(table);
        let slot = if rows.0 == NIL {
            table.rows.intern_shared(key)
        } else {
            rows.0
        };
        if table.differs(slot, Some(&value)) {
            self.pending.push((slot, Some(Arc::new(value))));
        }
        RowSlot(slot)
    }

    fn remove(&mut self, _: u32, rows: RowSlot) {
        if rows.0 != NIL {
            self.pending.push((rows.0, None));
        }
    }

    fn settle(&mut self, _: &dyn Subjects, table: &mut dyn AnyTable) -> Delta {
        typed_mut::<K, W>(table).apply(std::mem::take(&mut self.pending))
    }

    fn owner(&self, key: &dyn Any, source: &dyn Subjects, _: &dyn AnyTable) -> Option<u32> {
        source.find_any(key)
    }

    fn slots(&self) -> usize {
        0
    }
}

/// A transform with any number of rows per key, each with its own key.
pub(crate) struct Many<L, W, F> {
    transform: F,
    /// For each row slot, the node that outputs the row; [`NIL`] if there is no row.
    owners: Vec<u32>,
    /// Slot and node of each row output since the last `settle`, with its value if the value changed.
    output: Vec<(u32, u32, Option<Arc<W>>)>,
    /// Slot and node of each row removed since the last `settle`.
    removed: Vec<(u32, u32)>,
    output_key: PhantomData<fn(L)>,
}

impl<L, W, F> Many<L, W, F> {
    pub(crate) fn new(transform: F) -> Self {
        Many {
            transform,
            owners: Vec::new(),
            output: Vec::new(),
            removed: Vec::new(),
            output_key: PhantomData,
        }
    }
}

impl<K, L, W, F> Emit<K> for Many<L, W, F>
where
    K: Key,
    L: Key,
    W: Value,
    F: Fn(&mut Reader<'_>, &K) -> Vec<(L, W)> + Send + Sync + 'static,
{
    type Output = Vec<(L, W)>;
    /// The slots of the node's rows, sorted.
    type Rows = Box<[u32]>;

    fn call(&self, reader: &mut Reader<'_>, key: &K) -> Vec<(L, W)> {
        (self.transform)(reader, key)
    }

    fn put(
        &mut self,
        (_, node): (&Arc<K>, u32),
        output: Vec<(L, W)>,
        rows: Box<[u32]>,
        table: &mut dyn AnyTable,
    ) -> Box<[u32]> {
        let table = typed_mut::<L, W>(table);
        let mut output: Vec<(u32, W)> = output
            .into_iter()
            .map(|(key, value)| (table.rows.intern_owned(key), value))
            .collect();
        // If a node outputs several rows for a key, the last one wins, as in a batch; the sort is stable.
        output.sort_by_key(|(slot, _)| *slot);
        output.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        let slots: Box<[u32]> = output.iter().map(|(slot, _)| *slot).collect();
        let removed = rows
            .iter()
            .filter(|slot| slots.binary_search(slot).is_err());
        self.removed.extend(removed.map(|slot| (*slot, node)));
        for (slot, value) in output {
            let changed = table.differs(slot, Some(&value));
            self.output
                .push((slot, node, changed.then(|| Arc::new(value))));
        }
        if slots == rows { rows } else { slots }
    }

    fn remove(&mut self, node: u32, rows: Box<[u32]>) {
        self.removed.extend(rows.iter().map(|slot| (*slot, node)));
    }

    fn settle(&mut self, source: &dyn Subjects, table: &mut dyn AnyTable) -> Delta {
        let table = typed_mut::<L, W>(table);
        let owners = &mut self.owners;
        // Removals first, since a row may move between nodes within a commit.
        let mut removed = std::mem::take(&mut self.removed);
        removed.retain(|&(slot, node)| {
            let owner = owners.get_mut(slot as usize);
            let owner = owner.filter(|owner| **owner == node);
            owner.map(|owner| *owner = NIL).is_some()
        });
        let mut changed = Vec::new();
        for (slot, node, value) in std::mem::take(&mut self.output) {
            capacity::extend_to(owners, slot as usize, || NIL);
            let owner = &mut owners[slot as usize];
            if *owner != NIL && *owner != node {
                debug_assert!(
                    false,
                    "table {:?}: source keys {} and {} both output key {:?}",
                    table.name(),
                    source.key_debug(*owner),
                    source.key_debug(node),
                    table.rows.key(slot),
                );
                continue;
            }
            *owner = node;
            changed.extend(value.map(|value| (slot, Some(value))));
        }
        let gone = removed.into_iter().map(|(slot, _)| slot);
        let gone = gone.filter(|slot| owners[*slot as usize] == NIL);
        changed.extend(gone.map(|slot| (slot, None)));
        let delta = table.apply(changed);
        if table.len() == 0 {
            self.owners = Vec::new();
        }
        delta
    }

    fn owner(&self, key: &dyn Any, _: &dyn Subjects, table: &dyn AnyTable) -> Option<u32> {
        let slot = typed::<L, W>(table).rows.find(key.downcast_ref()?)?;
        let owner = self.owners.get(slot as usize).copied();
        owner.filter(|node| *node != NIL)
    }

    fn slots(&self) -> usize {
        self.owners.len()
    }
}
