//! Property test: objects with arbitrary values in arbitrary places.

use proptest::prelude::*;
use serde_json::Value;

use crate::fixtures::{all, decode};
use crate::{Object, PathSegment};

/// Replaces node number `target`, in pre-order, and counts the nodes.
fn replace(value: &mut Value, target: usize, with: &Value, count: &mut usize) {
    let this = *count;
    *count += 1;
    if this == target {
        *value = with.clone();
        return;
    }
    match value {
        Value::Object(map) => map
            .values_mut()
            .for_each(|v| replace(v, target, with, count)),
        Value::Array(list) => list
            .iter_mut()
            .for_each(|v| replace(v, target, with, count)),
        _ => {}
    }
}

/// Whether all steps of a path except the last exist in the value.
fn parent_exists<'a>(value: &'a Value, path: &[PathSegment]) -> bool {
    let Some((_, parents)) = path.split_last() else {
        return true;
    };
    let step = |value: &'a Value, segment: &PathSegment| match segment {
        PathSegment::Field(field) => value.get(field),
        PathSegment::Index(index) => value.get(index),
    };
    parents.iter().try_fold(value, step).is_some()
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("/".to_owned()),
        Just("10s".to_owned()),
        Just("*.a.b".to_owned()),
        Just("Exact".to_owned()),
        Just("RequestRedirect".to_owned()),
        ".{0,12}",
    ];
    let key = prop_oneof![
        Just("type".to_owned()),
        Just("name".to_owned()),
        Just("namespaces".to_owned()),
        Just("path".to_owned()),
        "[a-z]{1,8}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0i64..1000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Decoding never panics, and error paths exist in the document.
    #[test]
    fn decoding_handles_any_value_anywhere(
        object in 0..all().len(),
        node in any::<prop::sample::Index>(),
        value in arbitrary_json(),
    ) {
        let mut object = all()[object].clone();
        let mut count = 0;
        replace(&mut object, usize::MAX, &value, &mut count);
        replace(&mut object, node.index(count), &value, &mut 0);
        match Object::decode(object.clone()) {
            Ok(Some(decoded)) => {
                let written = serde_json::to_value(&decoded).unwrap();
                prop_assert_eq!(decode(written).unwrap(), decoded);
            }
            Ok(None) => {}
            Err(error) => {
                prop_assert!(!error.path.is_empty() || !object.is_object(), "{}", error);
                prop_assert!(parent_exists(&object, &error.path), "{}", error);
            }
        }
    }
}
