//! Notices warn of certificates that expire: they become Events.

use serde_json::json;
use sesame_api::{Kind, ObjectKey};
use sesame_control::core::{Core, Input};
use sesame_envoy::Options;
use sesame_testkit::certs::Authority;
use sesame_testkit::many;

#[test]
fn a_gateway_has_a_notice_if_its_certificate_expires() {
    let authority = Authority::new().expect("an authority");
    let certificate = authority.issue(&["a.test"]).expect("a certificate");
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "web", "namespace": many::NAMESPACE},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": certificate.chain, "tls.key": certificate.private_key},
    });
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "web", "namespace": many::NAMESPACE},
        "spec": {"gatewayClassName": "sesame", "listeners": [
            {"name": "http", "port": 80, "protocol": "HTTP"},
            {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "web"}]}},
        ]},
    });
    let mut core = Core::new(Options::default());
    core.apply([secret, gateway].map(|object| Input::Upsert(many::object(&object))));
    let key = ObjectKey::new(Kind::Gateway, many::NAMESPACE, "web");
    let mut on = |today| {
        core.apply([Input::Today(today)]);
        let notices = core.engine().get(core.outputs().notices, &key);
        notices.map(|notices| notices.warnings.clone())
    };
    assert_eq!(on(20_000), None);
    // The certificate is valid until the year 4096.
    let warnings = on(800_000).expect("a notice");
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].field, "spec.listeners[1].tls.certificateRefs");
    let message = &warnings[0].message;
    assert!(message.contains("/web expired on"), "{message}");
    assert_eq!(on(20_000), None);
}
