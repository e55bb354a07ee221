//! JSON as text: taken apart without a loss, put together again.
//!
//! What others wrote is never decoded and encoded again: it goes through as the text that it was.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The fields of an object, in the order of their names.
pub(super) type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// What removes a field in a merge patch (RFC 7396).
pub(super) const REMOVED: &str = "null";

/// The fields of an object; none if it isn't one. A field that is null counts as missing.
pub(super) fn fields(raw: Option<&RawValue>) -> Fields<'_> {
    let mut fields: Fields<'_> = raw
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    fields.retain(|_, value| value.get() != REMOVED);
    fields
}

/// The items of a list; none if it isn't one.
pub(super) fn items(raw: Option<&RawValue>) -> Vec<&RawValue> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}

/// A typed view, if the text allows it.
pub(super) fn typed<T: DeserializeOwned>(raw: Option<&RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// A value as text.
pub(super) fn text<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("statuses are plain data with text as keys")
}

/// An object from its fields, each already text.
pub(super) fn object<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::from("{");
    for (name, value) in fields {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&text(name));
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
}

/// A list from its items, each already text.
pub(super) fn list(items: &[Cow<'_, str>]) -> String {
    format!("[{}]", items.join(","))
}
