//! Model values for tests: fixed ones, and strategies for random ones.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sesame_model::*;

pub(crate) fn fleet() -> FleetId {
    FleetId::of_gateway("ns", "gw")
}

pub(crate) fn table_key() -> RouteTableKey {
    RouteTableKey {
        fleet: fleet(),
        port: 8080,
    }
}

pub(crate) fn cluster_key(service: &str) -> ClusterKey {
    ClusterKey {
        namespace: "ns".into(),
        backend: BackendName::ServicePort {
            service: service.into(),
            port: 80,
        },
        policy: None,
    }
}

/// An HTTP listener with one chain, which uses TLS if there is a certificate.
pub(crate) fn some_listener(key: &ListenerKey, certificate: Option<CertificateKey>) -> Listener {
    let routes = RouteTableKey {
        fleet: key.fleet.clone(),
        port: key.port.number,
    };
    Listener {
        bind: vec![(std::net::Ipv4Addr::LOCALHOST, key.port.number).into()],
        chains: vec![Chain {
            tls: certificate.map(|certificate| ChainTls {
                server_name: None,
                mode: TlsMode::Terminate(Arc::new(Termination {
                    certificates: vec![certificate],
                    clients: None,
                    versions: None,
                })),
            }),
            target: ChainTarget::Http(routes),
        }],
        tracing: None,
        settings: Arc::default(),
    }
}

pub(crate) fn target(service: &str, weight: u32) -> WeightedTarget {
    WeightedTarget {
        target: Target::Cluster(cluster_key(service)),
        weight,
        request_headers: HeaderChanges::default(),
        response_headers: HeaderChanges::default(),
        host_rewrite: None,
        session: None,
    }
}

pub(crate) fn refused(weight: u32) -> WeightedTarget {
    WeightedTarget {
        target: Target::Refused,
        ..target("", weight)
    }
}

pub(crate) fn forward(targets: Vec<WeightedTarget>) -> Forward {
    Forward {
        targets,
        refused_status: 500,
        path_rewrite: None,
        host_rewrite: None,
        mirrors: vec![],
        timeout: None,
        try_timeout: None,
        retry: None,
        options: None,
    }
}

pub(crate) fn route(path: PathMatch, action: Action) -> Route {
    Route {
        matches: RouteMatch {
            path,
            method: None,
            headers: vec![],
            query: vec![],
            grpc: false,
            share: None,
        },
        action,
        request_headers: HeaderChanges::default(),
        response_headers: HeaderChanges::default(),
        cors: None,
        session: None,
        auth: None,
        policy: None,
    }
}

pub(crate) fn prefix(prefix: &str) -> PathMatch {
    PathMatch::Prefix(prefix.to_owned())
}

pub(crate) fn cors() -> Cors {
    Cors {
        origins: vec![OriginMatch::Any],
        credentials: false,
        methods: List::All,
        headers: List::Only(vec!["x-a".to_owned(), "x-b".to_owned()]),
        expose: List::Only(vec![]),
        max_age: Duration::from_secs(5),
        private_network: false,
    }
}

pub(crate) fn cookie() -> Session {
    Session::Cookie {
        name: "session".to_owned(),
        path: "/".to_owned(),
        lifetime: None,
    }
}

pub(crate) fn cookie_change() -> CookieChange {
    CookieChange {
        name: "session".into(),
        path: Some("/a%b".into()),
        domain: None,
        secure: Some(false),
        same_site: Some("Lax"),
    }
}

pub(crate) fn auth(protocol: AuthProtocol) -> ExternalAuth {
    ExternalAuth {
        cluster: cluster_key("auth"),
        protocol,
        body: None,
        timeout: Duration::from_secs(5),
        fail_open: false,
        before: HeaderChanges::default(),
    }
}

fn word() -> impl Strategy<Value = String> {
    "[a-z]{1,3}"
}

fn any_path() -> impl Strategy<Value = PathMatch> {
    prop_oneof![
        word().prop_map(|word| PathMatch::Exact(format!("/{word}"))),
        word().prop_map(|word| PathMatch::Prefix(format!("/{word}"))),
        Just(prefix("/")),
        word().prop_map(|word| PathMatch::Regex(format!("/{word}+"))),
    ]
}

fn any_rewrite() -> impl Strategy<Value = PathRewrite> {
    ("(/[a-z]{0,3}){0,2}", any::<bool>()).prop_map(|(path, full)| {
        if full {
            PathRewrite::Full(path)
        } else {
            PathRewrite::Prefix(path)
        }
    })
}

fn any_target() -> impl Strategy<Value = WeightedTarget> {
    (
        word(),
        any::<bool>(),
        prop_oneof![0..3u32, Just(u32::MAX)],
        any::<bool>(),
    )
        .prop_map(|(service, refuse, weight, with_session)| {
            if refuse {
                return refused(weight);
            }
            WeightedTarget {
                session: with_session.then(|| Arc::new(cookie())),
                ..target(&service, weight)
            }
        })
}

fn any_action() -> impl Strategy<Value = Action> {
    let forward = (
        prop::collection::vec(any_target(), 1..4),
        prop::option::of(any_rewrite()),
        prop::option::of(0..5000u64),
        prop::option::of(0..5000u64),
        prop::option::of(0..4u32),
        any::<bool>(),
    )
        .prop_map(
            |(targets, path_rewrite, timeout, try_timeout, attempts, with_cookies)| {
                let cookies = targets.iter().map(|_| [cookie_change()].into());
                Action::Forward(Arc::new(Forward {
                    options: with_cookies.then(|| {
                        Box::new(ForwardOptions {
                            cookies: cookies.collect(),
                            ..Default::default()
                        })
                    }),
                    path_rewrite,
                    timeout: timeout.map(Duration::from_millis),
                    try_timeout: try_timeout.map(Duration::from_millis),
                    retry: attempts.map(|attempts| {
                        Box::new(Retry {
                            attempts,
                            on: vec![],
                            codes: vec![500, 503],
                            backoff: timeout.map(Duration::from_micros),
                        })
                    }),
                    ..forward(targets)
                }))
            },
        );
    let redirect = (
        prop::option::of(prop_oneof![Just("http"), Just("https")]),
        prop::option::of(word()),
        prop_oneof![
            any::<u16>().prop_map(RedirectPort::Exact),
            Just(RedirectPort::OfScheme),
            Just(RedirectPort::OfListener)
        ],
        prop::option::of(any_rewrite()),
        300..309u16,
    )
        .prop_map(|(scheme, hostname, port, path, status)| {
            Action::Redirect(Arc::new(Redirect {
                scheme: scheme.map(str::to_owned),
                hostname,
                port,
                path,
                status,
            }))
        });
    prop_oneof![
        3 => forward,
        1 => redirect,
        1 => (200..599u16).prop_map(Action::Respond),
    ]
}

fn any_list() -> impl Strategy<Value = List> {
    let names = prop::collection::vec(word(), 1..3);
    prop_oneof![names.prop_map(List::Only), Just(List::All)]
}

fn any_names() -> impl Strategy<Value = Vec<TextMatch>> {
    let position = prop_oneof![
        Just(TextPosition::Whole),
        Just(TextPosition::Start),
        Just(TextPosition::End),
        Just(TextPosition::Anywhere),
    ];
    let name = (word(), position).prop_map(|(text, position)| TextMatch {
        text,
        position,
        ignore_case: true,
    });
    prop::collection::vec(name, 0..3)
}

/// A route's check with context entries.
fn any_with_context() -> impl Strategy<Value = ExternalAuth> {
    let context = prop::collection::btree_map(word(), word(), 1..3);
    context.prop_map(|context| auth(AuthProtocol::GrpcWithContext(context)))
}

fn any_auth() -> impl Strategy<Value = ExternalAuth> {
    let grpc = any_list().prop_map(|request_headers| AuthProtocol::Grpc { request_headers });
    let names = prop::option::of(any_names());
    let http = ("(/[a-z]{1,3}){0,2}", any_names(), names).prop_map(
        |(path_prefix, request_headers, response_headers)| AuthProtocol::Http {
            path_prefix,
            request_headers,
            response_headers,
        },
    );
    let body = (1..9u32, any::<bool>(), any::<bool>());
    let body = body.prop_map(|(max, partial, bytes)| AuthBody {
        max,
        partial,
        bytes,
    });
    let body = prop::option::of(body);
    let flags = any::<(bool, bool)>();
    (prop_oneof![grpc, http], body, flags).prop_map(|(protocol, body, (changes, fail_open))| {
        let removed = HeaderLists {
            remove: vec!["x-a".to_owned()],
            ..HeaderLists::default()
        };
        ExternalAuth {
            body,
            fail_open,
            before: match changes {
                true => removed.into(),
                false => HeaderChanges::default(),
            },
            ..auth(protocol)
        }
    })
}

pub(crate) fn any_route() -> impl Strategy<Value = Route> {
    (
        any_path(),
        any_action(),
        prop::option::of(prop_oneof![Just("GET"), Just("OPTIONS")]),
        any::<bool>(),
        any::<bool>(),
        prop::option::of(0..=1_000_000u32),
        prop::option::of(prop_oneof![any_auth(), any_with_context()]),
    )
        .prop_map(
            |(path, action, method, with_cors, with_session, share, auth)| {
                let mut route = route(path, action);
                route.matches.method = method.map(Into::into);
                route.matches.share = share.map(PartsPerMillion);
                route.cors = with_cors.then(|| Arc::new(cors()));
                route.session = with_session.then(|| Arc::new(cookie()));
                route.auth = auth.map(Arc::new);
                route
            },
        )
}

pub(crate) fn any_virtual_host() -> impl Strategy<Value = VirtualHost> {
    let checks = prop::collection::vec(any_auth(), 0..MAX_HOST_AUTH);
    let routes = prop::collection::vec(any_route(), 0..4);
    (any::<bool>(), checks, routes).prop_map(|(secure, checks, routes)| VirtualHost {
        listener: secure.then(|| "*.example.com".into()),
        fallback: secure && checks.is_empty(),
        auth: checks.into_iter().map(Arc::new).collect(),
        jwt: Box::default(),
        rate: None,
        routes: routes.into_iter().map(Arc::new).collect(),
        overloaded: false,
    })
}
