//! Telling whether an object changed, without keeping it.
//!
//! In: an object as JSON. Out: two 128-bit hashes, of all of it and of what counts for its generation.
//! The order of fields does not matter, and a field that is null counts as one that is not there.

use serde_json::Value;
use xxhash_rust::xxh3::Xxh3Default;

/// What an object's content comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// Everything.
    pub(super) all: u128,
    /// Everything but `metadata` and `status`: an API server counts up `metadata.generation` when this
    /// changes (Kubernetes API conventions, "Metadata"). `apiVersion` is not in it either: it says how an
    /// object is written, not what it is.
    pub(super) spec: u128,
}

/// The fingerprint of an object.
pub(super) fn fingerprint(object: &Value) -> Fingerprint {
    let mut spec = Xxh3Default::new();
    let mut rest = Xxh3Default::new();
    for (name, value) in sorted(object) {
        let outside = ["metadata", "status", "apiVersion"].contains(&name.as_str());
        let hash = if outside { &mut rest } else { &mut spec };
        text(hash, name);
        add(hash, value);
    }
    let spec = spec.digest128();
    rest.update(&spec.to_le_bytes());
    Fingerprint {
        all: rest.digest128(),
        spec,
    }
}

fn sorted(value: &Value) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null())
        .collect();
    // Sorted already, unless a feature of serde_json that keeps the written order is on somewhere.
    fields.sort_unstable_by_key(|(name, _)| *name);
    fields
}

/// Every value is hashed with its kind and length before its content, so that no two differ only in
/// where one ends and the next begins.
fn add(hash: &mut Xxh3Default, value: &Value) {
    match value {
        Value::Null => hash.update(b"0"),
        Value::Bool(false) => hash.update(b"f"),
        Value::Bool(true) => hash.update(b"t"),
        Value::Number(number) => {
            hash.update(b"n");
            text(hash, &number.to_string());
        }
        Value::String(string) => {
            hash.update(b"s");
            text(hash, string);
        }
        Value::Array(items) => {
            hash.update(b"l");
            length(hash, items.len());
            items.iter().for_each(|item| add(hash, item));
        }
        Value::Object(_) => {
            let fields = sorted(value);
            hash.update(b"m");
            length(hash, fields.len());
            for (name, value) in fields {
                text(hash, name);
                add(hash, value);
            }
        }
    }
}

fn text(hash: &mut Xxh3Default, text: &str) {
    length(hash, text.len());
    hash.update(text.as_bytes());
}

fn length(hash: &mut Xxh3Default, length: usize) {
    hash.update(&(length as u64).to_le_bytes());
}
