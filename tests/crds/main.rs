//! Checks `api`'s types against the upstream CRDs of both channels: every field, enum value, default and bound.
//!
//! For each place in each kind, decodes an object with a value at that place and compares the result with what the API
//! server would do. Accepted differences are listed with a reason; an unused list entry fails.

mod exceptions;
mod fixes;
mod reached;
mod sample;
mod schema;
mod text;

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};
use sesame_api::{Kind, Object};

use exceptions::Exceptions;
use schema::{Crd, Place, Step};

/// The CRDs of kinds and versions that `api` reads.
fn read() -> Vec<Crd> {
    let mut crds = schema::load();
    crds.retain(|crd| Kind::from_api(&crd.api_version, &crd.kind).is_some());
    crds
}

fn decode(object: &Value) -> Result<Object, String> {
    match Object::decode(object.clone()) {
        Ok(Some(object)) => Ok(object),
        Ok(None) => Err("`api` does not read this kind".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn name<'a>(place: &'a Place<'_>) -> &'a str {
    let field = place.path.0.iter().rev().find_map(|step| match step {
        Step::Field(name) => Some(name.as_str()),
        _ => None,
    });
    field.unwrap_or_default()
}

#[test]
fn every_kind_is_read_or_listed() {
    let mut unread = Exceptions::new(exceptions::UNREAD_KINDS);
    let mut read = BTreeSet::new();
    for crd in schema::load() {
        if Kind::from_api(&crd.api_version, &crd.kind).is_some() {
            read.insert(crd.kind);
        } else {
            unread.record(&crd, &crd.kind, "is not read");
        }
    }
    unread.check();
    let ours = Kind::ALL
        .iter()
        .filter(|kind| kind.group() == sesame_api::GATEWAY_GROUP);
    for kind in ours {
        assert!(read.contains(kind.as_str()), "no CRD defines {kind}");
    }
}

#[test]
fn every_field_is_known() {
    let mut unknown = Exceptions::new(exceptions::UNREAD_FIELDS);
    for crd in read() {
        for place in crd.places() {
            let leaf = match place.schema["type"].as_str() {
                Some("array") => sample::list(place.schema, name(&place), 1),
                _ => sample::value(place.schema, name(&place), 0),
            };
            let object = sample::object(&crd, &place.path, &leaf);
            let path = format!("{}.{}", crd.kind, place.path);
            match decode(&object) {
                Err(error) => unknown.record(&crd, &path, &format!("{error}\n{object}")),
                Ok(decoded) => {
                    let back = serde_json::to_value(&decoded).unwrap();
                    let kept = schema::at(&back, &place.path);
                    if !holds(kept, &leaf) {
                        unknown.record(&crd, &path, &format!("{leaf} became {kept:?}"));
                    }
                }
            }
        }
    }
    unknown.check();
}

/// Whether `kept` contains everything in `given`. Defaults may be added and empty values dropped.
fn holds(kept: Option<&Value>, given: &Value) -> bool {
    match (kept, given) {
        (_, Value::Object(given)) => given
            .iter()
            .all(|(name, given)| holds(kept.and_then(|kept| kept.get(name)), given)),
        (Some(Value::Array(kept)), Value::Array(given)) => {
            kept.len() == given.len()
                && given
                    .iter()
                    .zip(kept)
                    .all(|(given, kept)| holds(Some(kept), given))
        }
        (None, Value::Array(given)) => given.is_empty(),
        _ => kept == Some(given),
    }
}

#[test]
fn every_enum_value_is_known() {
    let mut unknown = Exceptions::new(exceptions::UNKNOWN_VALUES);
    for crd in read() {
        for place in crd.places() {
            let choices = place.schema["enum"].as_array();
            for choice in choices.into_iter().flatten() {
                let path = format!("{}.{}", crd.kind, place.path);
                let object = sample::object(&crd, &place.path, choice);
                let decoded = match decode(&object) {
                    Ok(decoded) => decoded,
                    Err(error) => {
                        unknown.record(&crd, &path, &format!("{choice}: {error}\n{object}"));
                        continue;
                    }
                };
                let back = serde_json::to_value(&decoded).unwrap();
                let seen = format!("{decoded:?}");
                let strange = ["Other", "Unknown"]
                    .iter()
                    .any(|variant| seen.contains(&format!("{variant}({choice})")));
                if strange || schema::at(&back, &place.path) != Some(choice) {
                    unknown.record(&crd, &path, &format!("{choice} is unknown"));
                }
            }
        }
    }
    unknown.check();
}

#[test]
fn defaults_are_applied() {
    let mut differ = Exceptions::new(exceptions::DEFAULTS);
    for crd in read() {
        for place in crd.places() {
            let Some(default) = place.schema.get("default") else {
                continue;
            };
            let path = format!("{}.{}", crd.kind, place.path);
            let explicit = sample::object(&crd, &place.path, default);
            let mut absent = explicit.clone();
            remove(&mut absent, &place.path.0);
            match (decode(&explicit), decode(&absent)) {
                (Ok(explicit), Ok(absent)) if explicit == absent => {}
                (Ok(_), Ok(_)) => differ.record(&crd, &path, &format!("{default} is not applied")),
                (Err(error), _) => differ.record(&crd, &path, &format!("{error}\n{explicit}")),
                (_, Err(error)) => differ.record(&crd, &path, &format!("{error}\n{absent}")),
            }
        }
    }
    differ.check();
}

fn remove(value: &mut Value, path: &[Step]) {
    match path {
        [Step::Field(name)] => {
            let fields = value.as_object_mut();
            fields.expect("the path names a field").remove(name);
        }
        [Step::Field(name), rest @ ..] => remove(&mut value[name], rest),
        [Step::Item, rest @ ..] => remove(&mut value[0], rest),
        _ => panic!("values of a mapping have no default"),
    }
}

#[test]
fn decoding_rejects_exactly_what_the_schema_rejects() {
    let mut laxer = Exceptions::new(exceptions::LAXER);
    let mut stricter = Exceptions::new(exceptions::STRICTER);
    for_every_probe(|crd, path, probe, allowed, decoded| match decoded {
        Ok(_) if !allowed => laxer.record(crd, path, &format!("{probe} is accepted")),
        Err(error) if allowed => {
            stricter.record(crd, path, &format!("{probe} is rejected: {error}"));
        }
        _ => {}
    });
    laxer.check();
    stricter.check();
}

/// Calls `see` for every probe at every place. The last arguments are whether the schema allows the probe, and the
/// result of decoding an object that contains it.
fn for_every_probe(mut see: impl FnMut(&Crd, &str, &str, bool, &Result<Object, String>)) {
    // Most places are the same in every version and channel.
    let mut seen = HashSet::new();
    for crd in read() {
        // Statuses come from an API server, which has already validated them.
        let places = crd.places();
        let specs = places
            .iter()
            .filter(|place| place.path.0[0] == Step::Field("spec".to_owned()));
        for place in specs {
            let path = format!("{}.{}", crd.kind, place.path);
            let bounds = schema::bounds(place.schema);
            if !seen.insert((path.clone(), bounds)) {
                continue;
            }
            for (probe, allowed) in probes(place.schema, name(place)) {
                let object = sample::object(&crd, &place.path, &probe);
                let mut text = probe.to_string();
                if let Some((end, _)) = text.char_indices().nth(60) {
                    text.truncate(end);
                    text.push('…');
                }
                see(&crd, &path, &text, allowed, &decode(&object));
            }
        }
    }
}

/// Values at the bounds of a schema, each with whether the schema allows it.
fn probes(schema: &Value, name: &str) -> Vec<(Value, bool)> {
    let bound = |bound: &str| schema[bound].as_i64();
    let edges = |bound: Option<i64>, outside: i64| {
        let length = bound.map(|bound| (bound, bound + outside));
        length.into_iter().flat_map(|(inside, outside)| {
            [(inside, true), (outside, false)]
                .into_iter()
                .filter(|(length, _)| *length >= 0)
        })
    };
    match schema["type"].as_str() {
        Some("string") if schema.get("enum").is_none() => {
            let text = text::Text::of(schema);
            let probes = text.probes(name).into_iter();
            probes
                .map(|probe| {
                    let allowed = text.allows(&probe);
                    (json!(probe), allowed)
                })
                .collect()
        }
        Some("integer") if schema.get("enum").is_none() => edges(bound("minimum"), -1)
            .chain(edges(bound("maximum"), 1))
            .map(|(number, allowed)| (json!(number), allowed))
            .collect(),
        Some("array") => edges(bound("minItems"), -1)
            .chain(edges(bound("maxItems"), 1))
            .map(|(length, allowed)| (sample::list(schema, name, length as usize), allowed))
            .collect(),
        Some("object") if schema.get("additionalProperties").is_some() => {
            let entries = |count: i64| -> Value {
                let entry = |nth| (format!("example.com/key{nth}"), json!("a"));
                Value::Object((0..count).map(entry).collect())
            };
            edges(bound("maxProperties"), 1)
                .map(|(count, allowed)| (entries(count), allowed))
                .collect()
        }
        _ => Vec::new(),
    }
}
