use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use sesame_model::{
    AccessLogFormat, AccessLogLevel, CertificateKey, ChainTls, ListenerTimeouts, Port,
};
use tls::tls_parameters::TlsProtocol;

use super::*;
use crate::testing::{fleet, some_listener};

fn key(number: u16) -> ListenerKey {
    ListenerKey {
        fleet: fleet(),
        port: Port::tcp(number),
    }
}

/// A TLS listener with a chain for a.example.com with its own `versions`, and these settings.
fn with_tls(versions: Option<TlsVersions>, settings: ListenerSettings) -> Listener {
    let certificate = CertificateKey {
        namespace: "ns".into(),
        name: "cert".into(),
    };
    let mut listener = some_listener(&key(443), Some(certificate.clone()));
    listener.chains[0].tls = Some(ChainTls {
        server_name: Some("a.example.com".into()),
        mode: TlsMode::Terminate(Arc::new(Termination {
            certificates: vec![certificate],
            clients: None,
            versions,
        })),
    });
    listener.settings = Arc::new(settings);
    listener
}

fn encoded(listener: &Listener, on_demand: bool) -> pb::Listener {
    let whole = |_: &RouteTableKey| None;
    super::listener(
        &key(443),
        listener,
        whole,
        ShardLookup::Expressions,
        on_demand,
    )
}

/// The TLS parameters of a listener's only chain.
fn tls_parameters(listener: &Listener, on_demand: bool) -> Option<tls::TlsParameters> {
    let encoded = encoded(listener, on_demand);
    let [chain] = &encoded.filter_chains[..] else {
        panic!("expected one chain: {encoded:?}");
    };
    let socket = chain.transport_socket.as_ref().expect("TLS");
    let Some(core::transport_socket::ConfigType::TypedConfig(config)) = &socket.config_type else {
        panic!("no configuration: {socket:?}");
    };
    let context = tls::DownstreamTlsContext::decode(&*config.value).expect("a context");
    context.common_tls_context.expect("a context").tls_params
}

#[test]
fn tls_settings_apply_to_chains_of_their_own_and_to_shared_ones() {
    let newest = TlsVersions {
        min: TlsVersion::V1_3,
        max: TlsVersion::V1_3,
    };
    let oldest = TlsVersions {
        min: TlsVersion::V1_2,
        max: TlsVersion::V1_2,
    };
    let settings = ListenerSettings {
        tls_versions: Some(newest),
        cipher_suites: Some(vec!["AES128-SHA".into()]),
        ..ListenerSettings::default()
    };
    let expected = tls::TlsParameters {
        tls_minimum_protocol_version: TlsProtocol::TlSv13.into(),
        tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
        cipher_suites: vec!["AES128-SHA".to_owned()],
        ..Default::default()
    };
    for (versions, on_demand) in [(None, false), (None, true), (Some(oldest), false)] {
        let listener = with_tls(versions, settings.clone());
        assert_eq!(
            tls_parameters(&listener, on_demand),
            Some(expected.clone()),
            "{versions:?} {on_demand}"
        );
    }
    for on_demand in [false, true] {
        let listener = with_tls(None, ListenerSettings::default());
        assert_eq!(tls_parameters(&listener, on_demand), None);
    }
}

#[test]
fn the_proxy_protocol_is_read_before_tls() {
    let settings = |proxy_protocol| ListenerSettings {
        proxy_protocol: Some(proxy_protocol),
        ..ListenerSettings::default()
    };
    let names = |listener: &Listener| -> Vec<String> {
        let filters = encoded(listener, false).listener_filters.into_iter();
        filters.map(|filter| filter.name).collect()
    };
    let with = with_tls(None, settings(ProxyProtocol::Required));
    assert_eq!(
        names(&with),
        [
            "envoy.filters.listener.proxy_protocol",
            "envoy.filters.listener.tls_inspector",
        ]
    );
    let without = with_tls(None, settings(ProxyProtocol::Disabled));
    assert_eq!(names(&without), ["envoy.filters.listener.tls_inspector"]);
}

#[test]
fn settings_equal_to_the_defaults_add_nothing() {
    let defaults = ListenerSettings {
        access_log: Some(AccessLogLevel::Disabled),
        access_log_format: Some(AccessLogFormat::Json(None)),
        proxy_protocol: Some(ProxyProtocol::Disabled),
        compression: Some(Vec::new()),
        timeouts: ListenerTimeouts {
            request_headers: Some(Duration::from_secs(10)),
            stream_idle: Some(hcm::STREAM_IDLE),
            connection_duration: Some(Duration::ZERO),
            ..ListenerTimeouts::default()
        },
        trusted_hops: Some(0),
        merge_slashes: Some(true),
        ..ListenerSettings::default()
    };
    let plain = encoded(&with_tls(None, ListenerSettings::default()), false);
    assert_eq!(encoded(&with_tls(None, defaults), false), plain);
}

/// Otherwise, a busy Envoy would replace a listener with one that has no routes yet.
#[test]
fn a_listener_waits_for_its_routes() {
    let sources = |shards| {
        let listener = some_listener(&key(80), None);
        let encoded = super::listener(
            &key(80),
            &listener,
            |_: &RouteTableKey| shards,
            ShardLookup::Expressions,
            false,
        );
        let text = crate::to_json(&encoded).unwrap().to_string();
        let waiting = r#""ads":{},"initial_fetch_timeout":"0s""#;
        (
            text.matches(r#""ads":{}"#).count(),
            text.matches(waiting).count(),
        )
    };
    assert_eq!(sources(None), (1, 1));
    // The list of shards has a timeout of hours instead.
    assert_eq!(sources(Some(256)), (2, 1));
}
