//! `throughput`: Envoy's CPU time per request, for several forms of its configuration.
//!
//! The Envoys run at the same time, each with one worker thread and its own configuration, in front of the same
//! backend, which responds with 1 KiB. Clients send requests to one Envoy after another, for a quarter of a second
//! each, over keep-alive connections; the order rotates. The figure of a form is the CPU time per request: the mean of
//! several Envoys' medians, since two Envoys with the same configuration differ by up to 5% for as long as they run. The
//! throughput ratio of two forms is the inverse of the ratio of their times. The request rate isn't used: it would depend
//! on the clients, which share the machine.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::util::pack_any;
use prost::Message as _;
use serde_json::{Value, json};
use sesame_control::core::Core;
use sesame_envoy::{Options, Sharding, XdsAddress, names};
use sesame_testkit::many;

use crate::Settings;
use crate::floor::{Floor, Push};
use crate::machine;
use crate::objects;
use crate::probe::Probe;
use crate::report::{Figure, Samples, Unit};
use crate::rig::{self, Rig};

/// Hosts in a large table; also paths on the host with many paths.
const LARGE: usize = 5_000;
/// Hosts in the small table.
const SMALL: usize = 300;
/// Concurrent clients, with one connection each.
const CLIENTS: usize = 8;
/// Duration of one Envoy's turn.
const TURN: Duration = Duration::from_millis(250);
/// Envoys of each form.
const ENVOYS: usize = 4;
/// Measured rounds, after one warm-up round.
const ROUNDS: usize = 16;
/// Time limit for an Envoy to start serving.
const PATIENCE: Duration = Duration::from_secs(60);

/// The form of a route table.
#[derive(Clone, Copy)]
struct Form {
    sharding: Sharding,
    /// Whether the module selects the shard, instead of regular expressions.
    module: bool,
}

const WHOLE: Form = Form {
    sharding: Sharding::Never,
    module: false,
};
const BY_MODULE: Form = Form {
    sharding: Sharding::Always,
    module: true,
};
const BY_EXPRESSIONS: Form = Form {
    module: false,
    ..BY_MODULE
};

/// An Envoy and its request.
struct Contender {
    /// The name of its form.
    name: &'static str,
    address: SocketAddr,
    pid: u32,
    host: String,
    path: String,
    /// Keeps the stream to the Envoy open.
    _floor: Floor,
}

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    eprintln!("throughput: {ROUNDS} rounds");
    let rig = Rig::new(settings.envoy.as_deref())?;
    let backend = backend()?;
    let mut contenders = Vec::new();
    for _ in 0..ENVOYS {
        contenders.extend([
            hosts(&rig, "whole", LARGE, WHOLE, backend)?,
            hosts(&rig, "module", LARGE, BY_MODULE, backend)?,
            hosts(&rig, "expressions", LARGE, BY_EXPRESSIONS, backend)?,
            hosts(&rig, "small", SMALL, WHOLE, backend)?,
            minimal(&rig, backend)?,
            paths(&rig, "first", 0, backend)?,
            paths(&rig, "last", LARGE - 1, backend)?,
        ]);
    }
    for contender in &contenders {
        contender.until_it_serves()?;
    }
    let mut taken: BTreeMap<&str, BTreeMap<u32, Samples>> = BTreeMap::new();
    for round in 0..=ROUNDS {
        contenders.rotate_left(1);
        for contender in &contenders {
            let sample = contender.microseconds()?;
            if round > 0 {
                let of_form = taken.entry(contender.name).or_default();
                of_form.entry(contender.pid).or_default().push(sample);
            }
        }
    }
    rig.close();
    let mean = |name: &str| {
        let medians = taken[name].values().map(|samples| samples.quantile(0.5));
        medians.sum::<f64>() / ENVOYS as f64
    };
    let cost = |name: &str, what: String| Figure::new(what, Unit::Microseconds, mean(name));
    let ratio =
        |what: &str, name: &str, of: &str| Figure::new(what, Unit::Ratio, mean(of) / mean(name));
    Ok(vec![
        cost(
            "whole",
            format!("CPU time per request: one table of {LARGE} hosts"),
        ),
        cost(
            "module",
            "CPU time per request: the same table, sharded".to_owned(),
        ),
        ratio(
            &format!("throughput: shards / one table, {LARGE} hosts"),
            "module",
            "whole",
        )
        .at_least(0.94)
        .note("the target is 0.97"),
        ratio(
            "throughput: shards without the module / one table",
            "expressions",
            "whole",
        ),
        cost("small", format!("CPU time per request: {SMALL} hosts")),
        cost(
            "minimal",
            "CPU time per request: minimal configuration".to_owned(),
        ),
        ratio(
            &format!("throughput: Sesame's configuration of {SMALL} hosts / a minimal one"),
            "small",
            "minimal",
        )
        .at_least(0.97),
        cost(
            "first",
            format!("CPU time per request: first of a host's {LARGE} paths"),
        ),
        cost(
            "last",
            "CPU time per request: last of these paths".to_owned(),
        ),
        ratio(
            &format!("throughput: requests for the last of a host's {LARGE} paths / for the first"),
            "last",
            "first",
        )
        .at_least(0.8),
    ])
}

/// Starts a backend that responds to every request with 1 KiB. Its threads live as long as this process.
fn backend() -> Result<SocketAddr> {
    let listener = TcpListener::bind((objects::ADDRESS, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || response(stream));
        }
    });
    Ok(address)
}

fn response(mut stream: TcpStream) {
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 1024\r\n\r\n{}",
        "x".repeat(1024)
    );
    let (mut seen, mut chunk) = (Vec::new(), [0; 4096]);
    let _ = stream.set_nodelay(true);
    while let Ok(read @ 1..) = stream.read(&mut chunk) {
        seen.extend_from_slice(&chunk[..read]);
        // Requests have no body and aren't pipelined.
        if seen.ends_with(b"\r\n\r\n") {
            seen.clear();
            if stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Starts an Envoy with `count` hosts; the request is for the host in the middle.
fn hosts(
    rig: &Rig,
    name: &'static str,
    count: usize,
    form: Form,
    backend: SocketAddr,
) -> Result<Contender> {
    let port = rig::free_port()?;
    let mut values = objects::values(port, 0, |_| backend);
    values.push(many::service("backend"));
    values.push(many::slice("backend", backend));
    values.extend(
        (0..count)
            .map(|index| many::route(&many::name(index), &many::host(index), &[("backend", 1)])),
    );
    contender(
        rig,
        name,
        port,
        &values,
        form,
        (many::host(count / 2), "/".to_owned()),
    )
}

/// Starts an Envoy with many paths on one host; the request is for path number `asked`.
fn paths(rig: &Rig, name: &'static str, asked: usize, backend: SocketAddr) -> Result<Contender> {
    /// Matches per rule. With `RULES`, a route has the 128 matches that the Gateway API allows.
    const MATCHES: usize = 8;
    /// Rules per route.
    const RULES: usize = 16;
    let port = rig::free_port()?;
    let path = |index: usize| format!("/path-{index:05}");
    let mut values = objects::values(port, 0, |_| backend);
    values.push(many::service("backend"));
    values.push(many::slice("backend", backend));
    let all: Vec<usize> = (0..LARGE).collect();
    for (number, some) in all.chunks(MATCHES * RULES).enumerate() {
        let mut route = many::route(&many::name(number), "many.example.com", &[("backend", 1)]);
        let rules = some.chunks(MATCHES).map(|some| {
            let matches = some
                .iter()
                .map(|index| json!({"path": {"type": "PathPrefix", "value": path(*index)}}));
            let mut rule = route["spec"]["rules"][0].clone();
            rule["matches"] = matches.collect();
            rule
        });
        let rules: Value = rules.collect();
        route["spec"]["rules"] = rules;
        values.push(route);
    }
    let asked = ("many.example.com".to_owned(), path(asked));
    contender(rig, name, port, &values, WHOLE, asked)
}

fn contender(
    rig: &Rig,
    name: &'static str,
    port: u16,
    values: &[Value],
    form: Form,
    asked: (String, String),
) -> Result<Contender> {
    let options = Options {
        sharding: form.sharding,
        ..Options::default()
    };
    let mut core = Core::new(options);
    let inputs = objects::upserts(values).into_iter().map(objects::input);
    let mut made = core.apply(inputs.chain([objects::ready()]));
    if !form.module {
        made.resources
            .iter_mut()
            .for_each(|change| change.with_module = None);
    }
    start(rig, name, port, Push::new(&made.resources), asked)
}

fn start(
    rig: &Rig,
    name: &'static str,
    port: u16,
    push: Push,
    (host, path): (String, String),
) -> Result<Contender> {
    let envoy = format!("{name}-{port}");
    let socket = rig.socket(&envoy);
    let floor = Floor::start(&socket, push)?;
    rig.envoy(&objects::fleet(), &envoy, XdsAddress::Unix(socket))?;
    Ok(Contender {
        name,
        address: SocketAddr::from((objects::ADDRESS, port)),
        pid: rig.pid(&envoy, PATIENCE)?,
        host,
        path,
        _floor: floor,
    })
}

/// Starts an Envoy with a minimal configuration.
fn minimal(rig: &Rig, backend: SocketAddr) -> Result<Contender> {
    let port = rig::free_port()?;
    let address = |address: SocketAddr| core::Address {
        address: Some(core::address::Address::SocketAddress(core::SocketAddress {
            address: address.ip().to_string(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(
                address.port().into(),
            )),
            ..Default::default()
        })),
    };
    let cluster = Cluster {
        name: "backend".to_owned(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
            cluster::DiscoveryType::Static.into(),
        )),
        load_assignment: Some(endpoint::ClusterLoadAssignment {
            cluster_name: "backend".to_owned(),
            endpoints: vec![endpoint::LocalityLbEndpoints {
                lb_endpoints: vec![endpoint::LbEndpoint {
                    host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(
                        endpoint::Endpoint {
                            address: Some(address(backend)),
                            ..Default::default()
                        },
                    )),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let routes = route::RouteConfiguration {
        virtual_hosts: vec![route::VirtualHost {
            name: "all".to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![route::Route {
                r#match: Some(route::RouteMatch {
                    path_specifier: Some(route::route_match::PathSpecifier::Prefix("/".to_owned())),
                    ..Default::default()
                }),
                action: Some(route::route::Action::Route(route::RouteAction {
                    cluster_specifier: Some(route::route_action::ClusterSpecifier::Cluster(
                        "backend".to_owned(),
                    )),
                    ..Default::default()
                })),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let manager = hcm::HttpConnectionManager {
        stat_prefix: "http".to_owned(),
        route_specifier: Some(hcm::http_connection_manager::RouteSpecifier::RouteConfig(
            routes,
        )),
        http_filters: vec![hcm::HttpFilter {
            name: "envoy.filters.http.router".to_owned(),
            config_type: Some(hcm::http_filter::ConfigType::TypedConfig(pack_any(
                Router::default(),
            ))),
            ..Default::default()
        }],
        ..Default::default()
    };
    let listener = listener::Listener {
        name: "http".to_owned(),
        address: Some(address(SocketAddr::from((objects::ADDRESS, port)))),
        filter_chains: vec![listener::FilterChain {
            filters: vec![listener::Filter {
                name: "envoy.filters.network.http_connection_manager".to_owned(),
                config_type: Some(listener::filter::ConfigType::TypedConfig(pack_any(manager))),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut push = Push::default();
    push.add(names::CLUSTER, "backend", cluster.encode_to_vec());
    push.add(names::LISTENER, "http", listener.encode_to_vec());
    start(rig, "minimal", port, push, (many::host(0), "/".to_owned()))
}

impl Contender {
    fn until_it_serves(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let response = Probe::connect(self.address)
                .and_then(|mut probe| probe.get_path(&self.host, &self.path));
            match response {
                Ok(response) if response.status == 200 => return Ok(()),
                _ => ensure!(
                    begin.elapsed() < PATIENCE,
                    "{} is not serving: {response:?}",
                    self.name
                ),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The Envoy's CPU time per request, in microseconds.
    fn microseconds(&self) -> Result<f64> {
        let before = machine::process_milliseconds(self.pid)?;
        let end = Instant::now() + TURN;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (address, host, path) = (self.address, self.host.clone(), self.path.clone());
                thread::spawn(move || -> Result<usize> {
                    let mut probe = Probe::connect(address)?;
                    let mut count = 0;
                    while Instant::now() < end {
                        let response = probe.get_path(&host, &path)?;
                        ensure!(
                            response.status == 200,
                            "{host}{path} responded with {}",
                            response.status
                        );
                        count += 1;
                    }
                    Ok(count)
                })
            })
            .collect();
        let mut count = 0;
        for client in clients {
            count += client
                .join()
                .map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        let used = machine::process_milliseconds(self.pid)? - before;
        ensure!(count > 0, "no request got a response");
        Ok(used * 1e3 / count as f64)
    }
}
