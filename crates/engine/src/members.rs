//! The members of a group of an index: rows of its table, in the order of their keys.
//!
//! Most groups are tiny, some hold every row there is. A few members are a sorted vector, four bytes each;
//! many are a tree, so that joining a large group does not cost in proportion to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::slots::Data;

/// More than this many members make a tree; half as many make a vector again.
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

    /// Calls `each` with every member, in the order of their keys.
    pub(crate) fn for_each(&self, each: impl FnMut(u32)) {
        match self {
            Members::Few(rows) => rows.iter().copied().for_each(each),
            Members::Many(rows) => rows.values().copied().for_each(each),
        }
    }
}

impl<K: Ord> Members<K> {
    /// Adds a row; `key_of` tells the key of any member. Returns whether it is new.
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

    /// Takes a row out. Returns whether it was a member.
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
