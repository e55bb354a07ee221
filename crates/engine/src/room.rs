//! How much room arrays have that grow with the number of objects.
//!
//! In come arrays, out go the same with more room or less. A `Vec` by itself doubles and never gives back: of what ten thousand
//! objects need, a third would stand empty.

/// An array grows by this part of what it holds: what is moved for that costs each element eight moves in all.
const PART: usize = 8;

/// The least by which an array grows.
const LEAST: usize = 64;

/// Adds an element at the end.
pub(crate) fn push<T>(array: &mut Vec<T>, element: T) {
    make(array, 1);
    array.push(element);
}

/// Makes an array long enough to have an element at `at`, with `empty` ones.
pub(crate) fn reach<T>(array: &mut Vec<T>, at: usize, empty: impl FnMut() -> T) {
    if let Some(more) = (at + 1).checked_sub(array.len()) {
        make(array, more);
        array.resize_with(at + 1, empty);
    }
}

fn make<T>(array: &mut Vec<T>, more: usize) {
    if array.capacity() - array.len() < more {
        array.reserve_exact(more.max(array.len() / PART).max(LEAST));
    }
}

/// Whether so much room for so few is worth giving back: seldom enough that it costs nothing.
pub(crate) fn is_spacious(len: usize, capacity: usize) -> bool {
    capacity > LEAST && len < capacity / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_left_and_elements_are_seldom_moved() {
        let (mut array, mut moved) = (Vec::new(), 0);
        for number in 0..100_000_usize {
            let before = array.capacity();
            push(&mut array, number);
            if array.capacity() != before {
                moved += number;
            }
            assert!(array.capacity() <= array.len() + (array.len() / PART).max(LEAST));
        }
        assert!(moved < 100_000 * (PART + 1), "{moved} moves");
    }

    #[test]
    fn an_array_reaches_what_it_is_asked_for() {
        let mut array = vec![1];
        reach(&mut array, 4, || 0);
        assert_eq!(array, [1, 0, 0, 0, 0]);
        reach(&mut array, 2, || 9);
        assert_eq!(array.len(), 5);
    }
}
