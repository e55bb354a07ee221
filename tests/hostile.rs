//! An object of at most 1.5 MB takes little memory, however its parts multiply. Counts allocated bytes, without the
//! allocator's overhead: of the object itself, its rows, its resources and the messages with them.
//!
//! `HOSTILE=text` measures only the shapes whose name contains the text, and 100 copies of some: `HOSTILE=` measures
//! everything, in minutes.

#![allow(clippy::print_stdout, reason = "the figures are in docs/security.md")]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

/// A shape with this name, if it is measured: the name, the objects before, the hostile object.
macro_rules! shape {
    ($name:expr, $before:expr, $object:expr $(,)?) => {
        crate::is_measured($name).then(|| crate::Shape::new($name, $before, $object))
    };
}

#[path = "hostile/gateways.rs"]
mod gateways;
#[path = "hostile/ingresses.rs"]
mod ingresses;
#[path = "hostile/others.rs"]
mod others;
#[path = "hostile/proxies.rs"]
mod proxies;
#[path = "hostile/routes.rs"]
mod routes;

use std::env;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sesame_api::{NamespacedName, Object};
use sesame_control::core::{Core, Input};
use sesame_envoy::Options;
use sesame_model::{FleetAddress, FleetId, FleetState};
use sesame_testkit::many::{self, NAMESPACE};
use sesame_tests::allocator::{self, Counting};
use sesame_translate::settings::{Mode, Settings};

/// The maximum size of an object: etcd's limit.
const OBJECT: usize = 1_500_000;
/// The maximum memory for an object, at any time.
const MEMORY: usize = 64 * 1024 * 1024;
/// A number of objects of one tenant, and the maximum memory for all of them together: below the default limit of Sesame's
/// containers, 768 MiB.
const MANY: usize = 100;
const MEMORY_OF_MANY: usize = 300 * 1024 * 1024;

/// The environment variable that selects shapes.
const SELECTION: &str = "HOSTILE";

/// The name of each hostile object, and a part of its hosts. Copies have a number after it.
const NAME: &str = "hostile";

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An object whose parts multiply, as text, and the objects that exist before.
struct Shape {
    name: &'static str,
    before: Vec<Value>,
    object: String,
    /// Whether many copies are measured too.
    copied: bool,
}

impl Shape {
    fn new(name: &'static str, before: Vec<Value>, object: Value) -> Self {
        Self {
            name,
            before,
            object: object.to_string(),
            copied: false,
        }
    }

    /// Measures many copies too.
    fn copied(self) -> Self {
        Self {
            copied: true,
            ..self
        }
    }

    /// The object as text; with a number, a copy with another name and other hosts.
    fn text(&self, copy: Option<usize>) -> String {
        match copy {
            Some(copy) => self.object.replace(NAME, &format!("{NAME}-{copy}")),
            None => self.object.clone(),
        }
    }
}

/// Whether the name of a shape contains the text in [`SELECTION`].
fn is_measured(name: &str) -> bool {
    env::var(SELECTION).map_or(true, |text| name.contains(&text))
}

/// An object in the namespace of all objects.
fn object(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": spec,
    })
}

/// A ConfigMap or Secret with these entries.
fn data(kind: &str, name: &str, entries: Value) -> Value {
    let field = match kind {
        "Secret" => "stringData",
        _ => "data",
    };
    let mut object = object("v1", kind, name, Value::Null);
    if entries.get("tls.crt").is_some() {
        object["type"] = "kubernetes.io/tls".into();
    }
    object[field] = entries;
    object
}

fn list(count: usize, of: impl Fn(usize) -> Value) -> Value {
    (0..count).map(of).collect()
}

/// The hosts `h0.hostile.example.com` and so on.
fn hostnames(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("h{number}.{NAME}.example.com"))
        .collect()
}

/// A Service with ports from 80 on.
fn service(name: &str, ports: usize) -> Value {
    let port = |number| json!({"name": format!("p{number}"), "port": 80 + number});
    object("v1", "Service", name, json!({"ports": list(ports, port)}))
}

/// An EndpointSlice of a Service, for its first ports.
fn slice(service: &str, ports: usize, endpoints: usize) -> Value {
    let address = |number: usize| format!("10.0.{}.{}", number / 250, number % 250 + 1);
    let port = |number| json!({"name": format!("p{number}"), "port": 8_000 + number});
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": NAMESPACE,
            "name": NAME,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": list(ports, port),
        "endpoints": list(endpoints, |number| json!({"addresses": [address(number)]})),
    })
}

/// Memory and time for some objects.
#[derive(Default)]
struct Cost {
    size: usize,
    peak: usize,
    held: usize,
    sent: usize,
    took: Duration,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [size, peak, held, sent] =
            [self.size, self.peak, self.held, self.sent].map(|bytes| bytes / 1_000);
        let took = self.took.as_millis();
        write!(
            f,
            "{size} kB; at most {peak} kB, then {held} kB, {sent} kB sent, {took} ms"
        )
    }
}

fn decode(text: &str) -> Object {
    let value: Value = serde_json::from_str(text).unwrap();
    match Object::decode(value) {
        Ok(Some(object)) => object,
        other => panic!("{other:?}"),
    }
}

/// The states of all fleets.
fn fleets() -> impl Iterator<Item = Input> {
    let copies = (0..MANY).map(|copy| format!("{NAME}-{copy}"));
    let names = [many::GATEWAY, "wide", "open", NAME].map(str::to_owned);
    let gateways = names.into_iter().chain(copies);
    let of_gateways = gateways.map(|name| FleetId::of_gateway(NAMESPACE, name));
    [FleetId::Default]
        .into_iter()
        .chain(of_gateways)
        .map(|fleet| {
            let state = FleetState {
                addresses: vec![FleetAddress::Ip(Ipv4Addr::LOCALHOST.into())],
                ready: true,
                ..FleetState::default()
            };
            Input::Fleet(fleet, Some(state))
        })
}

/// Applies objects to a core that has those of the shape before.
fn cost(shape: &Shape, texts: &[String]) -> Cost {
    let name = NamespacedName {
        namespace: NAMESPACE.into(),
        name: "instance".into(),
    };
    let mut core = Core::local(
        Settings {
            configuration: Some(name),
            ..Settings::new(Mode::Local)
        },
        Options::default(),
    );
    let base = [many::gateway(8080), service("s", 1)];
    let before = base.iter().chain(&shape.before);
    let before = before.map(|object| Input::Upsert(many::object(object)));
    core.apply(fleets().chain(before));
    let before = allocator::in_use();
    allocator::reset_peak();
    let objects: Vec<Input> = texts
        .iter()
        .map(|text| Input::Upsert(decode(text)))
        .collect();
    let started = Instant::now();
    let step = core.apply(objects);
    let messages: Vec<_> = step
        .resources
        .iter()
        .filter_map(|change| change.message())
        .collect();
    let took = started.elapsed();
    let sent = messages.iter().map(|message| message.len()).sum();
    drop((step, messages));
    Cost {
        size: texts.iter().map(String::len).sum(),
        peak: allocator::peak() - before,
        held: allocator::in_use().saturating_sub(before),
        sent,
        took,
    }
}

// One test, since the allocator counts for the whole process.
#[test]
fn an_object_takes_little_memory() {
    let shapes = [
        routes::shapes(),
        proxies::shapes(),
        ingresses::shapes(),
        gateways::shapes(),
        others::shapes(),
    ];
    let everything = env::var_os(SELECTION).is_some();
    let mut exceeding = Vec::new();
    for shape in shapes.into_iter().flatten().flatten() {
        let text = shape.text(None);
        assert!(text.len() <= OBJECT, "{}: {}", shape.name, text.len());
        let one = cost(&shape, &[text]);
        println!("{}: {one}", shape.name);
        if one.peak > MEMORY {
            exceeding.push(shape.name.to_owned());
        }
        if everything && shape.copied {
            let texts: Vec<String> = (0..MANY).map(|copy| shape.text(Some(copy))).collect();
            let all = cost(&shape, &texts);
            println!("{MANY} times {}: {all}", shape.name);
            if all.peak > MEMORY_OF_MANY {
                exceeding.push(format!("{MANY} times {}", shape.name));
            }
        }
    }
    assert_eq!(exceeding, [""; 0]);
}
