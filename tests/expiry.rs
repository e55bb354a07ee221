//! Notices and statuses warn of certificates that expire. Notices become Events.

use serde_json::{Value, json};
use sesame_api::{Kind, ObjectKey};
use sesame_control::core::{Core, Input};
use sesame_envoy::Options;
use sesame_testkit::certs::Authority;
use sesame_testkit::many;

/// A day on which the certificates are valid, in days since 1970. They are until the year 4096.
const VALID: i64 = 20_000;
const EXPIRED: i64 = 800_000;

/// A core with an object named `web` that has a certificate, and its Secret.
fn core(api_version: &str, kind: &str, spec: Value) -> Core {
    let authority = Authority::new().expect("an authority");
    let certificate = authority.issue(&["a.test"]).expect("a certificate");
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "web", "namespace": many::NAMESPACE},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": certificate.chain, "tls.key": certificate.private_key},
    });
    let object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web", "namespace": many::NAMESPACE},
        "spec": spec,
    });
    let mut core = Core::new(Options::default());
    core.apply([secret, object].map(|object| Input::Upsert(many::object(&object))));
    core
}

/// The fields and messages of the warnings in the object's notices on a day.
fn warnings(core: &mut Core, kind: Kind, today: i64) -> Vec<(String, String)> {
    core.apply([Input::Today(today)]);
    let key = ObjectKey::new(kind, many::NAMESPACE, "web");
    let notices = core.engine().get(core.outputs().notices, &key);
    let warnings = notices.map_or_else(Vec::new, |notices| notices.warnings.clone());
    let warnings = warnings.into_iter();
    warnings.map(|one| (one.field, one.message)).collect()
}

/// Whether the object's status has this text on a day.
fn is_in_status(core: &mut Core, kind: Kind, today: i64, text: &str) -> bool {
    core.apply([Input::Today(today)]);
    let key = ObjectKey::new(kind, many::NAMESPACE, "web");
    let status = core.engine().get(core.outputs().statuses, &key);
    format!("{:?}", status.expect("a status")).contains(text)
}

#[test]
fn a_gateway_has_a_notice_and_a_condition_if_its_certificate_expires() {
    let spec = json!({"gatewayClassName": "sesame", "listeners": [
        {"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "web"}]}},
    ]});
    let mut core = core("gateway.networking.k8s.io/v1", "Gateway", spec);
    assert_eq!(warnings(&mut core, Kind::Gateway, VALID), []);
    let found = warnings(&mut core, Kind::Gateway, EXPIRED);
    assert_eq!(found.len(), 1);
    let (field, message) = &found[0];
    assert_eq!(field, "spec.listeners[1].tls.certificateRefs");
    assert!(message.contains("/web expired on"), "{message}");
    let mut has = |today| is_in_status(&mut core, Kind::Gateway, today, "/web expired on");
    assert!(has(EXPIRED));
    assert!(!has(VALID));
    assert_eq!(warnings(&mut core, Kind::Gateway, VALID), []);
}

#[test]
fn an_http_proxy_has_a_warning_if_its_certificate_expires() {
    let spec = json!({
        "virtualhost": {"fqdn": "a.test", "tls": {"secretName": "web"}},
        "routes": [{"directResponsePolicy": {"statusCode": 200}}],
    });
    let mut core = core("projectsesame.io/v1", "HTTPProxy", spec);
    let mut has = |today| is_in_status(&mut core, Kind::HTTPProxy, today, "/web expired on");
    assert!(!has(VALID));
    assert!(has(EXPIRED));
}

#[test]
fn an_ingress_has_a_notice_if_its_certificate_expires() {
    let spec = json!({
        "ingressClassName": "sesame",
        "tls": [{"hosts": ["a.test"], "secretName": "web"}],
        "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}},
        "rules": [{"host": "a.test"}],
    });
    let mut core = core("networking.k8s.io/v1", "Ingress", spec);
    let has = |warnings: Vec<(String, String)>| {
        let mut messages = warnings.iter();
        messages.any(|(field, message)| {
            field == "spec.tls[0].secretName" && message.contains("/web expired on")
        })
    };
    assert!(!has(warnings(&mut core, Kind::Ingress, VALID)));
    assert!(has(warnings(&mut core, Kind::Ingress, EXPIRED)));
}
