//! Edges: which node of which stage read which subject, and how.
//!
//! In come the reads of a node after a run, out go the readers of a subject when it changes. An edge is in
//! two lists: that of its subject (doubly linked, so that it can leave in constant time even where ten
//! thousand others read the same) and that of its node (in the order of the subjects). It must not know
//! keys or values.

use std::collections::BTreeSet;

use crate::room::{self, is_spacious};
use crate::slots::NIL;
use crate::table::AnyTable;

/// How a subject was read, one bit each; an edge carries all that apply.
pub(crate) const GET: u8 = 1;
pub(crate) const EXISTS: u8 = 1 << 1;
pub(crate) const BY: u8 = 1 << 2;
pub(crate) const KEYS: u8 = 1 << 3;
pub(crate) const COUNT: u8 = 1 << 4;

/// Something that can be read: a slot of a table (part 0) or of its n-th index (part n).
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
    /// The places that are free. The lowest is used first, so that what is at the end becomes free and is given back.
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

    pub(crate) fn held(&self) -> usize {
        self.arena.len()
    }

    /// Calls `found` with (stage, node) for every edge of the list at `head` that read in one of `kinds`.
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

    /// The subjects and kinds of a node's list.
    pub(crate) fn reads(&self, head: u32) -> impl Iterator<Item = (Subject, u8)> {
        let mut at = head;
        std::iter::from_fn(move || {
            let edge = self.arena.get(at as usize)?;
            at = edge.sibling;
            Some((edge.subject, edge.kinds))
        })
    }

    /// Makes `reads` (sorted, each subject once) the reads of a node and returns the head of its list.
    /// Subjects that nobody reads any longer are put on `released`.
    pub(crate) fn replace(
        &mut self,
        head: u32,
        (stage, node): (u16, u32),
        reads: &[(Subject, u8)],
        tables: &mut Tables,
        released: &mut Vec<Subject>,
    ) -> u32 {
        if self.reads(head).eq(reads.iter().copied()) {
            return head; // the usual case: same reads, new values
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

    /// Removes a node's list of edges.
    pub(crate) fn remove(&mut self, head: u32, tables: &mut Tables, released: &mut Vec<Subject>) {
        let mut at = head;
        while at != NIL {
            let edge = &self.arena[at as usize];
            let (subject, next, prev, sibling) = (edge.subject, edge.next, edge.prev, edge.sibling);
            self.link(at, (prev, next), tables);
            if (prev, next) == (NIL, NIL) {
                released.push(subject);
            }
            self.free.insert(at);
            at = sibling;
        }
        self.give_back();
    }

    /// Gives back what is free at the end. Work done is bounded by what was added before.
    fn give_back(&mut self) {
        let mut end = self.arena.len();
        while end > 0 && self.free.last() == Some(&(end as u32 - 1)) {
            self.free.pop_last();
            end -= 1;
        }
        self.arena.truncate(end);
        if is_spacious(end, self.arena.capacity()) {
            self.arena.shrink_to(end * 2);
        }
    }

    /// The stage and node of the last edge, where so few are left in so much room that they should be drawn together.
    pub(crate) fn far(&self) -> Option<(u16, u32)> {
        let last = self.arena.last()?;
        is_spacious(self.live(), self.arena.len()).then_some((last.stage, last.node))
    }

    /// Moves a node's list of edges to the lowest free places, as far as these are lower, and returns its head. Costs as much
    /// as the list is long.
    pub(crate) fn draw_in(&mut self, head: u32, tables: &mut Tables) -> u32 {
        let (mut at, mut first, mut before) = (head, NIL, NIL);
        while at != NIL {
            let sibling = self.arena[at as usize].sibling;
            let to = self.lower(at, tables);
            match before {
                NIL => first = to,
                _ => self.arena[before as usize].sibling = to,
            }
            (before, at) = (to, sibling);
        }
        self.give_back();
        first
    }

    /// Moves an edge to the lowest free place, if that is lower, and returns where it is. Who names it as a sibling is not
    /// told.
    fn lower(&mut self, at: u32, tables: &mut Tables) -> u32 {
        let Some(to) = self.free.first().copied().filter(|to| *to < at) else {
            return at;
        };
        self.free.pop_first();
        self.free.insert(at);
        self.arena.swap(at as usize, to as usize);
        self.link(to, (to, to), tables);
        to
    }

    /// Has the neighbours of an edge in its subject's list point elsewhere: the one behind it back to `before`, the one
    /// before it, or the list's head, on to `behind`.
    fn link(&mut self, at: u32, (before, behind): (u32, u32), tables: &mut Tables) {
        let edge = &self.arena[at as usize];
        let (subject, next, prev) = (edge.subject, edge.next, edge.prev);
        if next != NIL {
            self.arena[next as usize].prev = before;
        }
        if prev != NIL {
            self.arena[prev as usize].next = behind;
        } else {
            *tables[usize::from(subject.table)]
                .subjects_mut(subject.part)
                .readers_mut(subject.slot) = behind;
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
        room::push(&mut self.arena, edge);
        at
    }
}
