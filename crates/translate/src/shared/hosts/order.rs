//! The order of a host's matches.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{HostObject, RankedMatch};
use crate::shared::hostname;

/// A match of an object with routes for a host.
pub(crate) struct HostMatch<'a> {
    pub(crate) object: &'a HostObject,
    /// Its index in the object's matches.
    index: usize,
    pub(crate) entry: &'a RankedMatch,
}

impl HostMatch<'_> {
    /// Its order among the matches of its object, also across the rows of an Ingress.
    pub(crate) fn place(&self) -> impl Ord {
        (self.entry.place, self.index)
    }
}

/// The matches of objects with routes for the same host, in order of precedence.
pub(crate) fn in_order(objects: &[HostObject]) -> Vec<HostMatch<'_>> {
    let mut entries = Vec::new();
    for object in objects {
        let matches = object.rules.matches.iter().enumerate();
        entries.extend(matches.map(|(index, entry)| HostMatch {
            object,
            index,
            entry,
        }));
    }
    entries.sort_by(by_precedence);
    entries
}

fn by_precedence(a: &HostMatch<'_>, b: &HostMatch<'_>) -> Ordering {
    // Usually so: a host with many matches belongs to few objects.
    if std::ptr::eq(a.object, b.object) {
        let by_rank = a.entry.rank.cmp(&b.entry.rank);
        return by_rank.then_with(|| a.place().cmp(&b.place()));
    }
    hostname::by_specificity(&a.object.original, &b.object.original)
        .then_with(|| a.entry.rank.cmp(&b.entry.rank))
        .then_with(|| a.object.seniority().cmp(b.object.seniority()))
        .then_with(|| a.place().cmp(&b.place()))
}

/// Replaces matches, by index; with `None`, removes them. A match with a new rank follows all others of that rank.
pub(super) fn replaced<'a>(
    entries: Vec<HostMatch<'a>>,
    replacements: &'a BTreeMap<usize, Option<RankedMatch>>,
) -> Vec<HostMatch<'a>> {
    if replacements.is_empty() {
        return entries;
    }
    let entries = entries.into_iter().enumerate();
    let mut replaced: Vec<_> = entries
        .filter_map(|(index, one)| match replacements.get(&index) {
            None => Some(one),
            Some(None) => None,
            Some(Some(entry)) => Some(HostMatch {
                index: match entry.rank == one.entry.rank {
                    true => one.index,
                    false => one.index + one.object.rules.matches.len(),
                },
                entry,
                ..one
            }),
        })
        .collect();
    replaced.sort_by(by_precedence);
    replaced
}
