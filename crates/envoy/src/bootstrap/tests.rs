//! The contents of a bootstrap.

use serde_json::json;

use super::*;
use crate::to_json;

fn options() -> BootstrapOptions {
    BootstrapOptions {
        fleet: FleetId::of_gateway("ns", "gw"),
        node_id: "pod-1".to_owned(),
        xds: XdsAddress::Unix("/run/xds.sock".into()),
        admin: Admin::Unix("/run/admin.sock".into()),
        readiness: None,
        max_connections: MAX_CONNECTIONS,
        heap_limit: None,
        module: false,
    }
}

#[test]
fn everything_comes_over_one_delta_stream() {
    let out = to_json(&bootstrap(&options())).unwrap();
    assert_eq!(out["node"], json!({"id": "pod-1", "cluster": "ns/gw"}));
    let dynamic = &out["dynamic_resources"];
    // The Envoy becomes ready only after the first response.
    let ads = json!({"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"});
    assert_eq!(dynamic["lds_config"], ads);
    assert_eq!(dynamic["cds_config"], ads);
    let stream = &dynamic["ads_config"];
    assert_eq!(stream["api_type"], "DELTA_GRPC");
    assert_eq!(stream["set_node_on_first_message_only"], true);
    assert_eq!(
        stream["grpc_services"][0]["envoy_grpc"]["cluster_name"],
        out["static_resources"]["clusters"][0]["name"]
    );
    assert_eq!(
        out["admin"]["address"]["pipe"],
        json!({"path": "/run/admin.sock", "mode": 0o600})
    );
}

#[test]
fn metadata_names_the_module() {
    let with_module = BootstrapOptions {
        module: true,
        ..options()
    };
    let out = to_json(&bootstrap(&with_module)).unwrap();
    let metadata = json!({"sesame.module": "sesame_shard_3"});
    assert_eq!(out["node"]["metadata"], metadata);
}

#[test]
fn envoys_limit_expressions_and_responses_to_their_own_requests() {
    let out = to_json(&bootstrap(&options())).unwrap();
    let [expressions, responses] = [
        ("re2.max_program_size.error_level", MAX_PROGRAM_SIZE),
        ("http.async_response_buffer_limit", 1_048_576),
    ]
    .map(|(key, limit)| json!({key: f64::from(limit)}));
    assert_eq!(
        out["layered_runtime"]["layers"],
        json!([
            {"name": "expressions", "static_layer": expressions},
            {"name": "responses", "static_layer": responses},
            // Overrides the others, and is empty until someone changes it.
            {"name": "admin", "admin_layer": {}},
        ])
    );
}

#[test]
fn output_is_deterministic() {
    let bytes = bootstrap(&options()).encode_to_vec();
    for _ in 0..8 {
        assert_eq!(bootstrap(&options()).encode_to_vec(), bytes);
    }
}

#[test]
fn tcp_uses_mutual_tls() {
    let out = to_json(&bootstrap(&BootstrapOptions {
        xds: XdsAddress::Tcp {
            host: "sesame.example".to_owned(),
            port: 18000,
            tls: Some(XdsTls {
                certificate: "/certs/tls.crt".into(),
                private_key: "/certs/tls.key".into(),
                authority: "/certs/ca.crt".into(),
                server_name: "sesame".to_owned(),
                secrets: None,
            }),
        },
        admin: Admin::None,
        heap_limit: Some(HeapLimit::Bytes(1 << 30)),
        ..options()
    }))
    .unwrap();
    let cluster = &out["static_resources"]["clusters"][0];
    assert_eq!(cluster["type"], "STRICT_DNS");
    let context = &cluster["transport_socket"]["typed_config"];
    assert_eq!(context["sni"], "sesame");
    let common = &context["common_tls_context"];
    assert_eq!(
        common["validation_context"],
        json!({
            "trusted_ca": {"filename": "/certs/ca.crt"},
            "match_typed_subject_alt_names": [
                {"san_type": "DNS", "matcher": {"exact": "sesame"}}
            ],
        })
    );
    assert_eq!(
        common["tls_certificates"][0]["private_key"],
        json!({"filename": "/certs/tls.key"})
    );
    assert!(out.get("admin").is_none());
    assert_eq!(
        out["overload_manager"]["resource_monitors"][1]["typed_config"]["max_heap_size_bytes"],
        1 << 30
    );
    assert_eq!(out["overload_manager"]["refresh_interval"], "0.250s");
    let actions = out["overload_manager"]["actions"].as_array().unwrap();
    let names: Vec<_> = actions.iter().map(|action| &action["name"]).collect();
    assert_eq!(
        names,
        [
            "envoy.overload_actions.shrink_heap",
            "envoy.overload_actions.disable_http_keepalive",
            "envoy.overload_actions.reset_high_memory_stream",
            "envoy.overload_actions.stop_accepting_requests",
            "envoy.overload_actions.stop_accepting_connections",
        ]
    );
}

/// Half of the monitor's memory: the thresholds are half as high.
#[test]
fn without_a_limit_the_heap_may_have_half_of_the_memory() {
    let out = bootstrap(&BootstrapOptions {
        heap_limit: Some(HeapLimit::HalfOfMemory),
        ..options()
    });
    let manager = out.overload_manager.unwrap();
    assert_eq!(manager.resource_monitors.len(), 1);
    let last = &manager.actions.last().unwrap().triggers[0];
    assert_eq!(last.name, HEAP_MONITOR);
    let threshold =
        overload::trigger::TriggerOneof::Threshold(overload::ThresholdTrigger { value: 0.49 });
    assert_eq!(last.trigger_oneof, Some(threshold));
}

#[test]
fn rotated_certificates_are_reloaded() {
    let paths = XdsTls {
        certificate: "/certs/tls.crt".into(),
        private_key: "/certs/tls.key".into(),
        authority: "/certs/ca.crt".into(),
        server_name: "sesame".to_owned(),
        secrets: Some("/etc/envoy".into()),
    };
    let files = xds_secrets(&paths);
    let out = to_json(&bootstrap(&BootstrapOptions {
        xds: XdsAddress::Tcp {
            host: "sesame.example".to_owned(),
            port: 18000,
            tls: Some(paths),
        },
        ..options()
    }))
    .unwrap();
    let socket = &out["static_resources"]["clusters"][0]["transport_socket"]["typed_config"];
    let common = &socket["common_tls_context"];
    let validation = &common["combined_validation_context"];
    assert_eq!(
        validation["default_validation_context"]["match_typed_subject_alt_names"][0]["matcher"],
        json!({"exact": "sesame"})
    );
    // Each file contains the secret that the bootstrap names.
    let secret_of = |config: &serde_json::Value| {
        let path = &config["sds_config"]["path_config_source"]["path"];
        let name = path.as_str().unwrap().strip_prefix("/etc/envoy/").unwrap();
        let file: serde_json::Value = serde_json::from_str(&files[name]).unwrap();
        let secret = file["resources"][0].clone();
        assert_eq!(secret["name"], config["name"]);
        secret
    };
    assert_eq!(
        secret_of(&common["tls_certificate_sds_secret_configs"][0])["tls_certificate"],
        json!({
            "certificate_chain": {"filename": "/certs/tls.crt"},
            "private_key": {"filename": "/certs/tls.key"},
            "watched_directory": {"path": "/certs"},
        })
    );
    assert_eq!(
        secret_of(&validation["validation_context_sds_secret_config"])["validation_context"],
        json!({
            "trusted_ca": {"filename": "/certs/ca.crt"},
            "watched_directory": {"path": "/certs"},
        })
    );
    assert_eq!(files.len(), 2);
}
