//! Splits and joins JSON text without decoding it, so that foreign parts are kept byte for byte.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

/// The fields of an object, sorted by name.
pub(super) type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// The value that removes a field in a merge patch (RFC 7396).
pub(super) const REMOVED: &str = "null";

/// The non-null fields of an object; empty if it is not an object.
pub(super) fn fields(raw: Option<&RawValue>) -> Fields<'_> {
    let mut fields: Fields<'_> = raw
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    fields.retain(|_, value| value.get() != REMOVED);
    fields
}

/// The items of a list; empty if it is not a list.
pub(super) fn items(raw: Option<&RawValue>) -> Vec<&RawValue> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}

/// A decoded value; `None` if it has another type.
pub(super) fn typed<T: DeserializeOwned>(raw: Option<&RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// An encoded value.
pub(super) fn text<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("statuses are plain data with string keys")
}

/// The merge patch that turns `live` into `desired`. A patch only removes fields that it sets to null.
pub(super) fn merge_patch(live: Option<&Value>, desired: &Value) -> Value {
    let (Some(Value::Object(live)), Value::Object(desired)) = (live, desired) else {
        return desired.clone();
    };
    let removed = live.keys().map(|name| (name.clone(), Value::Null));
    let kept = desired
        .iter()
        .map(|(name, value)| (name.clone(), merge_patch(live.get(name), value)));
    removed.chain(kept).collect()
}

/// An object from encoded fields.
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

/// A list from encoded items.
pub(super) fn list(items: &[Cow<'_, str>]) -> String {
    format!("[{}]", items.join(","))
}
