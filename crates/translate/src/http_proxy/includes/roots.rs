//! The limit on the routes of an HTTPProxy for all roots that include it. Each root has a copy of them.
//!
//! In: the roots that include an HTTPProxy. Out: those for which it is left out.

use std::collections::BTreeSet;
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
    let mut in_order: Vec<_> = included
        .iter()
        .filter_map(|((_, root), one)| Some((reader.get(roots, root)?, root, size(one))))
        .collect();
    // An HTTPProxy can't choose the roots of other namespaces that include it.
    in_order.sort_by(|(a, a_key, _), (b, b_key, _)| {
        let foreign = |key: &ObjectKey| key.namespace != proxy.namespace;
        let age = a.seniority.cmp(&b.seniority);
        foreign(a_key).cmp(&foreign(b_key)).then(age)
    });
    let mut left = LIMIT;
    let exceeding = in_order.into_iter().filter(|(_, _, size)| {
        let fits = *size <= left;
        left -= if fits { *size } else { 0 };
        !fits
    });
    Some(exceeding.map(|(_, root, _)| root.clone()).collect())
}
