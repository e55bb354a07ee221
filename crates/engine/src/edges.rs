//! Edges: which stage nodes read which subjects, and how.
//!
//! Each edge is in two lists: its subject's (doubly linked, for removal in constant time even with ten
//! thousand readers) and its node's (ordered by subject).

use std::collections::BTreeSet;

use crate::capacity::{self, is_sparse};
use crate::slots::NIL;
use crate::table::AnyTable;

/// How a subject was read: a bit set, since one edge can stand for several kinds of read.
pub(crate) const GET: u8 = 1;
pub(crate) const EXISTS: u8 = 1 << 1;
pub(crate) const BY: u8 = 1 << 2;
pub(crate) const KEYS: u8 = 1 << 3;
pub(crate) const COUNT: u8 = 1 << 4;

/// Anything a transform can read: a slot of a table (part 0) or of its n-th index (part n).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Subject {
    pub(crate) table: u16,
    pub(crate) part: u8,
    pub(crate) slot: u32,
}

struct Edge {
    subject: Subject,
    kinds: u8,
    stage: u16,
    node: u32,
    /// Neighbours in the subject's list.
    next: u32,
    prev: u32,
    /// The next edge of the same node.
    sibling: u32,
}

/// All edges of an engine.
pub(crate) struct Edges {
    arena: Vec<Edge>,
    /// Free positions. The lowest is used first, so that the tail of the arena empties and can be
    /// truncated.
    free: BTreeSet<u32>,
}

/// The tables by number, with their types erased.
pub(crate) type Tables = [Box<dyn AnyTable>];

impl Edges {
    pub(crate) fn new() -> Self {
        Edges {
            arena: Vec::new(),
            free: BTreeSet::new(),
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.arena.len() - self.free.len()
    }

    pub(crate) fn allocated(&self) -> usize {
        self.arena.len()
    }

    /// Calls `found` with the stage and node of every edge in the list at `head` whose kinds overlap
    /// `kinds`.
    pub(crate) fn readers(&self, head: u32, kinds: u8, mut found: impl FnMut(u16, u32)) {
        let mut at = head;
        while at != NIL {
            let edge = &self.arena[at as usize];
            if edge.kinds & kinds != 0 {
                found(edge.stage, edge.node);
            }
            at = edge.next;
        }
    }

    /// The subjects and kinds in a node's list.
    pub(crate) fn reads(&self, head: u32) -> impl Iterator<Item = (Subject, u8)> {
        let mut at = head;
        std::iter::from_fn(move || {
            let edge = self.arena.get(at as usize)?;
            at = edge.sibling;
            Some((edge.subject, edge.kinds))
        })
    }

    /// Replaces a node's reads with `reads` (sorted, each subject once) and returns the head of its list.
    /// Appends subjects without readers to `released`.
    pub(crate) fn replace(
        &mut self,
        head: u32,
        (stage, node): (u16, u32),
        reads: &[(Subject, u8)],
        tables: &mut Tables,
        released: &mut Vec<Subject>,
    ) -> u32 {
        if self.reads(head).eq(reads.iter().copied()) {
            return head; // the common case: same reads, new values
        }
        self.remove(head, tables, released);
        let mut first = NIL;
        for &(subject, kinds) in reads.iter().rev() {
            let readers = tables[usize::from(subject.table)]
                .subjects_mut(subject.part)
                .readers_mut(subject.slot);
            let edge = Edge {
                subject,
                kinds,
                stage,
                node,
                next: *readers,
                prev: NIL,
                sibling: first,
            };
            first = self.add(edge);
            if *readers != NIL {
                self.arena[*readers as usize].prev = first;
            }
            *readers = first;
        }
        first
    }

    /// Removes all edges of a node.
    pub(crate) fn remove(&mut self, head: u32, tables: &mut Tables, released: &mut Vec<Subject>) {
        let mut at = head;
        while at != NIL {
            let edge = &self.arena[at as usize];
            let (subject, next, prev, sibling) = (edge.subject, edge.next, edge.prev, edge.sibling);
            self.relink(at, (prev, next), tables);
            if (prev, next) == (NIL, NIL) {
                released.push(subject);
            }
            self.free.insert(at);
            at = sibling;
        }
        self.shrink();
    }

    /// Truncates free positions at the end. Amortized by earlier additions.
    fn shrink(&mut self) {
        let mut end = self.arena.len();
        while end > 0 && self.free.last() == Some(&(end as u32 - 1)) {
            self.free.pop_last();
            end -= 1;
        }
        self.arena.truncate(end);
        if is_sparse(end, self.arena.capacity()) {
            self.arena.shrink_to(end * 2);
        }
    }

    /// The stage and node of the last edge, if the arena is sparse enough to compact.
    pub(crate) fn last_if_sparse(&self) -> Option<(u16, u32)> {
        let last = self.arena.last()?;
        is_sparse(self.live(), self.arena.len()).then_some((last.stage, last.node))
    }

    /// Moves a node's edges to lower free positions and returns the head of its list. Costs O(list).
    pub(crate) fn compact(&mut self, head: u32, tables: &mut Tables) -> u32 {
        let (mut at, mut first, mut previous) = (head, NIL, NIL);
        while at != NIL {
            let sibling = self.arena[at as usize].sibling;
            let to = self.move_down(at, tables);
            match previous {
                NIL => first = to,
                _ => self.arena[previous as usize].sibling = to,
            }
            (previous, at) = (to, sibling);
        }
        self.shrink();
        first
    }

    /// Moves an edge to the lowest free position, if that is lower, and returns its position. The caller
    /// updates the `sibling` that refers to it.
    fn move_down(&mut self, at: u32, tables: &mut Tables) -> u32 {
        let Some(to) = self.free.first().copied().filter(|to| *to < at) else {
            return at;
        };
        self.free.pop_first();
        self.free.insert(at);
        self.arena.swap(at as usize, to as usize);
        self.relink(to, (to, to), tables);
        to
    }

    /// Relinks the neighbours of an edge in its subject's list: the next edge's `prev` becomes `back`; the
    /// previous edge's `next`, or the list head, becomes `forth`.
    fn relink(&mut self, at: u32, (back, forth): (u32, u32), tables: &mut Tables) {
        let edge = &self.arena[at as usize];
        let (subject, next, prev) = (edge.subject, edge.next, edge.prev);
        if next != NIL {
            self.arena[next as usize].prev = back;
        }
        if prev != NIL {
            self.arena[prev as usize].next = forth;
        } else {
            *tables[usize::from(subject.table)]
                .subjects_mut(subject.part)
                .readers_mut(subject.slot) = forth;
        }
    }

    fn add(&mut self, edge: Edge) -> u32 {
        if let Some(at) = self.free.pop_first() {
            self.arena[at as usize] = edge;
            return at;
        }
        let at = u32::try_from(self.arena.len())
            .ok()
            .filter(|at| *at != NIL)
            .expect("fewer than 2^32 - 1 edges fit into memory");
        capacity::push(&mut self.arena, edge);
        at
    }
}
