//! One object as an API server tells it.
//!
//! In: its JSON text. Out: who it is, what stands in its status (as text), a fingerprint of what translation reads, and, when that
//! is new, the object. The text is gone through once.

use std::fmt;
use std::io;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sesame_api::{DecodeError, Kind, LiveStatus, Object, ObjectKey};
use xxhash_rust::xxh3::Xxh3Default;

use super::trim::{self, Rule};

/// An object that was read, but not decoded yet.
#[derive(Debug)]
pub(super) struct Reading {
    /// Who it is.
    pub(super) key: ObjectKey,
    /// Of all that [`Reading::object`] decodes. Own status writes do not change it, nor what nobody reads.
    pub(super) fingerprint: u64,
    /// The server's version of the object.
    pub(super) version: Box<str>,
    /// Its status, for kinds that Sesame tells one.
    pub(super) live: Option<LiveStatus>,
    value: Value,
}

/// Why an object's text says nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// Not the JSON of an object, or nested too deep.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// No name.
    #[error("it has no metadata.name")]
    Nameless,
}

impl Reading {
    /// Reads the text of an object of a kind.
    ///
    /// # Errors
    /// When it is not the JSON of an object that has a name.
    pub(super) fn of(kind: Kind, text: &str) -> Result<Self, ReadError> {
        let mut json = serde_json::Deserializer::from_str(text);
        let Root {
            mut metadata,
            status,
            mut body,
        } = json.deserialize_map(RootVisitor(kind))?;
        let text = |metadata: &Map<String, Value>, field: &str| match metadata.get(field) {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        let name = text(&metadata, "name").ok_or(ReadError::Nameless)?;
        let namespace = text(&metadata, "namespace").filter(|_| kind.namespaced());
        let key = ObjectKey::new(kind, namespace.unwrap_or_default(), name);
        // A version that does not change the object must not stand in it: nobody would be told of the next one.
        let version: Box<str> = match metadata.remove("resourceVersion") {
            Some(Value::String(version)) => version.into(),
            _ => Box::default(),
        };
        let live = kind.has_status().then(|| LiveStatus {
            uid: text(&metadata, "uid").unwrap_or_default().into(),
            resource_version: version.clone(),
            generation: metadata
                .get("generation")
                .and_then(Value::as_i64)
                .unwrap_or(0),
            status,
        });
        if !is_ours(kind) {
            metadata.remove("uid");
        }
        body.insert("metadata".to_owned(), Value::Object(metadata));
        body.insert("kind".to_owned(), kind.as_str().into());
        body.insert("apiVersion".to_owned(), kind.api_version().into());
        let value = Value::Object(body);
        Ok(Self {
            key,
            fingerprint: fingerprint(&value),
            version,
            live,
            value,
        })
    }

    /// Decodes it.
    ///
    /// # Errors
    /// When a field is not what it must be.
    pub(super) fn object(self) -> Result<Object, DecodeError> {
        let object = Object::decode(self.value)?;
        Ok(object.expect("kind and version are ours: `of` wrote them"))
    }
}

/// Name, namespace and version of an object, whatever else is in it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Identity {
    /// Empty for objects that live in the cluster.
    #[serde(default)]
    pub(super) namespace: String,
    /// The name.
    pub(super) name: String,
    /// The server's version of the object.
    #[serde(default)]
    pub(super) resource_version: String,
}

impl Identity {
    /// Reads the identity from the text of an object.
    ///
    /// # Errors
    /// When it is not the JSON of an object that has a name.
    pub(super) fn of(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Outside {
            metadata: Identity,
        }
        serde_json::from_str::<Outside>(text).map(|outside| outside.metadata)
    }

    /// The key of the object, if it is of this kind.
    pub(super) fn of_kind(&self, kind: Kind) -> ObjectKey {
        ObjectKey::new(kind, self.namespace.as_str(), self.name.as_str())
    }
}

/// Whether the Gateway API defines the kind.
pub(super) fn is_ours(kind: Kind) -> bool {
    kind.group() == sesame_api::GATEWAY_GROUP
}

struct Root {
    metadata: Map<String, Value>,
    status: Option<Box<RawValue>>,
    body: Map<String, Value>,
}

struct RootVisitor(Kind);

impl<'de> Visitor<'de> for RootVisitor {
    type Value = Root;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Root, A::Error> {
        let rule: &Rule = trim::body(self.0);
        let metadata: &'static Rule = match is_ours(self.0) {
            true => &trim::METADATA,
            false => &trim::CORE_METADATA,
        };
        let mut root = Root {
            metadata: Map::new(),
            status: None,
            body: Map::new(),
        };
        while let Some(field) = entries.next_key::<String>()? {
            match field.as_str() {
                "apiVersion" | "kind" => {
                    entries.next_value::<IgnoredAny>()?;
                }
                "metadata" => {
                    if let Value::Object(map) = entries.next_value_seed(trim::Trim(metadata))? {
                        root.metadata = map;
                    }
                }
                "status" if self.0.has_status() => {
                    root.status = entries.next_value::<Option<Box<RawValue>>>()?;
                }
                "status" => {
                    entries.next_value::<IgnoredAny>()?;
                }
                _ => trim::put(&mut root.body, field, rule, &mut entries)?,
            }
        }
        Ok(root)
    }
}

/// Of a value whose mappings are sorted, as serde_json keeps them.
fn fingerprint(value: &Value) -> u64 {
    struct Hash(Xxh3Default);
    impl io::Write for Hash {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hash = Hash(Xxh3Default::new());
    serde_json::to_writer(&mut hash, value).expect("a value is JSON, and hashing can't fail");
    hash.0.digest()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(kind: Kind, value: &Value) -> Reading {
        Reading::of(kind, &value.to_string()).unwrap()
    }

    fn route() -> Value {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1beta1",
            "kind": "HTTPRoute",
            "metadata": {
                "name": "r", "namespace": "a", "uid": "u", "generation": 3, "resourceVersion": "10",
                "managedFields": [{"manager": "m"}],
            },
            "spec": {"hostnames": ["x.example"]},
            "status": {"parents":  []},
        })
    }

    #[test]
    fn an_object_of_any_served_version_is_read() {
        let reading = read(Kind::HTTPRoute, &route());
        assert_eq!(reading.key, ObjectKey::new(Kind::HTTPRoute, "a", "r"));
        let live = reading.live.as_ref().unwrap();
        assert_eq!((&*live.uid, &*live.resource_version), ("u", "10"));
        assert_eq!(live.generation, 3);
        assert_eq!(live.status.as_ref().unwrap().get(), r#"{"parents":[]}"#);
        let Object::HTTPRoute(route) = reading.object().unwrap() else {
            panic!("not a route")
        };
        assert_eq!(
            (
                route.meta.uid.as_str(),
                route.meta.resource_version.as_str()
            ),
            ("u", "")
        );
        assert_eq!(route.spec.hostnames.len(), 1);
    }

    #[test]
    fn status_and_bookkeeping_do_not_change_the_fingerprint() {
        let before = read(Kind::HTTPRoute, &route()).fingerprint;
        let mut after = route();
        after["status"] = json!({"parents": [{"controllerName": "x"}]});
        after["metadata"]["resourceVersion"] = "11".into();
        after["metadata"]["managedFields"] = json!([]);
        after["apiVersion"] = "gateway.networking.k8s.io/v1".into();
        after["metadata"]["finalizers"] = Value::Null;
        assert_eq!(read(Kind::HTTPRoute, &after).fingerprint, before);
    }

    #[test]
    fn what_translation_reads_changes_the_fingerprint() {
        let before = read(Kind::HTTPRoute, &route()).fingerprint;
        for (pointer, value) in [
            ("/spec/hostnames/0", "y.example".into()),
            ("/metadata/generation", 4.into()),
            ("/metadata/uid", "v".into()),
            ("/metadata/labels", json!({"a": "b"})),
            ("/metadata/deletionTimestamp", "2026-01-01T00:00:00Z".into()),
        ] {
            let mut after = route();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            match after.pointer_mut(parent).unwrap() {
                Value::Array(list) => list[0] = value,
                parent => parent[field] = value,
            }
            assert_ne!(
                read(Kind::HTTPRoute, &after).fingerprint,
                before,
                "{pointer}"
            );
        }
    }

    #[test]
    fn a_services_status_and_an_endpoints_pod_are_not_read() {
        let service =
            json!({"metadata": {"name": "s", "namespace": "a"}, "spec": {"ports": [{"port": 80}]}});
        let mut with = service.clone();
        with["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}});
        with["spec"]["selector"] = json!({"app": "x"});
        let (without, with) = (read(Kind::Service, &service), read(Kind::Service, &with));
        assert_eq!(without.fingerprint, with.fingerprint);
        assert!(with.live.is_none());
    }

    #[test]
    fn the_name_is_needed() {
        for text in [r#"{"metadata":{}}"#, r#"{"metadata":{"name":3}}"#, "{}"] {
            let error = Reading::of(Kind::Service, text).unwrap_err();
            assert!(matches!(error, ReadError::Nameless), "{text}: {error}");
        }
        assert!(Reading::of(Kind::Service, "[]").is_err());
        let deep = format!(r#"{{"spec":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000));
        assert!(matches!(
            Reading::of(Kind::Service, &deep),
            Err(ReadError::Json(_))
        ));
    }

    #[test]
    fn an_identity_is_read_from_metadata_alone() {
        let text = r#"{"kind":"PartialObjectMetadata","metadata":{"name":"n","namespace":"a","resourceVersion":"7","uid":"u"}}"#;
        let identity = Identity::of(text).unwrap();
        assert_eq!(
            identity.of_kind(Kind::Secret),
            ObjectKey::new(Kind::Secret, "a", "n")
        );
        assert_eq!(identity.resource_version, "7");
    }
}
