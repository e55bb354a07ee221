//! Frees the unused memory of collections that have shrunk, at constant amortized cost per removal.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// Collections with less capacity are left alone.
const SMALL: usize = 64;

pub(crate) fn map<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if is_sparse(map.len(), map.capacity()) {
        map.shrink_to(2 * map.len());
    }
}

pub(crate) fn set<K: Eq + Hash>(set: &mut HashSet<K>) {
    if is_sparse(set.len(), set.capacity()) {
        set.shrink_to(2 * set.len());
    }
}

pub(crate) fn queue<T>(queue: &mut VecDeque<T>) {
    if is_sparse(queue.len(), queue.capacity()) {
        queue.shrink_to(2 * queue.len());
    }
}

fn is_sparse(len: usize, capacity: usize) -> bool {
    capacity > SMALL && len < capacity / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_shrink_at_constant_amortized_cost() {
        let mut all: HashMap<usize, usize> = (0..10_000).map(|number| (number, number)).collect();
        let mut moved = 0;
        for number in 0..10_000 {
            all.remove(&number);
            let before = all.capacity();
            map(&mut all);
            if all.capacity() != before {
                moved += all.len();
            }
        }
        assert!(all.capacity() <= 2 * SMALL, "capacity {}", all.capacity());
        assert!(moved < 10_000, "{moved} entries were moved");
    }
}
