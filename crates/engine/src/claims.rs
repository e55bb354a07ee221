//! Transforms that put out any number of rows under keys of their own: who owns which row.
//!
//! In come the outputs of each owner (a source key), out goes for every output key the value of its
//! smallest owner. The others are remembered, so that the next one takes over when that owner goes.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::handle::{Key, Value};
use crate::reader::Reader;
use crate::room;
use crate::slots::Subjects;
use crate::stage::Emit;
use crate::table::{AnyTable, Delta, typed, typed_mut};

/// Who claims an output key. Nearly always one owner does, so that is the case without a map.
enum Claim<K, W> {
    Free,
    One {
        owner: Arc<K>,
        node: u32,
        value: Arc<W>,
    },
    Several(BTreeMap<Arc<K>, (u32, Arc<W>)>),
}

impl<K: Ord, W: PartialEq> Claim<K, W> {
    /// The node and value of the smallest owner.
    fn winner(&self) -> Option<(u32, &Arc<W>)> {
        match self {
            Claim::Free => None,
            Claim::One { node, value, .. } => Some((*node, value)),
            Claim::Several(owners) => {
                let (node, value) = owners.values().next()?;
                Some((*node, value))
            }
        }
    }

    /// Sets an owner's value. An equal one stays as it is, so that there is one copy of it.
    /// Returns whether the owner is new.
    fn set(&mut self, by: &Arc<K>, node: u32, new: W) -> bool {
        match self {
            Claim::One { owner, value, .. } if owner == by => {
                if **value != new {
                    *value = Arc::new(new);
                }
                false
            }
            Claim::Several(owners) => match owners.get_mut(by) {
                Some((_, value)) => {
                    if **value != new {
                        *value = Arc::new(new);
                    }
                    false
                }
                None => {
                    owners.insert(Arc::clone(by), (node, Arc::new(new)));
                    true
                }
            },
            Claim::Free | Claim::One { .. } => {
                let value = Arc::new(new);
                let owner = Arc::clone(by);
                *self = match std::mem::replace(self, Claim::Free) {
                    Claim::One {
                        owner: other,
                        node: other_node,
                        value: other_value,
                    } => Claim::Several(BTreeMap::from([
                        (other, (other_node, other_value)),
                        (owner, (node, value)),
                    ])),
                    _ => Claim::One { owner, node, value },
                };
                true
            }
        }
    }

    /// Takes an owner's claim back.
    fn unset(&mut self, by: &Arc<K>) {
        match self {
            Claim::Free => {}
            Claim::One { .. } => *self = Claim::Free,
            Claim::Several(owners) => {
                owners.remove(by);
                if owners.len() == 1
                    && let Some((owner, (node, value))) = owners.pop_first()
                {
                    *self = Claim::One { owner, node, value };
                }
            }
        }
    }
}

/// A transform with any number of rows per key.
pub(crate) struct Many<K, L, W, F> {
    transform: F,
    /// By slot of the output key.
    claims: Vec<Claim<K, W>>,
    live: usize,
    touched: Vec<u32>,
    output_key: std::marker::PhantomData<fn(L)>,
}

impl<K, L, W, F> Many<K, L, W, F> {
    pub(crate) fn new(transform: F) -> Self {
        Many {
            transform,
            claims: Vec::new(),
            live: 0,
            touched: Vec::new(),
            output_key: std::marker::PhantomData,
        }
    }
}

impl<K: Key, L: Key, W: Value, F> Many<K, L, W, F> {
    fn unset(&mut self, slot: u32, owner: &Arc<K>) {
        self.claims[slot as usize].unset(owner);
        self.live -= 1;
        self.touched.push(slot);
    }
}

impl<K, L, W, F> Emit<K> for Many<K, L, W, F>
where
    K: Key,
    L: Key,
    W: Value,
    F: Fn(&mut Reader<'_>, &K) -> Vec<(L, W)> + Send + Sync + 'static,
{
    type Output = Vec<(L, W)>;
    /// The slots of the output keys the node claims, sorted.
    type Held = Box<[u32]>;

    fn call(&self, reader: &mut Reader<'_>, key: &K) -> Vec<(L, W)> {
        (self.transform)(reader, key)
    }

    fn hold(
        &mut self,
        (owner, node): (&Arc<K>, u32),
        output: Vec<(L, W)>,
        held: Box<[u32]>,
        table: &mut dyn AnyTable,
    ) -> Box<[u32]> {
        let rows = &mut typed_mut::<L, W>(table).rows;
        let mut output: Vec<(u32, W)> = output
            .into_iter()
            .map(|(key, value)| (rows.intern_owned(key), value))
            .collect();
        // The last of one owner's rows for a key wins, as in a batch; the sort is stable.
        output.sort_by_key(|(slot, _)| *slot);
        output.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        let claimed: Box<[u32]> = output.iter().map(|(slot, _)| *slot).collect();
        for &slot in &held {
            if claimed.binary_search(&slot).is_err() {
                self.unset(slot, owner);
            }
        }
        for (slot, value) in output {
            let at = slot as usize;
            room::reach(&mut self.claims, at, || Claim::Free);
            self.live += usize::from(self.claims[at].set(owner, node, value));
            self.touched.push(slot);
        }
        if claimed == held { held } else { claimed }
    }

    fn drop_held(&mut self, owner: &Arc<K>, held: Box<[u32]>) {
        for &slot in &held {
            self.unset(slot, owner);
        }
    }

    fn settle(&mut self, table: &mut dyn AnyTable) -> Delta {
        let table = typed_mut::<L, W>(table);
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        let changed = touched.into_iter().filter_map(|slot| {
            let (new, old) = (self.claims[slot as usize].winner(), table.value(slot));
            let new = new.map(|(_, value)| value);
            let same = match (new, old) {
                (Some(new), Some(old)) => Arc::ptr_eq(new, old) || new == old,
                (new, old) => new.is_none() && old.is_none(),
            };
            (!same).then(|| (slot, new.cloned()))
        });
        let changed = changed.collect();
        if self.live == 0 {
            self.claims = Vec::new();
        }
        table.apply(changed)
    }

    fn owner(&self, key: &dyn Any, _: &dyn Subjects, table: &dyn AnyTable) -> Option<u32> {
        let slot = typed::<L, W>(table).rows.find(key.downcast_ref()?)?;
        let (node, _) = self.claims.get(slot as usize)?.winner()?;
        Some(node)
    }

    fn claims(&self) -> (usize, usize) {
        (self.live, self.claims.len())
    }
}
