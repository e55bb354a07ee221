//! `listeners`: HTTPS listeners that many ListenerSets add to one Gateway.
//!
//! Each set has one listener, for its own host, and several HTTPRoutes. Another set is added and removed, and the
//! certificate of one listener is replaced. A change is timed from writing its file to the first handshake or response
//! that reflects it. Clients keep connections to some of the hosts open throughout.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sesame_testkit::backend::Backend;
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Connection, Request};
use sesame_testkit::many::{self, NAMESPACE};
use tokio::runtime::{Builder, Runtime};

use crate::Settings;
use crate::local::{self, ADDRESS, Local};
use crate::report::{Figure, Samples, Unit};
use crate::rig;

/// The address of the HTTPS listeners.
const ADDRESS_OF_HTTPS: SocketAddr = SocketAddr::new(ADDRESS, 10_443);
/// HTTPRoutes for each set.
const ROUTES: usize = 16;
/// Sets per file.
const IN_A_FILE: usize = 10;
/// Number of changes of each kind.
const ROUNDS: usize = 20;
/// Number of connections that stay open.
const OPEN: usize = 16;
/// The Service for all routes.
const SERVICE: &str = "all";
/// The Secret shared by all listeners except host 0's, and host 0's Secret.
const SECRETS: [&str; 2] = ["shared", "own"];
/// The file with host 0's Secret.
const OWN: &str = "own.yaml";
/// The file with the set that is added and removed.
const NEW: &str = "new.yaml";
/// Time between two handshakes.
const PACE: Duration = Duration::from_millis(1);
/// Pause between changes.
const REST: Duration = Duration::from_millis(500);
/// Time limit for a change.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let count = settings.sets;
    eprintln!("listeners: {count} ListenerSets with {ROUTES} HTTPRoutes each");
    let backends = rig::runtime("backend")?;
    let any_port = SocketAddr::new(ADDRESS, 0);
    let backend = backends.block_on(Backend::start("backend", any_port))?;
    let identities = [(); 3].map(|()| Identity::self_signed(&["bench.test"]));
    let [shared, own, other] = identities;
    let (shared, own, other) = (shared?, own?, other?);

    let listener = json!({"name": "http", "protocol": "HTTP", "port": 10_080});
    let fixed = [
        local::gateway(&[listener]),
        many::service(SERVICE),
        many::slice(SERVICE, backend.address()),
        secret(SECRETS[0], &shared),
    ];
    let of_own = [secret(SECRETS[1], &own)];
    let sets: Vec<Value> = (0..count).flat_map(set).collect();
    // Each set comes with its routes.
    let files = sets.chunks((1 + ROUTES) * IN_A_FILE).enumerate();
    let files = files.map(|(number, some)| (format!("sets-{number}.yaml"), some));
    let start = Instant::now();
    let local = Local::start(
        settings,
        files.chain([
            ("fixed.yaml".to_owned(), &fixed[..]),
            (OWN.to_owned(), &of_own[..]),
        ]),
    )?;
    let started = start.elapsed();
    let mut clients = Clients::new()?;
    clients.until(|clients| clients.ask(count - 1))?;
    thread::sleep(REST);
    let (sesame, envoy) = (local.memory()?, local.memory_of_envoy()?);

    let open = (0..count).step_by((count / OPEN).max(1));
    let mut open = clients.open(open)?;
    let mut added = Samples::default();
    let new = set(count);
    for _ in 0..ROUNDS {
        thread::sleep(REST);
        let start = Instant::now();
        local.write(NEW, &new)?;
        clients.until(|clients| clients.ask(count))?;
        added.push(start.elapsed().as_secs_f64() * 1e3);
        thread::sleep(REST);
        local.remove(NEW)?;
        clients.until(|clients| clients.ask(count).map(|served| !served))?;
    }
    let mut rotated = Samples::default();
    for round in 0..ROUNDS {
        let identity = if round % 2 == 0 { &other } else { &own };
        thread::sleep(REST);
        let start = Instant::now();
        local.write(OWN, &[secret(SECRETS[1], identity)])?;
        clients.until(|clients| clients.shows(0, identity))?;
        rotated.push(start.elapsed().as_secs_f64() * 1e3);
    }
    thread::sleep(REST);
    let closed = clients.closed(&mut open);
    local.end()?;

    let name = format!("{count} ListenerSets, {} HTTPRoutes", count * ROUTES);
    Ok(vec![
        Figure::new(
            format!("{name}: memory of `sesame local`"),
            Unit::Mebibytes,
            sesame.now,
        )
        .at_most(250.0),
        Figure::new(
            format!("{name}: memory of a fresh Envoy"),
            Unit::Mebibytes,
            envoy.now,
        ),
        Figure::new(
            format!("{name}: startup until everything is served"),
            Unit::Milliseconds,
            started.as_secs_f64() * 1e3,
        ),
        Figure::of(
            format!("{name}: new HTTPS host to first response"),
            Unit::Milliseconds,
            &added,
        )
        .at_most(20.0),
        Figure::of(
            format!("{name}: replaced certificate to first handshake"),
            Unit::Milliseconds,
            &rotated,
        )
        .at_most(10.0),
        Figure::new(
            format!("{name}: closed connections"),
            Unit::Count,
            closed as f64,
        )
        .exactly(0.0)
        .note(format!("of {}, over {} changes", open.len(), 3 * ROUNDS)),
    ])
}

/// The set with the listener for host `index`, and its routes.
fn set(index: usize) -> Vec<Value> {
    let name = many::name(index);
    let secret = SECRETS[usize::from(index == 0)];
    let set = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "ListenerSet",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {
            "parentRef": {"name": many::GATEWAY},
            "listeners": [{
                "name": "https",
                "protocol": "HTTPS",
                "port": ADDRESS_OF_HTTPS.port(),
                "hostname": many::host(index),
                "tls": {"certificateRefs": [{"name": secret}]},
            }],
        },
    });
    let routes = (0..ROUTES).map(|number| {
        let mut route = many::route(
            &format!("{name}-{number}"),
            &many::host(index),
            &[(SERVICE, 1)],
        );
        route["spec"]["parentRefs"] = json!([{"kind": "ListenerSet", "name": name}]);
        route["spec"]["rules"][0]["matches"][0]["path"]["value"] = format!("/{number}").into();
        route
    });
    std::iter::once(set).chain(routes).collect()
}

fn secret(name: &str, identity: &Identity) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": identity.chain, "tls.key": identity.private_key},
    })
}

/// HTTPS clients.
struct Clients {
    runtime: Runtime,
}

impl Clients {
    fn new() -> Result<Self> {
        Ok(Self {
            runtime: Builder::new_current_thread().enable_all().build()?,
        })
    }

    fn connect(&self, index: usize) -> Result<Connection> {
        let connect = Connect::tls(&many::host(index));
        self.runtime.block_on(connect.open(ADDRESS_OF_HTTPS))
    }

    /// Whether a host has a certificate and its last route responds.
    fn ask(&mut self, index: usize) -> Result<bool> {
        let Ok(mut connection) = self.connect(index) else {
            return Ok(false);
        };
        self.responds(&mut connection, index)
    }

    fn responds(&self, connection: &mut Connection, index: usize) -> Result<bool> {
        let request = Request::get(&many::host(index), &format!("/{}", ROUTES - 1));
        let response = self.runtime.block_on(connection.send(&request))?;
        Ok(response.status == 200)
    }

    /// Whether a host presents this certificate.
    fn shows(&mut self, index: usize, identity: &Identity) -> Result<bool> {
        use base64::Engine as _;
        let connection = self.connect(index)?;
        let shown = connection.certificate().context("no certificate")?;
        Ok(base64::engine::general_purpose::STANDARD.encode(shown) == identity.leaf())
    }

    /// Repeats a check until it returns true.
    fn until(&mut self, check: impl Fn(&mut Self) -> Result<bool>) -> Result<()> {
        let since = Instant::now();
        while !check(self)? {
            ensure!(since.elapsed() < TIMEOUT, "the change has no effect");
            thread::sleep(PACE);
        }
        Ok(())
    }

    /// Opens connections to these hosts and uses each once.
    fn open(&self, hosts: impl Iterator<Item = usize>) -> Result<Vec<(usize, Connection)>> {
        let mut out = Vec::new();
        for index in hosts {
            let mut connection = self.connect(index)?;
            let responds = self.responds(&mut connection, index)?;
            ensure!(responds, "{} has no route", many::host(index));
            out.push((index, connection));
        }
        Ok(out)
    }

    /// How many of these connections are closed.
    fn closed(&self, connections: &mut [(usize, Connection)]) -> usize {
        let mut closed = 0;
        for (index, connection) in connections {
            let open = self.responds(connection, *index).unwrap_or(false);
            closed += usize::from(!open);
        }
        closed
    }
}
