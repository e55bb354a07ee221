//! Random sets of objects and random edits to them, as proptest strategies.
//!
//! All values decode. Names come from small pools, so that objects collide, refer to each other, and have dangling
//! references. Every field that the translator reads is generated in every form that an API server would
//! accept, valid or not.

use std::collections::BTreeMap;
use std::fmt;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use sesame_api::{Object, ObjectKey};

mod backend;
mod backend_tls;
mod backend_traffic;
mod bounds;
mod configuration;
mod filter;
mod gateway;
mod grant;
mod grpc_route;
mod http_proxy;
mod ingress;
mod json;
mod l4_route;
mod pool;
mod route;
mod secret;
mod telemetry;
#[cfg(test)]
mod tests;
mod xbackend;

pub use bounds::{GATEWAYS_AT_BOUNDS, INSTANCE};
pub use pool::{GATEWAYS, POD_SERVICES, PORTS, XBACKENDS};

use json::Json;

/// Objects by key, each as it would appear in a file.
#[derive(Clone, Default, PartialEq)]
pub struct Set(BTreeMap<ObjectKey, Value>);

/// A change to a set.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Adds the object, or replaces the one with the same name.
    Put(Value),
    /// Removes an object.
    Delete(Index),
    /// Changes only the resource version and the status of an object.
    Touch(Index),
    /// Copies one field of this object's `spec` to the object with the same name, if any.
    Graft {
        /// The source of the field.
        donor: Value,
        /// Selects the field.
        field: Index,
    },
}

/// The effect of an edit on one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The object was added or changed.
    Upsert(Box<Object>),
    /// The object was removed.
    Remove(ObjectKey),
}

/// Sets of usually about fifty objects; 2% of the sets also have a host with many routes of one kind.
pub fn sets() -> BoxedStrategy<Set> {
    // Usually include the kinds that others refer to.
    let parts: Vec<BoxedStrategy<Vec<Value>>> = vec![
        prop::collection::vec(gateway::class(), 1..5).boxed(),
        prop::collection::vec(gateway::namespace(), 0..4).boxed(),
        gateway::gateways(),
        prop::collection::vec(gateway::listener_set(), 0..4).boxed(),
        prop::collection::vec(grant::grant(), 0..5).boxed(),
        backend::services(),
        prop::collection::vec(xbackend::service(), 0..2).boxed(),
        prop::collection::vec(backend::slice(), 4..12).boxed(),
        secret::secrets(),
        prop::collection::vec(backend_tls::config_map(), 0..3).boxed(),
        prop::collection::vec(backend_tls::trust_bundle(), 0..2).boxed(),
        prop::collection::vec(backend_tls::policy(), 0..4).boxed(),
        prop::collection::vec(xbackend::xbackend(), 0..4).boxed(),
        prop::collection::vec(backend_traffic::policy(), 0..3).boxed(),
        prop::collection::vec(telemetry::policy(), 0..3).boxed(),
        prop::collection::vec(route::http_route(), 1..10).boxed(),
        prop::collection::vec(grpc_route::grpc_route(), 0..4).boxed(),
        prop::collection::vec(l4_route::tls_route(), 0..3).boxed(),
        prop::collection::vec(l4_route::tcp_route(), 0..3).boxed(),
        prop::collection::vec(l4_route::udp_route(), 0..3).boxed(),
        prop::collection::vec(http_proxy::http_proxy(), 0..6).boxed(),
        prop::collection::vec(http_proxy::delegation(), 0..2).boxed(),
        prop::collection::vec(http_proxy::extension_service(), 0..2).boxed(),
        prop::collection::vec(configuration::configuration(), 0..3).boxed(),
        prop::collection::vec(configuration::instance(), 1).boxed(),
        prop::collection::vec(ingress::ingress(), 0..5).boxed(),
        prop::collection::vec(ingress::class(), 0..3).boxed(),
        prop::option::weighted(0.02, prop::sample::select(bounds::crowds()))
            .prop_map(Vec::from_iter)
            .boxed(),
    ];
    parts
        .prop_map(|parts| Set::new(parts.into_iter().flatten()))
        .boxed()
}

/// The Gateway [`GATEWAYS`]`[0]` with its class and an HTTP listener on port 80, and Services for its routes.
pub fn gateway() -> Vec<Value> {
    let (namespace, name) = GATEWAYS[0];
    let service = |name: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"ports": [{"port": 80}]},
        })
    };
    vec![
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": "sesame"},
            "spec": {"controllerName": "projectsesame.io/gateway-controller"},
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "gatewayClassName": "sesame",
                "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
            },
        }),
        service("s1"),
        service("s2"),
    ]
}

/// Objects of every kind at the bounds of their CRDs, in a namespace of their own: the longest values and lists. Also, for
/// each kind of match, a host of [`gateway`] with 63, 64, 65 and 128 routes of that kind.
pub fn bounds() -> Set {
    Set::new(gateway().into_iter().chain(bounds::all()))
}

/// Objects of any kind.
pub fn objects() -> BoxedStrategy<Value> {
    prop_oneof![
        1 => gateway::class(),
        1 => gateway::namespace(),
        3 => gateway::gateway(),
        2 => gateway::listener_set(),
        2 => grant::grant(),
        3 => backend::service(),
        3 => backend::slice(),
        2 => secret::secret(),
        1 => backend_tls::config_map(),
        1 => backend_tls::trust_bundle(),
        2 => backend_tls::policy(),
        2 => xbackend::xbackend(),
        1 => xbackend::service(),
        2 => backend_traffic::policy(),
        2 => telemetry::policy(),
        6 => route::http_route(),
        2 => grpc_route::grpc_route(),
        1 => l4_route::tls_route(),
        1 => l4_route::tcp_route(),
        1 => l4_route::udp_route(),
        5 => http_proxy::http_proxy(),
        1 => http_proxy::delegation(),
        1 => http_proxy::extension_service(),
        1 => configuration::configuration(),
        4 => ingress::ingress(),
        1 => ingress::class(),
    ]
    .boxed()
}

/// Regular expressions: common, near the limits of some regex engine, and random.
pub fn regexes() -> BoxedStrategy<String> {
    route::regex()
}

/// Edits to a set.
pub fn edits() -> BoxedStrategy<Edit> {
    prop_oneof![
        4 => objects().prop_map(Edit::Put),
        3 => any::<Index>().prop_map(Edit::Delete),
        1 => any::<Index>().prop_map(Edit::Touch),
        3 => (objects(), any::<Index>()).prop_map(|(donor, field)| Edit::Graft { donor, field }),
    ]
    .boxed()
}

impl Set {
    /// Creates a set from objects. Later ones replace earlier ones with the same name.
    ///
    /// # Panics
    /// If an object doesn't decode.
    pub fn new(objects: impl IntoIterator<Item = Value>) -> Self {
        let named = |object: Value| (decode(&object).key(), object);
        Self(objects.into_iter().map(named).collect())
    }

    /// The objects, sorted by key.
    ///
    /// # Panics
    /// If an object doesn't decode, which is a bug in the generator.
    pub fn decoded(&self) -> impl DoubleEndedIterator<Item = Object> + '_ {
        self.0.values().map(decode)
    }

    /// The keys and objects.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&ObjectKey, &Value)> {
        self.0.iter()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies an edit. An edit to a missing object does nothing.
    ///
    /// # Panics
    /// If an object doesn't decode, which is a bug in the generator.
    pub fn apply(&mut self, edit: &Edit) -> Option<Change> {
        match edit {
            Edit::Put(object) => Some(self.put(object.clone())),
            Edit::Delete(which) => {
                let key = self.pick(which)?;
                self.0.remove(&key);
                Some(Change::Remove(key))
            }
            Edit::Touch(which) => {
                let key = self.pick(which)?;
                let mut object = self.0.get(&key)?.clone();
                touch(&mut object);
                Some(self.put(object))
            }
            Edit::Graft { donor, field } => {
                let mut object = self.0.get(&decode(donor).key())?.clone();
                graft(&mut object, donor, field)?;
                Some(self.put(object))
            }
        }
    }

    /// The changes from another set to this one.
    ///
    /// # Panics
    /// If an object doesn't decode, which is a bug in the generator.
    pub fn changes_from(&self, before: &Self) -> Vec<Change> {
        let gone = before.0.keys().filter(|key| !self.0.contains_key(key));
        let changed = self
            .0
            .iter()
            .filter(|(key, object)| before.0.get(key) != Some(object));
        gone.map(|key| Change::Remove(key.clone()))
            .chain(changed.map(|(_, object)| Change::Upsert(Box::new(decode(object)))))
            .collect()
    }

    fn pick(&self, which: &Index) -> Option<ObjectKey> {
        (!self.0.is_empty())
            .then(|| which.index(self.0.len()))
            .and_then(|at| self.0.keys().nth(at).cloned())
    }

    fn put(&mut self, object: Value) -> Change {
        let decoded = decode(&object);
        self.0.insert(decoded.key(), object);
        Change::Upsert(Box::new(decoded))
    }
}

/// Writes a file for `sesame translate`: each YAML document is one line of JSON.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .values()
            .try_for_each(|object| writeln!(f, "---\n{object}"))
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects:\n{self}", self.len())
    }
}

/// Decodes an object.
///
/// # Panics
/// If it doesn't decode, which is a bug in the generator.
pub fn decode(object: &Value) -> Object {
    match Object::decode(object.clone()) {
        Ok(Some(object)) => object,
        Ok(None) => panic!("unsupported kind: {object}"),
        Err(error) => panic!("does not decode: {error}\n{object}"),
    }
}

/// Changes only the resource version and the status.
fn touch(object: &mut Value) {
    let version = &object["metadata"]["resourceVersion"];
    let next = version
        .as_str()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0u64)
        + 1;
    object["metadata"]["resourceVersion"] = next.to_string().into();
    match object["kind"].as_str() {
        Some("Service") => {
            object["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        }
        Some("HTTPRoute" | "GRPCRoute") => object["status"] = json!({"parents": []}),
        _ => {}
    }
}

/// Copies one of several independent `spec` fields from `donor`.
fn graft(object: &mut Value, donor: &Value, which: &Index) -> Option<()> {
    let fields: &[&str] = match object["kind"].as_str()? {
        "HTTPRoute" | "GRPCRoute" => &["parentRefs", "hostnames", "rules"],
        "Gateway" => &["gatewayClassName", "listeners", "addresses", "tls"],
        "ReferenceGrant" => &["from", "to"],
        "BackendTLSPolicy" => &["targetRefs", "validation"],
        "XBackend" => &["port"],
        "XBackendTrafficPolicy" => &["targetRefs", "retryConstraint", "sessionPersistence"],
        "XTelemetryPolicy" => &["targetRefs", "tracing"],
        "HTTPProxy" => &["virtualhost", "routes", "includes", "tcpproxy"],
        "Ingress" => &["ingressClassName", "defaultBackend", "tls"],
        _ => return None,
    };
    let field = fields[which.index(fields.len())];
    let spec = object["spec"].as_object_mut()?;
    match donor["spec"].get(field) {
        Some(value) => spec.insert(field.to_owned(), value.clone()),
        None => spec.remove(field),
    };
    Some(())
}

/// Metadata with one of these names and one of these namespaces.
fn metadata(names: &[&'static str], namespaces: &[&'static str]) -> Json {
    json::record(vec![
        ("name", json::must(json::any_of(names))),
        ("namespace", json::must(json::any_of(namespaces))),
        (
            "creationTimestamp",
            json::may(0.5, json::any_of(pool::TIMES)),
        ),
        ("generation", json::may(0.5, json::number(1..9u32))),
    ])
}
