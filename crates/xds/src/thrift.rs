//! Giving back memory of collections that have become small, which they don't do by themselves.
//!
//! In: a collection from which something was taken. Out: the same, with little more room than it needs. Costs a removal no more
//! than a constant, on average.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// Room for fewer isn't worth it.
const SMALL: usize = 64;

/// Gives back room of a map.
pub(crate) fn map<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if is_spacious(map.len(), map.capacity()) {
        map.shrink_to(2 * map.len());
    }
}

/// Gives back room of a set.
pub(crate) fn set<K: Eq + Hash>(set: &mut HashSet<K>) {
    if is_spacious(set.len(), set.capacity()) {
        set.shrink_to(2 * set.len());
    }
}

/// Gives back room of a queue.
pub(crate) fn queue<T>(queue: &mut VecDeque<T>) {
    if is_spacious(queue.len(), queue.capacity()) {
        queue.shrink_to(2 * queue.len());
    }
}

fn is_spacious(len: usize, capacity: usize) -> bool {
    capacity > SMALL && len < capacity / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back_seldom() {
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
        assert!(all.capacity() <= 2 * SMALL, "room for {}", all.capacity());
        assert!(moved < 10_000, "{moved} were moved");
    }
}
