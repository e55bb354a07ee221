//! A table: values by key, with its indexes.
//!
//! Applying changes (at most one per row, and only if its value differs) yields a [`Delta`]: the changes
//! for the [`Commit`](crate::Commit), and the touched subjects for the engine.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::commit::Change;
use crate::edges::{EXISTS, GET};
use crate::handle::{Key, Value};
use crate::index::{IndexStore, TableIndex};
use crate::slots::{Data, Slots, Subjects};

impl<V: Value> Data for Option<Arc<V>> {
    fn is_present(&self) -> bool {
        self.is_some()
    }
}

/// The rows of a table. A slot without a value is only read.
pub(crate) type Rows<K, V> = Slots<K, Option<Arc<V>>>;

/// A batch's changes to one table: new values by key; `None` removes the row.
pub(crate) type TableBatch<K, V> = BTreeMap<K, Option<Arc<V>>>;

/// A type-erased value.
pub(crate) type Erased = Box<dyn Any + Send + Sync>;

/// A subject affected by changes to its table.
pub(crate) struct Touched {
    pub(crate) part: u8,
    pub(crate) slot: u32,
    /// The kinds of read this invalidates.
    pub(crate) kinds: u8,
    /// Whether stages with this source must visit the key.
    pub(crate) source_changed: bool,
    /// Whether the key is present now; if not, its slot may be released.
    pub(crate) present: bool,
}

/// The changes to a table.
pub(crate) struct Delta {
    pub(crate) touched: Vec<Touched>,
    /// `Vec<(K, Change<V>)>`, sorted by key; `None` if nothing changed.
    pub(crate) changes: Option<Erased>,
}

pub(crate) struct TableStore<K, V> {
    name: &'static str,
    pub(crate) rows: Rows<K, V>,
    indexes: Vec<Box<dyn TableIndex<K, V>>>,
    len: usize,
}

/// A [`TableStore`] with its types erased.
pub(crate) trait AnyTable: Any + Send + Sync {
    fn name(&self) -> &'static str;
    /// The name of index number `part`; `None` for part 0, the table itself.
    fn index_name(&self, part: u8) -> Option<&'static str>;
    fn subjects(&self, part: u8) -> &dyn Subjects;
    fn subjects_mut(&mut self, part: u8) -> &mut dyn Subjects;
    /// Applies a [`TableBatch`] of the table's types.
    fn apply_batch(&mut self, changes: Erased) -> Delta;
    /// The number of rows with a value.
    fn len(&self) -> usize;
    /// The number of parts: the table and its indexes.
    fn parts(&self) -> u8;
    /// The number of row-group pairs in all indexes.
    fn memberships(&self) -> usize;
}

/// Downcasts a table to the types of a handle whose stamp has been checked.
pub(crate) fn typed<K: Key, V: Value>(table: &dyn AnyTable) -> &TableStore<K, V> {
    (table as &dyn Any)
        .downcast_ref()
        .expect("a handle's types match its table")
}

/// Like [`typed`].
pub(crate) fn typed_mut<K: Key, V: Value>(table: &mut dyn AnyTable) -> &mut TableStore<K, V> {
    (table as &mut dyn Any)
        .downcast_mut()
        .expect("a handle's types match its table")
}

impl<K: Key, V: Value> TableStore<K, V> {
    pub(crate) fn new(name: &'static str) -> Self {
        TableStore {
            name,
            rows: Slots::new(),
            indexes: Vec::new(),
            len: 0,
        }
    }

    /// Adds an index to an empty table and returns its part.
    pub(crate) fn add_index<I: Key>(&mut self, index: IndexStore<K, V, I>) -> u8 {
        assert!(
            self.indexes.iter().all(|other| other.name() != index.name),
            "table {:?} has two indexes named {:?}",
            self.name,
            index.name,
        );
        self.indexes.push(Box::new(index));
        let part = u8::try_from(self.indexes.len()).unwrap_or(u8::MAX);
        assert!(part < u8::MAX, "table {:?} has too many indexes", self.name);
        part
    }

    pub(crate) fn index<I: Key>(&self, part: u8) -> &IndexStore<K, V, I> {
        (&*self.indexes[usize::from(part) - 1] as &dyn Any)
            .downcast_ref()
            .expect("a handle's types match its index")
    }

    pub(crate) fn index_mut<I: Key>(&mut self, part: u8) -> &mut IndexStore<K, V, I> {
        (&mut *self.indexes[usize::from(part) - 1] as &mut dyn Any)
            .downcast_mut()
            .expect("a handle's types match its index")
    }

    /// The value of a slot.
    pub(crate) fn value(&self, slot: u32) -> Option<&Arc<V>> {
        self.rows.data(slot).as_ref()
    }

    /// Whether `new` differs from the value of a slot.
    pub(crate) fn differs(&self, slot: u32, new: Option<&V>) -> bool {
        match (self.value(slot), new) {
            // Inputs may upsert the same allocation again.
            (Some(old), Some(new)) if std::ptr::eq(&**old, new) => false,
            (old, new) => old.map(|old| &**old) != new,
        }
    }

    /// Applies changes: at most one per row, and only values that differ.
    pub(crate) fn apply(&mut self, rows: Vec<(u32, Option<Arc<V>>)>) -> Delta {
        if rows.is_empty() {
            return Delta {
                touched: Vec::new(),
                changes: None,
            };
        }
        let mut touched = Vec::with_capacity(rows.len());
        let mut changes: Vec<(K, Change<V>)> = Vec::with_capacity(rows.len());
        for (slot, new) in rows {
            let old = std::mem::replace(self.rows.data_mut(slot), new.clone());
            let mut kinds = GET;
            match (&old, &new) {
                (None, Some(_)) => {
                    self.len += 1;
                    kinds |= EXISTS;
                }
                (Some(_), None) => {
                    self.len -= 1;
                    kinds |= EXISTS;
                }
                _ => {}
            }
            for index in &mut self.indexes {
                index.update(slot, old.as_deref(), new.as_deref(), &self.rows);
            }
            touched.push(Touched {
                part: 0,
                slot,
                kinds,
                source_changed: true,
                present: new.is_some(),
            });
            let key = K::clone(self.rows.key(slot));
            changes.push((key, new.map_or(Change::Remove, Change::Upsert)));
        }
        for (part, index) in (1..).zip(&mut self.indexes) {
            index.settle(part, &mut touched);
        }
        changes.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        Delta {
            touched,
            changes: Some(Box::new(changes)),
        }
    }

    /// All rows, sorted by key.
    pub(crate) fn sorted(&self) -> Vec<(&K, &Arc<V>)> {
        let rows = self.rows.iter();
        let mut rows: Vec<_> = rows
            .filter_map(|(key, value)| Some((key, value.as_ref()?)))
            .collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        rows
    }

    /// The keys of the members of a group, sorted.
    pub(crate) fn members<I: Key, T>(
        &self,
        part: u8,
        group: u32,
        member: impl Fn(&K, &Arc<V>) -> T,
    ) -> Vec<T> {
        let members = self.index::<I>(part).groups.data(group);
        let mut found = Vec::with_capacity(members.len());
        members.for_each(|row| {
            let value = self.value(row).expect("group members have values");
            found.push(member(self.rows.key(row), value));
        });
        found
    }
}

impl<K: Key, V: Value> AnyTable for TableStore<K, V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn index_name(&self, part: u8) -> Option<&'static str> {
        let at = usize::from(part).checked_sub(1)?;
        Some(self.indexes[at].name())
    }

    fn subjects(&self, part: u8) -> &dyn Subjects {
        match usize::from(part).checked_sub(1) {
            None => &self.rows,
            Some(at) => self.indexes[at].subjects(),
        }
    }

    fn subjects_mut(&mut self, part: u8) -> &mut dyn Subjects {
        match usize::from(part).checked_sub(1) {
            None => &mut self.rows,
            Some(at) => self.indexes[at].subjects_mut(),
        }
    }

    fn apply_batch(&mut self, changes: Erased) -> Delta {
        let changes = changes
            .downcast::<TableBatch<K, V>>()
            .expect("a handle's types match its table");
        let mut changed = Vec::with_capacity(changes.len());
        for (key, value) in *changes {
            match (self.rows.find(&key), value) {
                (Some(slot), value) if self.differs(slot, value.as_deref()) => {
                    changed.push((slot, value));
                }
                (None, Some(value)) => changed.push((self.rows.intern_owned(key), Some(value))),
                _ => {}
            }
        }
        self.apply(changed)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn parts(&self) -> u8 {
        u8::try_from(self.indexes.len() + 1).unwrap_or(u8::MAX)
    }

    fn memberships(&self) -> usize {
        self.indexes.iter().map(|index| index.memberships()).sum()
    }
}
