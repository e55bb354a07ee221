//! A stage: a transform that runs for each key of its source, with each run's reads and rows. An [`Emit`]
//! turns its outputs into rows.

use std::any::Any;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::capacity;
use crate::edges::{Edges, Subject, Tables};
use crate::emit::Emit;
use crate::explain::Footprint;
use crate::handle::Key;
use crate::reader::Reader;
use crate::slots::NIL;
use crate::table::{AnyTable, Delta, Erased};

/// What a stage borrows during a run.
pub(crate) struct StageContext<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) names: &'a [&'static str],
    pub(crate) edges: &'a mut Edges,
    /// Subjects that may have lost their last reader.
    pub(crate) released: &'a mut Vec<Subject>,
    pub(crate) stamp: u32,
    pub(crate) revision: NonZeroU64,
}

/// The result of a run.
pub(crate) struct StageRun {
    pub(crate) delta: Delta,
    /// `Vec<Arc<K>>`, sorted.
    pub(crate) keys: Erased,
    pub(crate) count: usize,
}

/// Where a row comes from.
pub(crate) enum Origin {
    /// A run of the transform.
    Run {
        /// The source key.
        source: Subject,
        revision: NonZeroU64,
        /// The head of the node's edge list.
        reads: u32,
    },
    /// Another table, unchanged.
    Table(u16),
}

/// The key of a slot in a source.
pub(crate) fn source_key<K: Key>(table: &dyn AnyTable, part: u8, slot: u32) -> &Arc<K> {
    let key = table.subjects(part).key_any(slot).downcast_ref();
    key.expect("a handle's types match its table")
}

/// A stage with its types erased.
pub(crate) trait AnyStage: Send + Sync {
    /// The number of the stage's table.
    fn output(&self) -> u16;
    /// The tables and parts that provide the stage's keys.
    fn sources(&self) -> &[(u16, u8)];
    /// Runs the keys in `dirty` (source and slot, sorted, no duplicates) that are present, and drops the other keys'
    /// rows.
    fn run(&mut self, number: u16, dirty: &[(u8, u32)], context: StageContext<'_>) -> StageRun;
    /// Where the output table's row for `key` comes from.
    fn origin(&self, key: &dyn Any, tables: &Tables) -> Option<Origin>;
    /// The head of a node's edge list.
    fn reads_mut(&mut self, slot: u32) -> Option<&mut u32>;
    fn add_to(&self, footprint: &mut Footprint);
}

/// A source key for which the transform has run.
struct Node<R> {
    revision: NonZeroU64,
    reads: u32,
    rows: R,
}

pub(crate) struct Stage<K, E: Emit<K>> {
    source: (u16, u8),
    output: u16,
    emit: E,
    /// By source key slot.
    nodes: Vec<Option<Node<E::Rows>>>,
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

    fn take(&mut self, slot: u32) -> Option<Node<E::Rows>> {
        let node = self.nodes.get_mut(slot as usize)?.take()?;
        self.live -= 1;
        Some(node)
    }

    /// A slot of the source.
    fn subject(&self, slot: u32) -> Subject {
        let (table, part) = self.source;
        Subject { table, part, slot }
    }

    fn put(&mut self, slot: u32, node: Node<E::Rows>) {
        let at = slot as usize;
        capacity::extend_to(&mut self.nodes, at, || None);
        self.nodes[at] = Some(node);
        self.live += 1;
    }
}

impl<K: Key, E: Emit<K>> AnyStage for Stage<K, E> {
    fn output(&self) -> u16 {
        self.output
    }

    fn sources(&self) -> &[(u16, u8)] {
        std::slice::from_ref(&self.source)
    }

    fn run(&mut self, number: u16, dirty: &[(u8, u32)], context: StageContext<'_>) -> StageRun {
        let StageContext {
            tables,
            names,
            edges,
            released,
            stamp,
            revision,
        } = context;
        let (earlier, rest) = tables.split_at_mut(usize::from(self.output));
        let table = &mut *rest[0];
        let mut ran: Vec<Arc<K>> = Vec::with_capacity(dirty.len());
        let mut reads = Vec::new();
        let (source, part) = (usize::from(self.source.0), self.source.1);
        for &(_, slot) in dirty {
            let key = Arc::clone(source_key::<K>(&*earlier[source], part, slot));
            if !earlier[source].subjects(part).is_present(slot) {
                if let Some(node) = self.take(slot) {
                    edges.remove(node.reads, earlier, released);
                    self.emit.remove(slot, node.rows);
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
            // Every change to the source's row runs the node in any case.
            let own = self.subject(slot);
            reads.retain(|(subject, _)| part > 0 || *subject != own);
            let (old_reads, rows) = self
                .take(slot)
                .map_or_else(|| (NIL, E::Rows::default()), |node| (node.reads, node.rows));
            let node = Node {
                revision,
                reads: edges.replace(old_reads, (number, slot), &reads, earlier, released),
                rows: self.emit.put((&key, slot), output, rows, table),
            };
            self.put(slot, node);
            ran.push(key);
        }
        if self.live == 0 {
            self.nodes = Vec::new();
        }
        ran.sort_unstable();
        StageRun {
            delta: self.emit.settle(earlier[source].subjects(part), table),
            count: ran.len(),
            keys: Box::new(ran),
        }
    }

    fn origin(&self, key: &dyn Any, tables: &Tables) -> Option<Origin> {
        let (table, part) = self.source;
        let source = tables[usize::from(table)].subjects(part);
        let output = &*tables[usize::from(self.output)];
        let slot = self.emit.owner(key, source, output)?;
        let node = self.nodes.get(slot as usize)?.as_ref()?;
        Some(Origin::Run {
            source: self.subject(slot),
            revision: node.revision,
            reads: node.reads,
        })
    }

    fn reads_mut(&mut self, slot: u32) -> Option<&mut u32> {
        let node = self.nodes.get_mut(slot as usize)?.as_mut()?;
        Some(&mut node.reads)
    }

    fn add_to(&self, footprint: &mut Footprint) {
        footprint.nodes += self.live;
        footprint.slots += self.nodes.len() + self.emit.slots();
    }
}

/// Sorts reads and merges reads of the same subject.
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
