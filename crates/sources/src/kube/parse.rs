//! Parses the JSON text of one object in a single pass.
//!
//! In: text. Out: the object's key, its status as text, a fingerprint of everything that translation reads, and the
//! object itself, decoded only on demand.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed as _, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sesame_api::{DecodeError, Kind, LiveStatus, Object, ObjectKey};

use super::trim;
use crate::fingerprint;

/// A parsed object, not yet decoded.
#[derive(Debug)]
pub(super) struct ParsedObject {
    pub(super) key: ObjectKey,
    /// Hash of everything that [`ParsedObject::decode`] decodes. Changes to the status or unused fields don't affect
    /// it.
    pub(super) fingerprint: u64,
    pub(super) resource_version: Box<str>,
    /// The status, for kinds whose status Sesame writes.
    pub(super) status: Option<LiveStatus>,
    value: Value,
}

/// Why text is not an object.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParseError {
    /// Not a JSON mapping, or nested too deeply.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("metadata.name is missing")]
    NoName,
}

impl ParsedObject {
    /// Parses the text of an object of this kind, in any version.
    pub(super) fn parse(kind: Kind, text: &str) -> Result<Self, ParseError> {
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
        let name = text(&metadata, "name").ok_or(ParseError::NoName)?;
        let namespace = text(&metadata, "namespace").filter(|_| kind.namespaced());
        let key = ObjectKey::new(kind, namespace.unwrap_or_default(), name);
        // Excluded from the fingerprint: a new resourceVersion alone is not a change.
        let resource_version: Box<str> = match metadata.remove("resourceVersion") {
            Some(Value::String(version)) => version.into(),
            _ => Box::default(),
        };
        let status = kind.has_status().then(|| LiveStatus {
            uid: text(&metadata, "uid").unwrap_or_default().into(),
            resource_version: resource_version.clone(),
            generation: metadata
                .get("generation")
                .and_then(Value::as_i64)
                .unwrap_or(0),
            status,
        });
        body.insert("metadata".to_owned(), Value::Object(metadata));
        body.insert("kind".to_owned(), kind.as_str().into());
        body.insert("apiVersion".to_owned(), kind.api_version().into());
        let value = Value::Object(body);
        Ok(Self {
            key,
            fingerprint: fingerprint::of(&value),
            resource_version,
            status,
            value,
        })
    }

    /// Decodes the object. The error message omits the key.
    pub(super) fn decode(self) -> Result<Object, DecodeError> {
        match Object::decode_admitted(self.value) {
            Ok(object) => Ok(object.expect("`parse` sets a supported kind and version")),
            Err(error) => Err(DecodeError { key: None, ..error }),
        }
    }
}

/// The metadata common to all kinds.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Identity {
    /// Empty for cluster-scoped objects.
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) resource_version: String,
}

impl Identity {
    /// Reads the metadata from an object's text.
    pub(super) fn of(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Outer {
            metadata: Identity,
        }
        serde_json::from_str::<Outer>(text).map(|outer| outer.metadata)
    }

    /// The key of the object, assuming this kind.
    pub(super) fn key(&self, kind: Kind) -> ObjectKey {
        ObjectKey::new(kind, self.namespace.as_str(), self.name.as_str())
    }
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
        let kept = self.0.info().kept;
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
                    if let Value::Object(map) =
                        entries.next_value_seed(trim::Trim(kept.metadata))?
                    {
                        root.metadata = map;
                    }
                }
                "status" if self.0.has_status() => {
                    root.status = entries.next_value::<Option<Box<RawValue>>>()?;
                    if let (Some(fields), Some(status)) = (kept.status, &root.status) {
                        let mut json = serde_json::Deserializer::from_str(status.get());
                        let status = trim::Trim(fields).deserialize(&mut json);
                        root.body.insert(field, status.map_err(A::Error::custom)?);
                    }
                }
                "status" => {
                    entries.next_value::<IgnoredAny>()?;
                }
                _ => trim::put(&mut root.body, field, kept.body, &mut entries)?,
            }
        }
        Ok(root)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(kind: Kind, value: &Value) -> ParsedObject {
        ParsedObject::parse(kind, &value.to_string()).unwrap()
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
        let parsed = parsed(Kind::HTTPRoute, &route());
        assert_eq!(parsed.key, ObjectKey::new(Kind::HTTPRoute, "a", "r"));
        let live = parsed.status.as_ref().unwrap();
        assert_eq!((&*live.uid, &*live.resource_version), ("u", "10"));
        assert_eq!(live.generation, 3);
        assert_eq!(live.status.as_ref().unwrap().get(), r#"{"parents":[]}"#);
        let Object::HTTPRoute(route) = parsed.decode().unwrap() else {
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
    fn objects_beyond_the_limits_of_the_supported_release_are_decoded() {
        let mut value = route();
        let rule = json!({"backendRefs": [{"name": "s", "port": 80}]});
        // The supported Gateway API release allows 16 rules.
        value["spec"]["rules"] = Value::Array(vec![rule; 16 + 17]);
        assert!(Object::decode(value.clone()).is_err());
        let object = parsed(Kind::HTTPRoute, &value).decode().unwrap();
        let Object::HTTPRoute(route) = object else {
            panic!("not a route")
        };
        assert_eq!(route.spec.rules.len(), 33);
    }

    #[test]
    fn the_status_and_unused_metadata_dont_change_the_fingerprint() {
        let before = parsed(Kind::HTTPRoute, &route()).fingerprint;
        let mut after = route();
        after["status"] = json!({"parents": [{"controllerName": "x"}]});
        after["metadata"]["resourceVersion"] = "11".into();
        after["metadata"]["managedFields"] = json!([]);
        after["apiVersion"] = "gateway.networking.k8s.io/v1".into();
        after["metadata"]["finalizers"] = Value::Null;
        assert_eq!(parsed(Kind::HTTPRoute, &after).fingerprint, before);
    }

    #[test]
    fn used_fields_change_the_fingerprint() {
        let before = parsed(Kind::HTTPRoute, &route()).fingerprint;
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
                parsed(Kind::HTTPRoute, &after).fingerprint,
                before,
                "{pointer}"
            );
        }
    }

    #[test]
    fn of_the_status_of_an_early_listener_set_only_ports_are_read() {
        let set = |listener: Value, conditions: Value| {
            json!({
                "metadata": {"name": "s", "namespace": "a"},
                "spec": {"parentRef": {"name": "web"}, "listeners": [{"name": "l", "protocol": "HTTP"}]},
                "status": {"listeners": [listener], "conditions": conditions},
            })
        };
        let condition = json!([{"type": "Accepted", "status": "True"}]);
        let [before, same, other] = [
            set(json!({"name": "l", "port": 20_000}), json!([])),
            set(
                json!({"name": "l", "port": 20_000, "attachedRoutes": 1}),
                condition,
            ),
            set(json!({"name": "l", "port": 20_001}), json!([])),
        ]
        .map(|value| parsed(Kind::XListenerSet, &value));
        assert_eq!(before.fingerprint, same.fingerprint);
        assert_ne!(before.fingerprint, other.fingerprint);
        // The whole status is available to its writer.
        let live = same.status.as_ref().unwrap().status.as_ref().unwrap();
        assert!(live.get().contains("attachedRoutes"));
        let object = same.decode().unwrap();
        let status = &object.as_listener_set().unwrap().status;
        assert_eq!(status.listeners[0].port, Some(20_000));
        assert!(status.conditions.is_empty());
    }

    #[test]
    fn the_status_of_a_service_is_not_read() {
        let service =
            json!({"metadata": {"name": "s", "namespace": "a"}, "spec": {"ports": [{"port": 80}]}});
        let mut with = service.clone();
        with["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}});
        with["spec"]["sessionAffinity"] = "ClientIP".into();
        let (without, with) = (
            parsed(Kind::Service, &service),
            parsed(Kind::Service, &with),
        );
        assert_eq!(without.fingerprint, with.fingerprint);
        assert!(with.status.is_none());
    }

    #[test]
    fn metadata_name_is_required() {
        for text in [r#"{"metadata":{}}"#, r#"{"metadata":{"name":3}}"#, "{}"] {
            let error = ParsedObject::parse(Kind::Service, text).unwrap_err();
            assert!(matches!(error, ParseError::NoName), "{text}: {error}");
        }
        assert!(ParsedObject::parse(Kind::Service, "[]").is_err());
        let deep = format!(r#"{{"spec":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000));
        assert!(matches!(
            ParsedObject::parse(Kind::Service, &deep),
            Err(ParseError::Json(_))
        ));
    }

    #[test]
    fn an_identity_is_read_from_metadata_alone() {
        let text = r#"{"kind":"PartialObjectMetadata","metadata":{"name":"n","namespace":"a","resourceVersion":"7","uid":"u"}}"#;
        let identity = Identity::of(text).unwrap();
        assert_eq!(
            identity.key(Kind::Secret),
            ObjectKey::new(Kind::Secret, "a", "n")
        );
        assert_eq!(identity.resource_version, "7");
    }
}
