//! Growth policy for vectors whose length scales with the number of objects.
//!
//! A `Vec` doubles its capacity and never shrinks, which would leave about a third of it unused. These vectors grow by
//! an eighth instead.

/// A vector grows by 1/8 of its length, so each element moves at most eight times on average.
const FRACTION: usize = 8;

/// The minimum growth, in elements.
const MIN: usize = 64;

/// Appends an element.
pub(crate) fn push<T>(vec: &mut Vec<T>, element: T) {
    reserve(vec, 1);
    vec.push(element);
}

/// Extends a vector with `empty` elements until index `at` exists.
pub(crate) fn extend_to<T>(vec: &mut Vec<T>, at: usize, empty: impl FnMut() -> T) {
    if let Some(more) = (at + 1).checked_sub(vec.len()) {
        reserve(vec, more);
        vec.resize_with(at + 1, empty);
    }
}

fn reserve<T>(vec: &mut Vec<T>, more: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more.max(vec.len() / FRACTION).max(MIN));
    }
}

/// Whether enough capacity is unused to make shrinking worthwhile.
pub(crate) fn is_sparse(len: usize, capacity: usize) -> bool {
    capacity > MIN && len < capacity / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wastes_little_capacity_and_rarely_moves_elements() {
        let (mut vec, mut moved) = (Vec::new(), 0);
        for number in 0..100_000_usize {
            let before = vec.capacity();
            push(&mut vec, number);
            if vec.capacity() != before {
                moved += number;
            }
            assert!(vec.capacity() <= vec.len() + (vec.len() / FRACTION).max(MIN));
        }
        assert!(moved < 100_000 * (FRACTION + 1), "{moved} moves");
    }

    #[test]
    fn a_vector_is_extended_to_an_index_and_never_shortened() {
        let mut vec = vec![1];
        extend_to(&mut vec, 4, || 0);
        assert_eq!(vec, [1, 0, 0, 0, 0]);
        extend_to(&mut vec, 2, || 9);
        assert_eq!(vec.len(), 5);
    }
}
