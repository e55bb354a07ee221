//! Combines JSON values into larger ones.

use std::collections::BTreeSet;
use std::ops::Range;

use proptest::prelude::*;
use serde_json::{Map, Value};

/// A strategy for JSON values.
pub(super) type Json = BoxedStrategy<Value>;

/// A strategy for a field's values or its absence.
pub(super) type Field = BoxedStrategy<Option<Value>>;

/// A mapping with these fields.
pub(super) fn record(fields: Vec<(&'static str, Field)>) -> Json {
    let (names, values): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    values
        .prop_map(move |values| {
            let present = names.iter().zip(values).filter_map(|(name, value)| {
                let value = value?;
                Some(((*name).to_owned(), value))
            });
            Value::Object(present.collect::<Map<_, _>>())
        })
        .boxed()
}

/// A required field.
pub(super) fn must(value: Json) -> Field {
    value.prop_map(Some).boxed()
}

/// A field that is present with this probability.
pub(super) fn may(probability: f64, value: Json) -> Field {
    prop::option::weighted(probability, value).boxed()
}

/// One of these strings.
pub(super) fn any_of(texts: &[&'static str]) -> Json {
    prop::sample::select(texts.to_vec())
        .prop_map(Value::from)
        .boxed()
}

/// Usually a string from the first list, rarely one from the second.
pub(super) fn mostly(usual: &[&'static str], odd: &[&'static str]) -> Json {
    prop_oneof![9 => any_of(usual), 1 => any_of(odd)].boxed()
}

/// One of these numbers.
pub(super) fn any_number(numbers: &[u32]) -> Json {
    prop::sample::select(numbers.to_vec())
        .prop_map(Value::from)
        .boxed()
}

/// A number.
pub(super) fn number(range: Range<u32>) -> Json {
    range.prop_map(Value::from).boxed()
}

/// True or false.
pub(super) fn boolean() -> Json {
    any::<bool>().prop_map(Value::from).boxed()
}

/// A constant.
pub(super) fn just(value: impl Into<Value>) -> Json {
    Just(value.into()).boxed()
}

/// A list.
pub(super) fn list(element: Json, size: Range<usize>) -> Json {
    prop::collection::vec(element, size)
        .prop_map(Value::Array)
        .boxed()
}

/// A list whose elements have distinct values under `key` (or are distinct, if `key` is empty).
pub(super) fn unique_list(element: Json, size: Range<usize>, key: &'static str) -> Json {
    list(element, size)
        .prop_map(move |mut list| {
            dedup(&mut list, |element| match key {
                "" => element.to_string(),
                key => element[key].to_string(),
            });
            list
        })
        .boxed()
}

/// Removes elements with the same key as an earlier one.
pub(super) fn dedup(list: &mut Value, mut key: impl FnMut(&Value) -> String) {
    if let Some(list) = list.as_array_mut() {
        let mut seen = BTreeSet::new();
        list.retain(|element| seen.insert(key(element)));
    }
}
