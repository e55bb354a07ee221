//! A stage: a transform, run for every key of its source, and what each run read and put out.
//!
//! In come the slots of keys that must be looked at, out go the changes of the stage's table. How outputs
//! become rows is the business of an [`Emit`]: [`One`] here, `Many` in `claims`. A stage must not know why
//! a key is to be looked at.

use std::any::Any;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::edges::{Edges, Subject, Tables};
use crate::explain::Footprint;
use crate::handle::{Key, Value};
use crate::reader::Reader;
use crate::room;
use crate::slots::{NIL, Subjects};
use crate::table::{AnyTable, Delta, Erased, typed_mut};

/// How the output of a transform becomes rows of the stage's table, and what a node holds of them.
pub(crate) trait Emit<K>: Send + Sync + 'static {
    /// What the transform returns.
    type Output;
    /// What a node remembers of its rows.
    type Held: Default + Send + Sync;

    fn call(&self, reader: &mut Reader<'_>, key: &K) -> Self::Output;
    /// Takes the output of a run in the place of what the node held.
    fn hold(
        &mut self,
        owner: (&Arc<K>, u32),
        output: Self::Output,
        held: Self::Held,
        table: &mut dyn AnyTable,
    ) -> Self::Held;
    /// Takes back what the node held: its key is gone.
    fn drop_held(&mut self, owner: &Arc<K>, held: Self::Held);
    /// Applies to the table what was held and dropped since the last time.
    fn settle(&mut self, table: &mut dyn AnyTable) -> Delta;
    /// The node that made the row of `key`.
    fn owner(&self, key: &dyn Any, source: &dyn Subjects, table: &dyn AnyTable) -> Option<u32>;
    /// Claims and the places held for them.
    fn claims(&self) -> (usize, usize);
}

/// What a stage works with, lent for one run.
pub(crate) struct Workshop<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) names: &'a [&'static str],
    pub(crate) edges: &'a mut Edges,
    /// Subjects that may have nobody left who reads them.
    pub(crate) released: &'a mut Vec<Subject>,
    pub(crate) stamp: u32,
    pub(crate) revision: NonZeroU64,
}

/// What a stage did.
pub(crate) struct StageRun {
    pub(crate) delta: Delta,
    /// `Vec<Arc<K>>`, sorted.
    pub(crate) keys: Erased,
    pub(crate) count: usize,
}

/// A [`Stage`] without its types.
pub(crate) trait AnyStage: Send + Sync {
    /// The number of the table it makes.
    fn output(&self) -> u16;
    /// The table and part whose keys it runs for.
    fn source(&self) -> (u16, u8);
    /// Looks at the keys in `dirty` (sorted, each once): runs for those that are there, cleans up after
    /// those that are not.
    fn run(&mut self, number: u16, dirty: &[u32], workshop: Workshop<'_>) -> StageRun;
    /// The node that answers for `key` of the output table: its slot, last run and head of its edges.
    fn node(&self, key: &dyn Any, tables: &Tables) -> Option<(u32, NonZeroU64, u32)>;
    /// Where the head of the edges of a node is kept.
    fn reads_mut(&mut self, slot: u32) -> Option<&mut u32>;
    fn weigh(&self, footprint: &mut Footprint);
}

/// A source key the transform has run for.
struct Node<H> {
    revision: NonZeroU64,
    reads: u32,
    held: H,
}

pub(crate) struct Stage<K, E: Emit<K>> {
    source: (u16, u8),
    output: u16,
    emit: E,
    /// By slot of the source key.
    nodes: Vec<Option<Node<E::Held>>>,
    live: usize,
    types: std::marker::PhantomData<fn(K)>,
}

impl<K: Key, E: Emit<K>> Stage<K, E> {
    pub(crate) fn new(source: (u16, u8), output: u16, emit: E) -> Self {
        Stage {
            source,
            output,
            emit,
            nodes: Vec::new(),
            live: 0,
            types: std::marker::PhantomData,
        }
    }

    fn take(&mut self, slot: u32) -> Option<Node<E::Held>> {
        let node = self.nodes.get_mut(slot as usize)?.take()?;
        self.live -= 1;
        Some(node)
    }

    fn put(&mut self, slot: u32, node: Node<E::Held>) {
        let at = slot as usize;
        room::reach(&mut self.nodes, at, || None);
        self.nodes[at] = Some(node);
        self.live += 1;
    }
}

impl<K: Key, E: Emit<K>> AnyStage for Stage<K, E> {
    fn output(&self) -> u16 {
        self.output
    }

    fn source(&self) -> (u16, u8) {
        self.source
    }

    fn run(&mut self, number: u16, dirty: &[u32], workshop: Workshop<'_>) -> StageRun {
        let Workshop {
            tables,
            names,
            edges,
            released,
            stamp,
            revision,
        } = workshop;
        let (earlier, rest) = tables.split_at_mut(usize::from(self.output));
        let table = &mut *rest[0];
        let mut ran: Vec<Arc<K>> = Vec::with_capacity(dirty.len());
        let mut reads = Vec::new();
        for &slot in dirty {
            let keys = earlier[usize::from(self.source.0)].subjects(self.source.1);
            let key: &Arc<K> = keys
                .key_any(slot)
                .downcast_ref()
                .expect("a handle of this engine has the types of its table");
            let key = Arc::clone(key);
            if !keys.is_present(slot) {
                if let Some(node) = self.take(slot) {
                    edges.remove(node.reads, earlier, released);
                    self.emit.drop_held(&key, node.held);
                }
                continue;
            }
            reads.clear();
            let output = self.emit.call(
                &mut Reader {
                    tables: &mut *earlier,
                    names,
                    stamp,
                    reads: &mut reads,
                },
                &key,
            );
            once_each(&mut reads);
            let (old_reads, held) = self
                .take(slot)
                .map_or_else(|| (NIL, E::Held::default()), |node| (node.reads, node.held));
            let node = Node {
                revision,
                reads: edges.replace(old_reads, (number, slot), &reads, earlier, released),
                held: self.emit.hold((&key, slot), output, held, table),
            };
            self.put(slot, node);
            ran.push(key);
        }
        if self.live == 0 {
            self.nodes = Vec::new();
        }
        ran.sort_unstable();
        StageRun {
            delta: self.emit.settle(table),
            count: ran.len(),
            keys: Box::new(ran),
        }
    }

    fn node(&self, key: &dyn Any, tables: &Tables) -> Option<(u32, NonZeroU64, u32)> {
        let (table, part) = self.source;
        let source = tables[usize::from(table)].subjects(part);
        let output = &*tables[usize::from(self.output)];
        let slot = self.emit.owner(key, source, output)?;
        let node = self.nodes.get(slot as usize)?.as_ref()?;
        Some((slot, node.revision, node.reads))
    }

    fn reads_mut(&mut self, slot: u32) -> Option<&mut u32> {
        let node = self.nodes.get_mut(slot as usize)?.as_mut()?;
        Some(&mut node.reads)
    }

    fn weigh(&self, footprint: &mut Footprint) {
        let (claims, held) = self.emit.claims();
        footprint.nodes += self.live;
        footprint.claims += claims;
        footprint.slots += self.nodes.len() + held;
    }
}

/// Sorts reads and merges those of the same subject.
fn once_each(reads: &mut Vec<(Subject, u8)>) {
    reads.sort_unstable();
    reads.dedup_by(|(later, kind), (earlier, kinds)| {
        let same = later == earlier;
        if same {
            *kinds |= *kind;
        }
        same
    });
}

/// A transform with at most one row per key, of the same key.
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
    type Held = RowSlot;

    fn call(&self, reader: &mut Reader<'_>, key: &K) -> Option<W> {
        (self.transform)(reader, key)
    }

    fn hold(
        &mut self,
        (key, _): (&Arc<K>, u32),
        output: Option<W>,
        held: RowSlot,
        table: &mut dyn AnyTable,
    ) -> RowSlot {
        let Some(value) = output else {
            self.drop_held(key, held);
            return RowSlot(NIL);
        };
        let table = typed_mut::<K, W>(table);
        let slot = if held.0 == NIL {
            table.rows.intern_shared(key)
        } else {
            held.0
        };
        if table.differs(slot, Some(&value)) {
            self.pending.push((slot, Some(Arc::new(value))));
        }
        RowSlot(slot)
    }

    fn drop_held(&mut self, _: &Arc<K>, held: RowSlot) {
        if held.0 != NIL {
            self.pending.push((held.0, None));
        }
    }

    fn settle(&mut self, table: &mut dyn AnyTable) -> Delta {
        typed_mut::<K, W>(table).apply(std::mem::take(&mut self.pending))
    }

    fn owner(&self, key: &dyn Any, source: &dyn Subjects, _: &dyn AnyTable) -> Option<u32> {
        source.find_any(key)
    }

    fn claims(&self) -> (usize, usize) {
        (0, 0)
    }
}
