//! An index of a table: for each index key, the group of rows that have it.

use std::any::Any;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::edges::{BY, COUNT, KEYS};
use crate::handle::{Key, Value};
use crate::members::Members;
use crate::slots::{Data, Slots, Subjects};
use crate::table::{Rows, Touched};

/// An index function: returns the index keys of a row.
pub(crate) type Extract<K, V, I> = Box<dyn Fn(&K, &V) -> Vec<I> + Send + Sync>;

/// Returns the index keys that a row loses and gains when its value changes, each sorted and without duplicates.
pub(crate) type Difference<K, V, I> = Box<dyn Fn(&K, &V, &V) -> [Vec<I>; 2] + Send + Sync>;

/// A group touched by the changes being applied to the table.
struct Touch {
    size_before: usize,
    membership: bool,
}

pub(crate) struct IndexStore<K, V, I> {
    pub(crate) name: &'static str,
    pub(crate) groups: Slots<I, Members<K>>,
    extract: Extract<K, V, I>,
    /// If present, the groups that a changed row stays in aren't touched.
    difference: Option<Difference<K, V, I>>,
    touched: FxHashMap<u32, Touch>,
    memberships: usize,
}

/// An [`IndexStore`] with its key type erased, as used by its table.
pub(crate) trait TableIndex<K, V>: Any + Send + Sync {
    fn name(&self) -> &'static str;
    fn subjects(&self) -> &dyn Subjects;
    fn subjects_mut(&mut self) -> &mut dyn Subjects;
    /// Moves a row from its old value's groups to its new value's groups. `rows` contains the row's key.
    fn update(&mut self, row: u32, old: Option<&V>, new: Option<&V>, rows: &Rows<K, V>);
    /// Appends the groups touched since the last call, ordered by slot.
    fn settle(&mut self, part: u8, touched: &mut Vec<Touched>);
    /// The number of row-group pairs.
    fn memberships(&self) -> usize;
}

impl<K: Key, V: Value, I: Key> IndexStore<K, V, I> {
    pub(crate) fn new(
        name: &'static str,
        extract: Extract<K, V, I>,
        difference: Option<Difference<K, V, I>>,
    ) -> Self {
        IndexStore {
            name,
            groups: Slots::new(),
            extract,
            difference,
            touched: FxHashMap::default(),
            memberships: 0,
        }
    }

    fn keys_of(&self, key: &K, value: Option<&V>) -> Vec<I> {
        let Some(value) = value else {
            return Vec::new();
        };
        let mut keys = (self.extract)(key, value);
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// What [`Difference`] must return.
    fn keys_by_comparison(&self, key: &K, old: &V, new: &V) -> [Vec<I>; 2] {
        let (old, new) = (self.keys_of(key, Some(old)), self.keys_of(key, Some(new)));
        let only = |in_one: &[I], other: &[I]| {
            let only = in_one
                .iter()
                .filter(|key| other.binary_search(key).is_err());
            only.cloned().collect()
        };
        [only(&old, &new), only(&new, &old)]
    }

    fn touch(&mut self, group: u32) -> &mut Touch {
        let size = self.groups.data(group).len();
        self.touched.entry(group).or_insert(Touch {
            size_before: size,
            membership: false,
        })
    }

    fn join(&mut self, index_key: &I, row: u32, rows: &Rows<K, V>) {
        let group = self.groups.intern(index_key);
        self.touch(group).membership = true;
        let members = self.groups.data_mut(group);
        if members.insert(row, rows.key(row), |row| rows.key(row)) {
            self.memberships += 1;
        }
    }

    fn leave(&mut self, index_key: &I, row: u32, rows: &Rows<K, V>) {
        let Some(group) = self.groups.find(index_key) else {
            return; // happens only if the index function is impure
        };
        self.touch(group).membership = true;
        let members = self.groups.data_mut(group);
        if members.remove(rows.key(row), |row| rows.key(row)) {
            self.memberships -= 1;
        }
    }
}

impl<K: Key, V: Value, I: Key> TableIndex<K, V> for IndexStore<K, V, I> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn subjects(&self) -> &dyn Subjects {
        &self.groups
    }

    fn subjects_mut(&mut self) -> &mut dyn Subjects {
        &mut self.groups
    }

    fn update(&mut self, row: u32, old: Option<&V>, new: Option<&V>, rows: &Rows<K, V>) {
        let key = Arc::clone(rows.key(row));
        if let (Some(old), Some(new), Some(difference)) = (old, new, &self.difference) {
            let [lost, gained] = difference(&key, old, new);
            debug_assert_eq!(
                [&lost, &gained],
                self.keys_by_comparison(&key, old, new).each_ref(),
                "index {:?}: the difference agrees with the keys",
                self.name
            );
            lost.iter().for_each(|left| self.leave(left, row, rows));
            gained
                .iter()
                .for_each(|joined| self.join(joined, row, rows));
            return;
        }
        let mut old = self.keys_of(&key, old).into_iter().peekable();
        let mut new = self.keys_of(&key, new).into_iter().peekable();
        // Both are sorted: merge them.
        loop {
            match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(left), Some(right)) if left == right => {
                    if let Some(group) = self.groups.find(left) {
                        self.touch(group);
                    }
                    old.next();
                    new.next();
                }
                (Some(left), right) if right.is_none_or(|right| left < right) => {
                    self.leave(left, row, rows);
                    old.next();
                }
                (_, Some(joined)) => {
                    self.join(joined, row, rows);
                    new.next();
                }
                (Some(_), None) => unreachable!("an arm above matches keys of the old value alone"),
            }
        }
    }

    fn settle(&mut self, part: u8, touched: &mut Vec<Touched>) {
        // Taken, not drained: iterating a map costs O(capacity), which is large after a large commit.
        let start = touched.len();
        for (group, touch) in std::mem::take(&mut self.touched) {
            let size = self.groups.data(group).len();
            let mut kinds = BY;
            if touch.membership {
                kinds |= KEYS;
            }
            if size != touch.size_before {
                kinds |= COUNT;
            }
            touched.push(Touched {
                part,
                slot: group,
                kinds,
                source_changed: (size > 0) != (touch.size_before > 0),
                present: self.groups.data(group).is_present(),
            });
        }
        touched[start..].sort_unstable_by_key(|touched| touched.slot);
    }

    fn memberships(&self) -> usize {
        self.memberships
    }
}
