//! The engine applies batches, decides which keys must run, runs the stages, and gives access to the tables.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::batch::Batch;
use crate::commit::{Commit, Run};
use crate::edges::{BY, COUNT, EXISTS, Edges, GET, KEYS, Subject};
use crate::explain::{Explain, Footprint, Read, ReadKind};
use crate::handle::{Index, Key, Table, TableId, Value};
use crate::stage::{AnyStage, Origin, StageContext};
use crate::table::{AnyTable, Delta, TableStore, typed};

/// Tables, their indexes and the stages between them; see the [crate] docs.
pub struct Engine {
    stamp: u32,
    revision: u64,
    tables: Vec<Box<dyn AnyTable>>,
    names: Vec<&'static str>,
    stages: Vec<Box<dyn AnyStage>>,
    /// For each table, the stages that run for its keys or for its indexes' keys.
    sourced: Vec<Vec<Sourced>>,
    edges: Edges,
    /// For each stage, the keys to visit in this commit, as source number and slot. May contain duplicates.
    dirty: Vec<Vec<(u8, u32)>>,
    /// Candidates to release at the end of this commit, if they are then neither present nor read.
    released: Vec<Subject>,
    /// Set during a commit; stays set if the commit panics.
    committing: bool,
}

/// A stage that runs for the keys of a table or index.
#[derive(Clone, Copy)]
struct Sourced {
    part: u8,
    stage: u16,
    /// Which of the stage's sources this is.
    source: u8,
}

impl Engine {
    pub(crate) fn new(
        stamp: u32,
        tables: Vec<Box<dyn AnyTable>>,
        stages: Vec<Box<dyn AnyStage>>,
    ) -> Self {
        let mut sourced = vec![Vec::new(); tables.len()];
        for (number, stage) in (0u16..).zip(&stages) {
            for (source, (table, part)) in (0u8..).zip(stage.sources()) {
                sourced[usize::from(*table)].push(Sourced {
                    part: *part,
                    stage: number,
                    source,
                });
            }
        }
        Engine {
            stamp,
            revision: 0,
            names: tables.iter().map(|table| table.name()).collect(),
            sourced,
            dirty: vec![Vec::new(); stages.len()],
            tables,
            stages,
            edges: Edges::new(),
            released: Vec::new(),
            committing: false,
        }
    }

    /// Applies a batch and runs all stages that depend on it.
    ///
    /// # Panics
    /// If the batch is for another engine, if a transform reads a table that is not declared before it, or
    /// if a transform or an index function panics. The panic propagates and leaves the commit incomplete:
    /// tables can still be read for a post-mortem, but all further commits panic.
    pub fn commit(&mut self, batch: Batch) -> Commit {
        assert!(
            !self.committing,
            "an earlier commit of this engine panicked"
        );
        self.committing = true;
        let next = self.revision + 1;
        let mut commit = Commit::new(self.stamp, next);
        for (id, wanted) in batch.into_tables() {
            self.check(id);
            let delta = self.tables[usize::from(id.table)].apply_batch(wanted);
            self.settle(id.table, delta, &mut commit);
        }
        if commit.is_empty() {
            self.committing = false;
            return Commit::new(self.stamp, self.revision);
        }
        self.revision = next;
        let revision = NonZeroU64::MIN.saturating_add(next - 1);
        for number in 0..self.stages.len() {
            self.run_stage(number, revision, &mut commit);
        }
        self.release();
        self.compact();
        self.committing = false;
        commit
    }

    fn run_stage(&mut self, number: usize, revision: NonZeroU64, commit: &mut Commit) {
        let mut dirty = std::mem::take(&mut self.dirty[number]);
        if dirty.is_empty() {
            return;
        }
        dirty.sort_unstable();
        dirty.dedup();
        let stage = &mut self.stages[number];
        let table = stage.output();
        let context = StageContext {
            tables: &mut self.tables,
            names: &self.names,
            edges: &mut self.edges,
            released: &mut self.released,
            stamp: self.stamp,
            revision,
        };
        let number = u16::try_from(number).expect("there are no more stages than tables");
        let run = stage.run(number, &dirty, context);
        if run.count > 0 {
            let keys = run.keys;
            commit.runs.push(Run { table, keys });
            commit
                .work
                .push((self.names[usize::from(table)], run.count));
        }
        self.settle(table, run.delta, commit);
    }

    /// Marks all nodes that depend on a table's changes.
    fn settle(&mut self, table: u16, delta: Delta, commit: &mut Commit) {
        let Some(changes) = delta.changes else {
            return;
        };
        commit.changes.push((table, changes));
        let at = usize::from(table);
        for touched in delta.touched {
            let (part, slot) = (touched.part, touched.slot);
            let head = self.tables[at].subjects(part).readers(slot);
            let dirty = &mut self.dirty;
            self.edges.readers(head, touched.kinds, |stage, node| {
                dirty[usize::from(stage)].push((0, node));
            });
            if touched.source_changed {
                for sourced in &self.sourced[at] {
                    if sourced.part == part {
                        self.dirty[usize::from(sourced.stage)].push((sourced.source, slot));
                    }
                }
            }
            if !touched.present {
                self.released.push(Subject { table, part, slot });
            }
        }
    }

    /// Releases slots that are neither present nor read. Runs only at the end of a commit, so a slot never
    /// changes its key within one.
    fn release(&mut self) {
        for Subject { table, part, slot } in std::mem::take(&mut self.released) {
            self.tables[usize::from(table)]
                .subjects_mut(part)
                .release(slot);
        }
    }

    /// Compacts the edge arena if it is sparse: an edge at its end prevents truncation of the free
    /// positions before it. Costs O(remaining edges), but only once three quarters of all edges are gone.
    fn compact(&mut self) {
        while let Some((stage, node)) = self.edges.last_if_sparse() {
            let Some(head) = self.stages[usize::from(stage)].reads_mut(node) else {
                debug_assert!(false, "every edge belongs to an existing node");
                return;
            };
            *head = self.edges.compact(*head, &mut self.tables);
        }
    }

    /// The revision of the last commit that changed anything; 0 before the first.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The row for `key`.
    ///
    /// # Panics
    /// This and all other methods that take a handle panic if it belongs to another engine.
    pub fn get<K: Key, V: Value>(&self, table: Table<K, V>, key: &K) -> Option<Arc<V>> {
        let store = self.store(table);
        store.value(store.rows.find(key)?).cloned()
    }

    /// All rows, sorted by key. Costs O(rows); for dumps and outputs.
    pub fn iter<K: Key, V: Value>(
        &self,
        table: Table<K, V>,
    ) -> impl ExactSizeIterator<Item = (&K, &Arc<V>)> {
        self.store(table).sorted().into_iter()
    }

    /// The number of rows.
    pub fn len<K: Key, V: Value>(&self, table: Table<K, V>) -> usize {
        self.store(table).len()
    }

    /// Whether the table is empty.
    pub fn is_empty<K: Key, V: Value>(&self, table: Table<K, V>) -> bool {
        self.len(table) == 0
    }

    /// The keys of the rows in group `key` of the index, sorted.
    pub fn keys_by<K: Key, V: Value, I: Key>(&self, index: Index<K, V, I>, key: &I) -> Vec<K> {
        let store = self.store(index.table);
        match store.index::<I>(index.part).groups.find(key) {
            Some(group) => store.members::<I, _>(index.part, group, |key, _| key.clone()),
            None => Vec::new(),
        }
    }

    /// Explains why `key` has its row, or why it doesn't have one: the stage's last run for `key`. For a union, that
    /// run belongs to the table that provides the row.
    ///
    /// `None` for an input table, for a union of keys, and if the stage did not run for `key`: the key is
    /// not in the source or, for `derive_many`, was not output by any run.
    pub fn explain<K: Key, V: Value>(&self, table: Table<K, V>, key: &K) -> Option<Explain> {
        self.check(table.id);
        let mut at = table.id.table;
        let (source, revision, edges) = loop {
            let mut stages = self.stages.iter();
            let stage = stages.find(|stage| stage.output() == at)?;
            match stage.origin(key, &self.tables)? {
                Origin::Table(table) => at = table,
                Origin::Run {
                    source,
                    revision,
                    reads,
                } => break (source, revision, reads),
            }
        };
        let mut reads = Vec::new();
        let own = (source.part == 0).then_some((source, GET));
        for (subject, kinds) in own.into_iter().chain(self.edges.reads(edges)) {
            let store = &self.tables[usize::from(subject.table)];
            for (bit, kind) in [
                (GET, ReadKind::Get),
                (EXISTS, ReadKind::Exists),
                (BY, ReadKind::By),
                (KEYS, ReadKind::Keys),
                (COUNT, ReadKind::Count),
            ] {
                if kinds & bit != 0 {
                    let read = Read {
                        table: store.name(),
                        index: store.index_name(subject.part),
                        kind,
                        key: store.subjects(subject.part).key_debug(subject.slot),
                    };
                    reads.push((subject.table, read));
                }
            }
        }
        reads.sort_unstable();
        Some(Explain {
            stage: self.names[usize::from(at)],
            key: self.tables[usize::from(source.table)]
                .subjects(source.part)
                .key_debug(source.slot),
            revision: revision.get(),
            reads: reads.into_iter().map(|(_, read)| read).collect(),
        })
    }

    /// The size of the engine's data. Costs O(tables).
    pub fn footprint(&self) -> Footprint {
        let mut footprint = Footprint {
            edges: self.edges.live(),
            slots: self.edges.allocated(),
            ..Footprint::default()
        };
        for table in &self.tables {
            footprint.rows += table.len();
            footprint.memberships += table.memberships();
            for part in 0..table.parts() {
                footprint.subjects += table.subjects(part).live();
                footprint.slots += table.subjects(part).allocated();
            }
        }
        for stage in &self.stages {
            stage.add_to(&mut footprint);
        }
        footprint
    }

    fn store<K: Key, V: Value>(&self, table: Table<K, V>) -> &TableStore<K, V> {
        self.check(table.id);
        typed(&*self.tables[usize::from(table.id.table)])
    }

    fn check(&self, id: TableId) {
        assert!(
            id.stamp == self.stamp,
            "the table belongs to another engine"
        );
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("revision", &self.revision)
            .field("tables", &self.names)
            .finish()
    }
}
