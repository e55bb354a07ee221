//! The members of an index group: rows of its table, in key order.
//!
//! Most groups are tiny, but some contain every row. A small group is a sorted vector of four bytes per
//! member; a large one is a tree with O(log n) insertion.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::slots::Data;

/// Above this size, a group becomes a tree; at half of it, a vector again.
const FEW: usize = 64;

pub(crate) enum Members<K> {
    Few(Vec<u32>),
    Many(BTreeMap<Arc<K>, u32>),
}

impl<K> Default for Members<K> {
    fn default() -> Self {
        Members::Few(Vec::new())
    }
}

impl<K: Send + Sync + 'static> Data for Members<K> {
    fn is_present(&self) -> bool {
        self.len() > 0
    }
}

impl<K> Members<K> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Members::Few(rows) => rows.len(),
            Members::Many(rows) => rows.len(),
        }
    }

    /// Calls `each` with every member, in key order.
    pub(crate) fn for_each(&self, each: impl FnMut(u32)) {
        match self {
            Members::Few(rows) => rows.iter().copied().for_each(each),
            Members::Many(rows) => rows.values().copied().for_each(each),
        }
    }
}

impl<K: Ord> Members<K> {
    /// Adds a row and returns whether it is new. `key_of` returns the key of a member.
    pub(crate) fn insert<'a>(
        &mut self,
        row: u32,
        key: &Arc<K>,
        key_of: impl Fn(u32) -> &'a Arc<K>,
    ) -> bool
    where
        K: 'a,
    {
        match self {
            Members::Few(rows) => {
                let Err(at) = rows.binary_search_by(|other| key_of(*other).cmp(key)) else {
                    return false;
                };
                rows.insert(at, row);
                if rows.len() > FEW {
                    let rows = rows.iter().map(|row| (Arc::clone(key_of(*row)), *row));
                    *self = Members::Many(rows.collect());
                }
                true
            }
            Members::Many(rows) => rows.insert(Arc::clone(key), row).is_none(),
        }
    }

    /// Removes a row and returns whether it was a member.
    pub(crate) fn remove<'a>(&mut self, key: &Arc<K>, key_of: impl Fn(u32) -> &'a Arc<K>) -> bool
    where
        K: 'a,
    {
        match self {
            Members::Few(rows) => {
                let Ok(at) = rows.binary_search_by(|other| key_of(*other).cmp(key)) else {
                    return false;
                };
                rows.remove(at);
                true
            }
            Members::Many(rows) => {
                let removed = rows.remove(key).is_some();
                if rows.len() <= FEW / 2 {
                    *self = Members::Few(rows.values().copied().collect());
                }
                removed
            }
        }
    }
}

#[cfg(test)]
mod tests;
