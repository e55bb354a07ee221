//! The engine: applies a batch, walks the stages, answers for the tables.
//!
//! In come batches, out go commits. The engine finds out *which* keys must run; how they run is a stage's
//! business, what changed a table's.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::batch::Batch;
use crate::commit::{Commit, Run};
use crate::edges::{BY, COUNT, EXISTS, Edges, GET, KEYS, Subject};
use crate::explain::{Explain, Footprint, Read, ReadKind};
use crate::handle::{Index, Key, Table, TableId, Value};
use crate::stage::{AnyStage, Workshop};
use crate::table::{AnyTable, Delta, TableStore, typed};

/// Tables, their indexes and the stages between them: see the [crate]'s documentation.
pub struct Engine {
    stamp: u32,
    revision: u64,
    tables: Vec<Box<dyn AnyTable>>,
    names: Vec<&'static str>,
    stages: Vec<Box<dyn AnyStage>>,
    /// By table, the stages whose source it or one of its indexes is: (part, stage).
    sourced: Vec<Vec<(u8, u16)>>,
    edges: Edges,
    /// By stage, the nodes it must look at in this commit; may hold one twice.
    dirty: Vec<Vec<u32>>,
    /// Subjects that may be neither present nor read at the end of this commit.
    released: Vec<Subject>,
    /// Set while a commit is under way; still set afterwards only if it panicked.
    committing: bool,
}

impl Engine {
    pub(crate) fn new(
        stamp: u32,
        tables: Vec<Box<dyn AnyTable>>,
        stages: Vec<Box<dyn AnyStage>>,
    ) -> Self {
        let mut sourced = vec![Vec::new(); tables.len()];
        for (number, stage) in (0u16..).zip(&stages) {
            let (table, part) = stage.source();
            sourced[usize::from(table)].push((part, number));
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

    /// Applies a batch and everything that follows from it.
    ///
    /// # Panics
    /// If the batch is for another engine, if a transform reads what it may not, or if a transform or an
    /// index function panics itself. Such a panic goes through to the caller and leaves the engine
    /// half-way: tables may be looked at for a post-mortem, but every further commit panics. Whoever owns
    /// the engine decides whether to build a new one from its inputs or to end.
    pub fn commit(&mut self, batch: Batch) -> Commit {
        assert!(
            !self.committing,
            "an earlier commit of this engine panicked half-way"
        );
        self.committing = true;
        let next = self.revision + 1;
        let mut commit = Commit::new(self.stamp, next);
        for (id, wanted) in batch.into_tables() {
            self.check(id);
            let delta = self.tables[usize::from(id.table)].apply_wanted(wanted);
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
        self.draw_in();
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
        let workshop = Workshop {
            tables: &mut self.tables,
            names: &self.names,
            edges: &mut self.edges,
            released: &mut self.released,
            stamp: self.stamp,
            revision,
        };
        let number = u16::try_from(number).expect("there are no more stages than tables");
        let run = stage.run(number, &dirty, workshop);
        if run.count > 0 {
            let keys = run.keys;
            commit.runs.push(Run { table, keys });
            commit
                .work
                .push((self.names[usize::from(table)], run.count));
        }
        self.settle(table, run.delta, commit);
    }

    /// Marks whoever depends on what changed in a table.
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
                dirty[usize::from(stage)].push(node);
            });
            if touched.source_changed {
                for (of, stage) in &self.sourced[at] {
                    if *of == part {
                        self.dirty[usize::from(*stage)].push(slot);
                    }
                }
            }
            if !touched.present {
                self.released.push(Subject { table, part, slot });
            }
        }
    }

    /// Forgets what is neither present nor read. Only now, so that within a commit a slot means one key.
    fn release(&mut self) {
        for Subject { table, part, slot } in std::mem::take(&mut self.released) {
            self.tables[usize::from(table)]
                .subjects_mut(part)
                .release(slot);
        }
    }

    /// Gives back the room of edges that are gone, where few are left and one of them is far out: a key that ran before others were
    /// cleaned up after. Costs as much as what is left, and that is seldom: a fourth of what was there.
    fn draw_in(&mut self) {
        while let Some((stage, node)) = self.edges.far() {
            let Some(head) = self.stages[usize::from(stage)].reads_mut(node) else {
                debug_assert!(false, "an edge is of a node that is there");
                return;
            };
            *head = self.edges.draw_in(*head, &mut self.tables);
        }
    }

    /// The revision of the last commit that changed anything; 0 before the first.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The row of `key`.
    ///
    /// # Panics
    /// This and all other methods that take a handle: if it is of another engine.
    pub fn get<K: Key, V: Value>(&self, table: Table<K, V>, key: &K) -> Option<Arc<V>> {
        let store = self.store(table);
        store.value(store.rows.find(key)?).cloned()
    }

    /// All rows, sorted by key. For dumps and outputs: costs in proportion to the table.
    pub fn iter<K: Key, V: Value>(
        &self,
        table: Table<K, V>,
    ) -> impl ExactSizeIterator<Item = (&K, &Arc<V>)> {
        self.store(table).sorted().into_iter()
    }

    /// How many rows there are.
    pub fn len<K: Key, V: Value>(&self, table: Table<K, V>) -> usize {
        self.store(table).len()
    }

    /// Whether there are no rows.
    pub fn is_empty<K: Key, V: Value>(&self, table: Table<K, V>) -> bool {
        self.len(table) == 0
    }

    /// The keys of the rows that named `key` in the index, sorted.
    pub fn keys_by<K: Key, V: Value, I: Key>(&self, index: Index<K, V, I>, key: &I) -> Vec<K> {
        let store = self.store(index.table);
        match store.index::<I>(index.part).groups.find(key) {
            Some(group) => store.members::<I, _>(index.part, group, |key, _| key.clone()),
            None => Vec::new(),
        }
    }

    /// How the row of `key` came to be, or why there is none: the last run of the stage for it. None for
    /// an input table, and where the stage did not run: `key` is not in its source, or, for
    /// `derive_many`, nobody put it out.
    pub fn explain<K: Key, V: Value>(&self, table: Table<K, V>, key: &K) -> Option<Explain> {
        self.check(table.id);
        let mut stages = self.stages.iter();
        let stage = stages.find(|stage| stage.output() == table.id.table)?;
        let (node, revision, edges) = stage.node(key, &self.tables)?;
        let (source, part) = stage.source();
        let mut reads = Vec::new();
        for (subject, kinds) in self.edges.reads(edges) {
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
            stage: self.names[usize::from(table.id.table)],
            key: self.tables[usize::from(source)]
                .subjects(part)
                .key_debug(node),
            revision: revision.get(),
            reads: reads.into_iter().map(|(_, read)| read).collect(),
        })
    }

    /// What the engine holds, in numbers. Costs in proportion to the number of tables.
    pub fn footprint(&self) -> Footprint {
        let mut footprint = Footprint {
            edges: self.edges.live(),
            slots: self.edges.held(),
            ..Footprint::default()
        };
        for table in &self.tables {
            footprint.rows += table.len();
            footprint.memberships += table.memberships();
            for part in 0..table.parts() {
                footprint.subjects += table.subjects(part).live();
                footprint.slots += table.subjects(part).held();
            }
        }
        for stage in &self.stages {
            stage.weigh(&mut footprint);
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
            "the table is of another engine than this one"
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
