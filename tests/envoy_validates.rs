//! Envoy accepts rarely used features of the model, in a configuration without xDS.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sesame_envoy::{ShardLookup, to_json};
use sesame_fleet::local::binary;
use sesame_model::{
    Action, BackendName, Balancing, Chain, ChainTarget, Cluster, ClusterKey, ClusterPolicy,
    ConnectionLimits, ConnectionSettings, CookieChange, CrossScheme, DirectResponse, Discovery,
    Endpoint, Endpoints, FleetId, Forward, ForwardOptions, GlobalRate, HashOf, HashPolicy,
    HeaderChanges, HeaderLists, HeaderMatch, HealthCheck, HttpCheck, InternalRedirects, Listener,
    ListenerKey, PathMatch, PathRewrite, Port, Protocol, QueryMatch, Rate, RateEntry, RateLimit,
    RateService, Retry, Route, RoutePolicy, RouteTable, RouteTableKey, SlowStart, SourceFilter,
    SourceRange, Target, TextMatch, TextPosition, ValueMatch, VirtualHost, VirtualHostKey,
    WeightedTarget,
};

fn settings(balancing: Balancing, slow_start: bool) -> ConnectionSettings {
    ConnectionSettings {
        balancing: Some(balancing),
        health: Some(Arc::new(HealthCheck {
            http: Some(HttpCheck {
                path: "/healthy".into(),
                host: "".into(),
                statuses: vec![(200, 205), (401, 402)],
            }),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            unhealthy: 3,
            healthy: 2,
            port: Some(8081),
        })),
        slow_start: slow_start.then_some(SlowStart {
            window: Duration::from_secs(30),
            aggression: 1_500,
            min_percent: 10,
        }),
        idle_timeout: Some(Duration::from_secs(60)),
        limits: Some(ConnectionLimits {
            connections: Some(100),
            pending: Some(10),
            requests: Some(200),
            retries: Some(3),
            connections_per_endpoint: Some(5),
        }),
    }
}

fn key(settings: ConnectionSettings) -> ClusterKey {
    ClusterKey {
        namespace: "shop".into(),
        backend: BackendName::ServicePort {
            service: "web".into(),
            port: 80,
        },
        policy: Some(Arc::new(ClusterPolicy {
            connections: Some(Arc::new(settings)),
            ..ClusterPolicy::default()
        })),
    }
}

/// The cluster with inline endpoints.
fn cluster(key: &ClusterKey, protocol: Protocol) -> Value {
    let policy = key.policy.as_ref().expect("a policy");
    let cluster = Cluster {
        discovery: Discovery::Endpoints,
        protocol,
        tls: None,
        retries: None,
        connections: policy.connections.clone(),
    };
    let endpoints = Endpoints {
        endpoints: vec![Endpoint {
            address: [127, 0, 0, 1].into(),
            port: 8080,
            health_port: None,
        }],
        ..Endpoints::default()
    };
    let mut out = to_json(&sesame_envoy::cluster(key, &cluster)).expect("a known type");
    let fields = out.as_object_mut().expect("a message");
    fields.remove("eds_cluster_config");
    fields.insert("type".to_owned(), json!("STATIC"));
    let endpoints = to_json(&sesame_envoy::endpoints(key, &endpoints)).expect("a known type");
    fields.insert("load_assignment".to_owned(), endpoints);
    out
}

fn text(text: &str, position: TextPosition) -> ValueMatch {
    ValueMatch::Text(Box::new(TextMatch {
        text: text.to_owned(),
        position,
        ignore_case: true,
    }))
}

fn forwarding(cluster: &ClusterKey) -> Route {
    let header = |value| HeaderMatch {
        name: "x-match".to_owned(),
        value,
    };
    let query = |value| QueryMatch {
        name: "q".to_owned(),
        value,
    };
    let contains = || Box::new(text("a", TextPosition::Anywhere));
    let computed: HeaderChanges = HeaderLists {
        computed: vec![(
            "x-path".to_owned(),
            "100%%: %REQ(:path)% %RESPONSE_CODE%".to_owned(),
        )],
        ..HeaderLists::default()
    }
    .into();
    let mut route = Route::respond_to_all(404);
    route.matches.path = PathMatch::StartsWith("/shop".to_owned());
    route.matches.headers = vec![
        header(ValueMatch::Present),
        header(ValueMatch::Not(contains())),
        header(ValueMatch::NotOrAbsent(contains())),
        header(text("b", TextPosition::Start)),
        HeaderMatch {
            name: "x-absent".to_owned(),
            value: ValueMatch::Absent,
        },
    ];
    route.matches.query = vec![
        query(ValueMatch::Present),
        query(text("b", TextPosition::End)),
        query(text("c", TextPosition::Whole)),
    ];
    route.request_headers = computed.clone();
    route.response_headers = computed;
    route.action = Action::Forward(Arc::new(Forward {
        targets: vec![WeightedTarget {
            target: Target::Cluster(cluster.clone()),
            weight: 1,
            request_headers: HeaderChanges::default(),
            response_headers: HeaderChanges::default(),
            host_rewrite: None,
            session: None,
        }],
        refused_status: 503,
        path_rewrite: Some(PathRewrite::Text("/".to_owned())),
        host_rewrite: None,
        mirrors: Vec::new(),
        timeout: Some(Duration::from_secs(10)),
        try_timeout: None,
        retry: Some(Box::new(Retry {
            attempts: 2,
            on: vec!["5xx".to_owned(), "reset".to_owned()],
            codes: vec![418],
            backoff: None,
        })),
        options: Some(Box::new(ForwardOptions {
            idle_timeout: Some(Duration::from_secs(20)),
            host_from_header: Some("x-host".to_owned()),
            hash: vec![
                hash(HashOf::Header("x-user".to_owned()), true),
                hash(HashOf::Query("user".to_owned()), false),
                hash(HashOf::Source, false),
                hash(
                    HashOf::Cookie {
                        name: "session".to_owned(),
                        path: "/".to_owned(),
                    },
                    false,
                ),
            ],
            internal_redirects: Some(InternalRedirects {
                max: 3,
                codes: vec![302, 307],
                cross_scheme: CrossScheme::SafeOnly,
                deny_repeated: true,
            }),
            cookies: Box::new([Arc::new([CookieChange {
                name: "session".into(),
                path: Some("/100%".into()),
                domain: Some("example.com".into()),
                secure: Some(true),
                same_site: Some("Lax"),
            }])]),
        })),
    }));
    route.policy = Some(Arc::new(RoutePolicy {
        jwt: None,
        global_rate: Some(global_rate(cluster)),
        sources: Some(SourceFilter {
            allow: true,
            ranges: [("10.0.0.0", 8, true), ("fd00::", 16, false)]
                .map(|(address, prefix, peer)| SourceRange {
                    address: address.parse().expect("an address"),
                    prefix,
                    peer,
                })
                .to_vec(),
        }),
        rate: Some(Rate::Own(RateLimit {
            requests: 10,
            interval: Duration::from_secs(60),
            burst: 5,
            status: 429,
            response_headers: vec![("x-limit".to_owned(), "100%".to_owned())],
        })),
    }));
    route
}

/// Rate limits with all kinds of entries, enforced by a service in this cluster.
fn global_rate(cluster: &ClusterKey) -> Arc<GlobalRate> {
    let header = HeaderMatch {
        name: "x-tier".to_owned(),
        value: ValueMatch::Exact("gold".to_owned()),
    };
    Arc::new(GlobalRate {
        service: Arc::new(RateService {
            cluster: cluster.clone(),
            domain: "sesame".into(),
            timeout: Duration::from_secs(1),
            fail_open: false,
            headers: true,
            resource_exhausted: true,
        }),
        descriptors: vec![Arc::new(vec![
            RateEntry::Fixed {
                key: "k".to_owned(),
                value: "100%".to_owned(),
            },
            RateEntry::Header {
                name: "host".to_owned(),
                key: "host".to_owned(),
            },
            RateEntry::Matching {
                headers: vec![header],
                expected: false,
                value: "other".to_owned(),
            },
            RateEntry::ClientAddress,
        ])],
    })
}

fn hash(of: HashOf, terminal: bool) -> HashPolicy {
    HashPolicy { of, terminal }
}

#[test]
fn every_term_of_the_model_is_valid() {
    let balanced = key(settings(Balancing::Hash, false));
    let started = key(settings(Balancing::RoundRobin, true));
    let random = key(settings(Balancing::Random, false));
    let least = key(settings(Balancing::LeastRequest, true));
    let mut answer = Route::respond_to_all(404);
    answer.action = Action::RespondWith(Box::new(DirectResponse {
        status: 451,
        body: "unavailable".to_owned(),
    }));
    let table = RouteTableKey {
        fleet: FleetId::Default,
        port: 80,
    };
    let host = VirtualHostKey {
        table: table.clone(),
        domain: "example.com".into(),
    };
    let routes = VirtualHost {
        routes: vec![Arc::new(forwarding(&balanced)), Arc::new(answer)],
        ..VirtualHost::default()
    };
    let hosts = [sesame_envoy::virtual_host(&host, &routes, &mut |port| port)];
    let scripted = true;
    let rules = RouteTable {
        reserved: Vec::new(),
        secure: false,
    };
    let routes =
        to_json(&sesame_envoy::route_table(&table, &rules, hosts, scripted)).expect("a known type");
    let port = ListenerKey {
        fleet: FleetId::Default,
        port: Port::tcp(80),
    };
    let listener = Listener {
        bind: vec![([127, 0, 0, 1], 8000).into()],
        chains: vec![Chain {
            tls: None,
            target: ChainTarget::Http(table),
        }],
        tracing: None,
        settings: Arc::default(),
    };
    let lookup = ShardLookup::Expressions;
    let listener = sesame_envoy::listener(&port, &listener, |_| None, lookup, false);
    let mut listener = to_json(&listener).expect("a known type");
    let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
    let manager = manager.as_object_mut().expect("a connection manager");
    manager.remove("rds");
    manager.insert("route_config".to_owned(), routes);
    let clusters = [
        cluster(&balanced, Protocol::Http1),
        cluster(&started, Protocol::Http2),
        cluster(&random, Protocol::Opaque),
        cluster(&least, Protocol::Http1),
    ];
    // As in Sesame's own bootstrap, expressions may be larger than Envoy's default permits.
    let runtime = json!({"re2.max_program_size.error_level": sesame_model::MAX_PROGRAM_SIZE});
    let bootstrap = json!({
        "static_resources": {"listeners": [listener], "clusters": clusters},
        "layered_runtime": {"layers": [{"name": "expressions", "static_layer": runtime}]},
    });

    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("envoy.json");
    fs::write(&file, bootstrap.to_string()).expect("a file");
    let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
    let output = Command::new(envoy.path)
        .args(["--mode", "validate", "--log-level", "error", "-c"])
        .arg(&file)
        .output()
        .expect("Envoy runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}
