use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Row `n` has the key `999 - n`, so that row order and key order differ.
fn keys() -> Vec<Arc<u32>> {
    (0..1000).map(|row| Arc::new(999 - row)).collect()
}

fn rows(members: &Members<u32>) -> Vec<u32> {
    let mut rows = Vec::new();
    members.for_each(|row| rows.push(row));
    rows
}

proptest! {
    #[test]
    fn behaves_like_a_set_sorted_by_key(
        // Small sets, and sets that cross the limit in both directions.
        steps in prop_oneof![
            prop::collection::vec((any::<bool>(), 0u32..10), 0..50),
            prop::collection::vec((prop::bool::weighted(0.6), 0u32..150), 0..600),
        ],
    ) {
        let keys = keys();
        let key_of = |row: u32| &keys[row as usize];
        let mut members = Members::default();
        let mut model = BTreeSet::new();
        for (insert, row) in steps {
            let key = key_of(row);
            if insert {
                prop_assert_eq!(members.insert(row, key, key_of), model.insert(**key));
            } else {
                prop_assert_eq!(members.remove(key, key_of), model.remove(&**key));
            }
            prop_assert_eq!(members.len(), model.len());
        }
        let expected: Vec<u32> = model.iter().map(|key| 999 - key).collect();
        prop_assert_eq!(rows(&members), expected);
    }
}

#[test]
fn is_small_unless_it_has_many_members() {
    assert_eq!(size_of::<Members<u32>>(), 16);
    let keys = keys();
    let key_of = |row: u32| &keys[row as usize];
    let mut members = Members::default();
    for row in 0..1000 {
        members.insert(row, key_of(row), key_of);
        assert_eq!(matches!(members, Members::Many(_)), members.len() > FEW);
    }
    for row in 0..1000 {
        members.remove(key_of(row), key_of);
        assert_eq!(matches!(members, Members::Many(_)), members.len() > FEW / 2);
    }
    assert!(!members.is_present());
}
