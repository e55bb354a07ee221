//! Interned keys: each key is stored once per table or index and identified by a slot, a small number.
//!
//! A slot has data (a row's value, or a group's members) and the head of the list of edges that read it.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;

use crate::capacity::{self, is_sparse};
use crate::handle::Key;

/// No slot or edge; ends a list.
pub(crate) const NIL: u32 = u32::MAX;

/// The data of a slot. A slot that is only read holds the default.
pub(crate) trait Data: Default + Send + Sync + 'static {
    /// Whether the row has a value, or the group a member.
    fn is_present(&self) -> bool;
}

struct Entry<K, D> {
    key: Arc<K>,
    readers: u32,
    data: D,
}

/// The keys of one table or index.
pub(crate) struct Slots<K, D> {
    /// Slots by key hash; the keys are in `entries`.
    by_key: HashTable<u32>,
    hasher: RandomState,
    /// The last entry is never free.
    entries: Vec<Option<Entry<K, D>>>,
    /// Free slots. The lowest is used first, so that the tail of `entries` empties and can be truncated.
    free: BTreeSet<u32>,
}

impl<K: Key, D: Data> Slots<K, D> {
    pub(crate) fn new() -> Self {
        Slots {
            by_key: HashTable::new(),
            hasher: RandomState::new(),
            entries: Vec::new(),
            free: BTreeSet::new(),
        }
    }

    pub(crate) fn find(&self, key: &K) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let same = |slot: &u32| *self.entry(*slot).key == *key;
        self.by_key.find(hash, same).copied()
    }

    /// Interns `key` and returns its slot. Clones the key only if it is new.
    pub(crate) fn intern(&mut self, key: &K) -> u32 {
        match self.find(key) {
            Some(slot) => slot,
            None => self.add(Arc::new(key.clone())),
        }
    }

    /// Interns `key` and returns its slot. Drops the key unless it is new.
    pub(crate) fn intern_owned(&mut self, key: K) -> u32 {
        match self.find(&key) {
            Some(slot) => slot,
            None => self.add(Arc::new(key)),
        }
    }

    /// Interns `key` and returns its slot. Shares the key if it is new.
    pub(crate) fn intern_shared(&mut self, key: &Arc<K>) -> u32 {
        match self.find(key) {
            Some(slot) => slot,
            None => self.add(Arc::clone(key)),
        }
    }

    fn add(&mut self, key: Arc<K>) -> u32 {
        let hash = self.hasher.hash_one(&*key);
        let entry = Some(Entry {
            key,
            readers: NIL,
            data: D::default(),
        });
        let slot = match self.free.pop_first() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                let slot = u32::try_from(self.entries.len())
                    .ok()
                    .filter(|slot| *slot != NIL)
                    .expect("fewer than 2^32 - 1 keys fit in memory");
                capacity::push(&mut self.entries, entry);
                slot
            }
        };
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_key.insert_unique(hash, slot, |slot| {
            let entry = entries[*slot as usize].as_ref();
            hasher.hash_one(&*entry.expect("a slot in the map has a key").key)
        });
        slot
    }

    /// Truncates free slots at the end. Amortized by earlier additions.
    fn shrink(&mut self) {
        while let Some(None) = self.entries.last() {
            self.entries.pop();
            self.free.pop_last();
        }
        if is_sparse(self.entries.len(), self.entries.capacity()) {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        if is_sparse(self.by_key.len(), self.by_key.capacity()) {
            let (entries, hasher) = (&self.entries, &self.hasher);
            self.by_key.shrink_to(self.by_key.len() * 2, |slot| {
                let entry = entries[*slot as usize].as_ref();
                hasher.hash_one(&*entry.expect("a slot in the map has a key").key)
            });
        }
    }

    fn entry(&self, slot: u32) -> &Entry<K, D> {
        self.entries[slot as usize]
            .as_ref()
            .expect("a slot is freed only when nothing refers to it")
    }

    fn entry_mut(&mut self, slot: u32) -> &mut Entry<K, D> {
        self.entries[slot as usize]
            .as_mut()
            .expect("a slot is freed only when nothing refers to it")
    }

    pub(crate) fn key(&self, slot: u32) -> &Arc<K> {
        &self.entry(slot).key
    }

    pub(crate) fn data(&self, slot: u32) -> &D {
        &self.entry(slot).data
    }

    pub(crate) fn data_mut(&mut self, slot: u32) -> &mut D {
        &mut self.entry_mut(slot).data
    }

    /// All keys and their data, unordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &D)> {
        self.entries
            .iter()
            .flatten()
            .map(|entry| (&*entry.key, &entry.data))
    }
}

/// [`Slots`] with their types erased, as used by edges.
pub(crate) trait Subjects {
    /// The key of a slot, an `Arc<K>`.
    fn key_any(&self, slot: u32) -> &dyn Any;
    /// See [`Data::is_present`].
    fn is_present(&self, slot: u32) -> bool;
    /// The slot of a `K`.
    fn find_any(&self, key: &dyn Any) -> Option<u32>;
    fn key_debug(&self, slot: u32) -> String;
    /// The head of the list of edges that read the slot.
    fn readers(&self, slot: u32) -> u32;
    fn readers_mut(&mut self, slot: u32) -> &mut u32;
    /// Frees the slot if it is neither present nor read. Does nothing on a free slot.
    fn release(&mut self, slot: u32);
    /// The number of interned keys.
    fn live(&self) -> usize;
    /// The number of slots in memory, including free ones.
    fn allocated(&self) -> usize;
}

impl<K: Key, D: Data> Subjects for Slots<K, D> {
    fn key_any(&self, slot: u32) -> &dyn Any {
        self.key(slot)
    }

    fn is_present(&self, slot: u32) -> bool {
        self.data(slot).is_present()
    }

    fn find_any(&self, key: &dyn Any) -> Option<u32> {
        self.find(key.downcast_ref::<K>()?)
    }

    fn key_debug(&self, slot: u32) -> String {
        let key: &dyn Debug = &*self.entry(slot).key;
        format!("{key:?}")
    }

    fn readers(&self, slot: u32) -> u32 {
        self.entry(slot).readers
    }

    fn readers_mut(&mut self, slot: u32) -> &mut u32 {
        &mut self.entry_mut(slot).readers
    }

    fn release(&mut self, slot: u32) {
        let Some(entry) = self.entries.get_mut(slot as usize) else {
            return; // already freed and truncated
        };
        let Some(entry) = entry.take_if(|e| e.readers == NIL && !e.data.is_present()) else {
            return;
        };
        let hash = self.hasher.hash_one(&*entry.key);
        if let Ok(found) = self.by_key.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        self.free.insert(slot);
        self.shrink();
    }

    fn live(&self) -> usize {
        self.by_key.len()
    }

    fn allocated(&self) -> usize {
        self.entries.len()
    }
}
