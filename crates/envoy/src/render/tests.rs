//! Every resource type as JSON.

use std::sync::Arc;

use serde_json::json;
use sesame_model::*;

use super::*;
use crate::testing::*;
use crate::{ShardLookup, names, wire};

#[test]
fn secrets_stay_hidden_and_chains_are_text() {
    let key = CertificateKey {
        namespace: "ns".into(),
        name: "cert".into(),
    };
    let certificate = Certificate {
        chain: b"-----BEGIN CERTIFICATE-----\n".as_slice().into(),
        private_key: b"the key itself".as_slice().into(),
    };
    let secret = crate::secret(&key, &certificate);
    let shown = render(&wire::resource(&secret)).unwrap();
    assert_eq!(
        shown,
        json!({
            "@type": names::SECRET,
            "name": "ns/cert",
            "tls_certificate": {
                "certificate_chain": {"inline_string": "-----BEGIN CERTIFICATE-----\n"},
                "private_key": {"inline_string": "(hidden)"},
            },
        })
    );
    // JSON for Envoy doesn't hide anything.
    let whole = to_json(&secret).unwrap();
    let key = &whole["tls_certificate"]["private_key"]["inline_bytes"];
    assert_eq!(key, &STANDARD.encode("the key itself"));
}

#[test]
fn packed_filters_of_listeners_are_expanded() {
    let key = ListenerKey {
        fleet: fleet(),
        port: Port::tcp(443),
    };
    let listener = Listener {
        bind: vec![
            "127.0.0.1:8443".parse().unwrap(),
            "[::1]:8443".parse().unwrap(),
        ],
        chains: vec![
            Chain {
                tls: Some(ChainTls {
                    server_name: None,
                    mode: TlsMode::Terminate(Arc::new(Termination {
                        certificates: vec![CertificateKey {
                            namespace: "ns".into(),
                            name: "cert".into(),
                        }],
                        clients: None,
                        versions: None,
                    })),
                }),
                target: ChainTarget::Http(RouteTableKey {
                    fleet: fleet(),
                    port: 443,
                }),
            },
            Chain {
                tls: Some(ChainTls {
                    server_name: Some("*.example.com".into()),
                    mode: TlsMode::Terminate(Arc::default()),
                }),
                target: ChainTarget::Http(table_key()),
            },
        ],
        tracing: None,
        settings: Arc::default(),
    };
    let listener = crate::listener(&key, &listener, |_| None, ShardLookup::Expressions, false);
    let shown = render(&wire::resource(&listener)).unwrap();
    assert_eq!(shown["@type"], names::LISTENER);
    assert_eq!(shown["name"], "443");
    assert_eq!(
        shown["address"]["socket_address"],
        json!({"address": "127.0.0.1", "port_value": 8443})
    );
    assert_eq!(
        shown["additional_addresses"][0]["address"]["socket_address"]["address"],
        "::1"
    );
    let chains = shown["filter_chains"].as_array().unwrap();
    assert!(chains[0].get("filter_chain_match").is_none());
    assert_eq!(
        chains[1]["filter_chain_match"],
        json!({"server_names": ["*.example.com"]})
    );
    let context = &chains[0]["transport_socket"]["typed_config"]["common_tls_context"];
    assert_eq!(
        context["tls_certificate_sds_secret_configs"],
        json!([{
            "name": "ns/cert",
            "sds_config": {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"},
        }])
    );
    let managers: Vec<_> = chains
        .iter()
        .map(|chain| chain["filters"][0]["typed_config"].clone())
        .collect();
    assert_eq!(managers[0]["rds"]["route_config_name"], "443");
    let filters: Vec<_> = managers[0]["http_filters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|filter| (filter["name"].as_str().unwrap(), filter["disabled"] == true))
        .collect();
    assert_eq!(
        filters,
        [
            ("envoy.filters.http.cdn_loop", false),
            ("auth.listener.0", true),
            ("auth.listener.1", true),
            ("auth.listener.2", true),
            ("auth.listener.3", true),
            ("envoy.filters.http.cors", true),
            ("envoy.filters.http.rbac", true),
            ("envoy.filters.http.local_ratelimit", true),
            ("jwt.provider", true),
            ("jwt", true),
            ("auth.route", true),
            ("auth.context", true),
            ("auth.context.bytes", true),
            ("auth.context.open", true),
            ("auth.context.open.bytes", true),
            ("rate.global", true),
            ("envoy.filters.http.stateful_session", true),
            ("cookies.changes", true),
            ("cookies", true),
            ("envoy.filters.http.router", false),
        ]
    );
    // Frozen, apart from the names.
    let without_names = |manager: &Value| {
        let mut manager = manager.clone();
        manager["rds"]["route_config_name"].take();
        let header = "/early_header_mutation_extensions/0/typed_config/mutations/0/append/header";
        manager.pointer_mut(header).unwrap()["value"].take();
        manager
    };
    assert_eq!(without_names(&managers[1]), without_names(&managers[0]));
}

fn cluster(protocol: Protocol, tls: Option<Option<&str>>) -> Value {
    let cluster = Cluster {
        discovery: Discovery::Endpoints,
        protocol,
        tls: tls.map(|name| {
            let tls = UpstreamTls {
                server_name: name.map(Into::into),
                ..UpstreamTls::default()
            };
            tls.into()
        }),
        retries: None,
        connections: None,
    };
    render(&wire::resource(&crate::cluster(
        &cluster_key("web"),
        &cluster,
    )))
    .unwrap()
}

fn http(cluster: &Value) -> &Value {
    &cluster["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
}

#[test]
fn clusters_are_rendered_with_their_protocol_and_tls() {
    let plain = cluster(Protocol::Http1, None);
    let all = 50_000;
    assert_eq!(
        plain,
        json!({
            "@type": names::CLUSTER,
            "name": "ns/web:80",
            "type": "EDS",
            "eds_cluster_config": {
                "eds_config": {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"},
            },
            "lb_policy": "LEAST_REQUEST",
            "circuit_breakers": {
                "thresholds": [{
                    "max_connections": all,
                    "max_pending_requests": all,
                    "max_requests": all,
                    "max_retries": 1024,
                }],
            },
        })
    );
    let h2c = cluster(Protocol::Http2, None);
    assert_eq!(
        http(&h2c)["explicit_http_config"],
        json!({"http2_protocol_options": {}})
    );

    let named = cluster(Protocol::Http1, Some(Some("a.b")));
    assert_eq!(named["transport_socket"]["typed_config"]["sni"], "a.b");
    assert!(http(&named).is_null());
    let unnamed = cluster(Protocol::Negotiated, Some(None));
    assert_eq!(http(&unnamed)["auto_config"], json!({}));
    assert_eq!(
        http(&unnamed)["upstream_http_protocol_options"],
        json!({"auto_sni": true})
    );
    // Without TLS there is no ALPN: falls back to HTTP/1.1, since Envoy would reject the cluster.
    let odd = cluster(Protocol::Negotiated, None);
    assert_eq!(
        http(&odd)["explicit_http_config"],
        json!({"http_protocol_options": {}})
    );
}

#[test]
fn endpoints_are_in_at_most_one_locality() {
    let shown = |endpoints| {
        let endpoints = crate::endpoints(
            &cluster_key("web"),
            &Endpoints {
                endpoints,
                ..Endpoints::default()
            },
        );
        render(&wire::resource(&endpoints)).unwrap()
    };
    assert_eq!(
        shown(vec![]),
        json!({"@type": names::ENDPOINTS, "cluster_name": "ns/web:80"})
    );
    let one = shown(vec![Endpoint {
        address: "fd00::1".parse().unwrap(),
        port: 8080,
        health_port: None,
    }]);
    assert_eq!(
        one["endpoints"],
        json!([{
            "lb_endpoints": [{
                "endpoint": {
                    "address": {"socket_address": {"address": "fd00::1", "port_value": 8080}}
                }
            }]
        }])
    );
}

#[test]
fn unknown_types_and_invalid_bytes_are_errors() {
    assert!(matches!(render(b"\xff"), Err(RenderError::Decode(_))));
    let unknown = wire::any_bytes("type.googleapis.com/no.such.Type", &[b""]);
    assert!(matches!(render(&unknown), Err(RenderError::Form(_))));
    let broken = wire::any_bytes(names::CLUSTER, &[b"\xff\xff"]);
    assert!(matches!(render(&broken), Err(RenderError::Form(_))));
}

#[test]
fn a_chain_can_pass_tls_connections_through_to_a_backend() {
    let key = ListenerKey {
        fleet: fleet(),
        port: Port::tcp(443),
    };
    let cluster = |policy| ClusterKey {
        namespace: "ns".into(),
        backend: BackendName::ServicePort {
            service: "db".into(),
            port: 5432,
        },
        policy,
    };
    let opaque = ClusterPolicy {
        protocol: Some(Protocol::Opaque),
        ..ClusterPolicy::default()
    };
    let listener = Listener {
        bind: vec!["127.0.0.1:443".parse().unwrap()],
        chains: vec![Chain {
            tls: Some(ChainTls {
                server_name: Some("db.example.com".into()),
                mode: TlsMode::Passthrough,
            }),
            target: ChainTarget::Weighted(vec![
                WeightedBackend {
                    target: Target::Cluster(cluster(None)),
                    weight: 3,
                },
                WeightedBackend {
                    target: Target::Cluster(cluster(Some(opaque.into()))),
                    weight: 1,
                },
                WeightedBackend::CLOSED,
            ]),
        }],
        tracing: None,
        settings: Arc::default(),
    };
    let listener = crate::listener(&key, &listener, |_| None, ShardLookup::Expressions, false);
    let shown = render(&wire::resource(&listener)).unwrap();
    let chain = &shown["filter_chains"][0];
    assert_eq!(
        chain["filter_chain_match"],
        json!({"server_names": ["db.example.com"], "transport_protocol": "tls"})
    );
    assert!(chain.get("transport_socket").is_none());
    assert_eq!(
        chain["filters"][0]["typed_config"]["weighted_clusters"]["clusters"],
        json!([
            {"name": "ns/db:5432", "weight": 3},
            {"name": "ns/db:5432?protocol=tcp", "weight": 1},
            {"name": "refused", "weight": 1},
        ])
    );
    assert_eq!(shown["listener_filters"].as_array().map(Vec::len), Some(1));
}
