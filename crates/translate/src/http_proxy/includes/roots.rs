//! The limit on the routes of an HTTPProxy for all roots that include it. Each root has a copy of them.
//!
//! In: the roots that include an HTTPProxy. Out: those for which it is left out.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sesame_api::ObjectKey;
use sesame_engine::{Index, Reader, Table};

use super::Links;
use crate::http_proxy::host::Root;
use crate::http_proxy::{Included, Inclusion};

/// The maximum size of an HTTPProxy's routes for all roots, in bytes, of what exceeds [`FREE`] for each root.
pub(in crate::http_proxy) const LIMIT: usize = 16 * 1024 * 1024;

/// The size for each root that doesn't count, in bytes: a few routes may be common to any number of hosts.
pub(in crate::http_proxy) const FREE: usize = 16 * 1024;

/// The size of a short route with everything that Sesame adds to it, in bytes.
const EACH: usize = 256;

/// The roots for which an HTTPProxy is left out; `None` if there are none.
pub(in crate::http_proxy) fn left_out(
    reader: &mut Reader<'_>,
    by_included: Index<Inclusion, Included, ObjectKey>,
    links: Table<ObjectKey, Links>,
    roots: Table<ObjectKey, Root>,
    proxy: &ObjectKey,
) -> Option<BTreeSet<ObjectKey>> {
    let links = reader.get(links, proxy)?;
    let once = links.bytes + links.routes * EACH;
    let included = reader.by(by_included, proxy);
    let size = |included: &Arc<Included>| (included.visits.len() * once).saturating_sub(FREE);
    if included.iter().map(|(_, one)| size(one)).sum::<usize>() <= LIMIT {
        return None;
    }
    let mut by_age: Vec<_> = included
        .iter()
        .filter_map(|((_, root), one)| Some((reader.get(roots, root)?, root, size(one))))
        .collect();
    by_age.sort_by(|(a, ..), (b, ..)| a.seniority.cmp(&b.seniority));
    // An HTTPProxy can't choose the roots of other namespaces that include it. Each namespace's oldest root comes first,
    // then each one's next.
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let in_turns = by_age.into_iter().map(|(_, root, size)| {
        let count = counts.entry(&root.namespace).or_default();
        *count += 1;
        let turn = match root.namespace == proxy.namespace {
            true => 0,
            false => *count,
        };
        (turn, root, size)
    });
    let mut in_order: Vec<_> = in_turns.collect();
    in_order.sort_by_key(|(turn, ..)| *turn);
    let mut left = LIMIT;
    let exceeding = in_order.into_iter().filter(|(_, _, size)| {
        let fits = *size <= left;
        left -= if fits { *size } else { 0 };
        !fits
    });
    Some(exceeding.map(|(_, root, _)| root.clone()).collect())
}
