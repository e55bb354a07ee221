//! The members of an index group: rows of its table, in key order.
//!
//! Most groups have at most one member, stored inline; some contain every row. A small group is a boxed, sorted vector
//! of four bytes per member; a large group is a boxed tree with O(log n) insertion.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::slots::Data;

/// Above this size, a group becomes a tree; at half of it, a vector again.
const FEW: usize = 64;

#[derive(Default)]
#[expect(clippy::box_collection, reason = "collections take 24 bytes inline")]
pub(crate) enum Members<K> {
    #[default]
    None,
    One(u32),
    Few(Box<Vec<u32>>),
    Many(Box<BTreeMap<Arc<K>, u32>>),
}

impl<K: Send + Sync + 'static> Data for Members<K> {
    fn is_present(&self) -> bool {
        self.len() > 0
    }
}

impl<K> Members<K> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Members::None => 0,
            Members::One(_) => 1,
            Members::Few(rows) => rows.len(),
            Members::Many(rows) => rows.len(),
        }
    }

    /// Calls `each` with every member, in key order.
    pub(crate) fn for_each(&self, mut each: impl FnMut(u32)) {
        match self {
            Members::None => {}
            Members::One(row) => each(*row),
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
            Members::None => {
                *self = Members::One(row);
                true
            }
            Members::One(other) => {
                if key_of(*other) == key {
                    return false;
                }
                *self = Members::Few(Box::new(vec![*other]));
                self.insert(row, key, key_of)
            }
            Members::Few(rows) => {
                let Err(at) = rows.binary_search_by(|other| key_of(*other).cmp(key)) else {
                    return false;
                };
                rows.insert(at, row);
                if rows.len() > FEW {
                    let rows = rows.iter().map(|row| (Arc::clone(key_of(*row)), *row));
                    *self = Members::Many(Box::new(rows.collect()));
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
            Members::None => false,
            Members::One(row) => {
                let removed = key_of(*row) == key;
                if removed {
                    *self = Members::None;
                }
                removed
            }
            Members::Few(rows) => {
                let Ok(at) = rows.binary_search_by(|other| key_of(*other).cmp(key)) else {
                    return false;
                };
                rows.remove(at);
                if let [row] = rows[..] {
                    *self = Members::One(row);
                }
                true
            }
            Members::Many(rows) => {
                let removed = rows.remove(key).is_some();
                if rows.len() <= FEW / 2 {
                    *self = Members::Few(Box::new(rows.values().copied().collect()));
                }
                removed
            }
        }
    }
}

#[cfg(test)]
mod tests;
