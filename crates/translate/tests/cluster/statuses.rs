//! Statuses that depend on feedback from fleets and from the API server.

use serde_json::{Value, json};
use sesame_api::{Kind, Release};
use sesame_model::{FleetAddress, FleetState, Port};
use sesame_translate::fleet::{Rejected, RejectedKind};
use sesame_translate::settings::Mode;

use crate::rig::{Rig, class, fleet, gateway, route, said, set};

fn ready() -> FleetState {
    FleetState {
        addresses: vec![FleetAddress::Ip([192, 0, 2, 1].into())],
        ready: true,
        ..FleetState::default()
    }
}

fn rig(mode: Mode) -> Rig {
    let mut rig = Rig::new(mode);
    rig.put([
        class("edge", 0),
        gateway("web", "edge", 1),
        route("r", &["web"]),
    ]);
    rig.fleet(&fleet("web"), Some(ready()));
    rig
}

/// A resource of the fleet `web`.
fn rejected(what: RejectedKind, name: &str) -> Rejected {
    Rejected {
        fleet: fleet("web"),
        what,
        name: name.into(),
    }
}

#[test]
fn a_nack_is_reported_until_the_resource_is_accepted() {
    let mut rig = rig(Mode::Managed);
    let of_listener = |rig: &Rig| said(&rig.gateway("web").listeners[0].conditions, "Programmed");
    for key in [
        rejected(RejectedKind::Listener, "80"),
        rejected(RejectedKind::Routes, "80"),
        rejected(RejectedKind::Routes, "80#3.17"),
    ] {
        let message = Some("too large".to_owned());
        rig.change(|inputs, batch| inputs.set_rejection(batch, key.clone(), message));
        assert_eq!(
            of_listener(&rig),
            "not Programmed/Invalid: Envoy rejected the configuration (too large) and keeps its last good version"
        );
        // This is the Gateway's only listener.
        let gateway = rig.gateway("web");
        assert!(
            said(&gateway.conditions, "Programmed")
                .starts_with("not Programmed/Invalid: no listener")
        );
        assert_eq!(said(&gateway.conditions, "Accepted"), "Accepted/Accepted");
        rig.change(|inputs, batch| inputs.set_rejection(batch, key, None));
        assert_eq!(of_listener(&rig), "Programmed/Programmed");
    }
    // Rejections for another port or another fleet have no effect.
    let other = Rejected {
        fleet: fleet("other"),
        ..rejected(RejectedKind::Listener, "80")
    };
    for key in [rejected(RejectedKind::Listener, "81"), other] {
        let commit =
            rig.change(|inputs, batch| inputs.set_rejection(batch, key, Some("no".to_owned())));
        assert!(commit.changes(rig.pipeline.outputs.statuses).is_empty());
    }
}

/// A Service, a policy for it, and a client certificate of the Gateway, to be applied in this order.
pub(crate) fn secured_service() -> [Value; 3] {
    let metadata = |name: &str| json!({"name": name, "namespace": "ns", "generation": 1});
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata("s"),
        "spec": {"ports": [{"port": 80}]},
    });
    let policy = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy", "metadata": metadata("p"),
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "s"}],
            "validation": {"hostname": "s.example.com", "wellKnownCACertificates": "System"},
        },
    });
    let pair = rcgen::generate_simple_self_signed(["gateway.example.com".to_owned()]);
    let pair = pair.expect("a certificate");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata("c"), "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": pair.cert.pem(), "tls.key": pair.signing_key.serialize_pem()},
    });
    [service, policy, secret]
}

/// The Gateway with the Secret `c` as its client certificate.
pub(crate) fn presenting(gateway: Value) -> Value {
    let client = json!({"backend": {"clientCertificateRef": {"name": "c"}}});
    set(gateway, "/spec/tls", client)
}

/// A condition while the fleet's Envoy rejects a resource with the message `no`.
fn while_rejected(
    rig: &mut Rig,
    what: RejectedKind,
    name: &str,
    condition: impl Fn(&Rig) -> String,
) -> String {
    let key = rejected(what, name);
    let message = Some("no".to_owned());
    rig.change(|inputs, batch| inputs.set_rejection(batch, key.clone(), message));
    let found = condition(rig);
    rig.change(|inputs, batch| inputs.set_rejection(batch, key, None));
    found
}

#[test]
fn rejected_resources_of_a_backend_are_reported_also_with_a_policy_and_a_client_certificate() {
    let mut rig = rig(Mode::Managed);
    let [service, policy, secret] = secured_service();
    let to_service = json!([{"backendRefs": [{"name": "s", "port": 80}]}]);
    let route = set(route("r", &["web"]), "/spec/rules", to_service);
    let mutual = presenting(gateway("web", "edge", 1));
    for (objects, cluster, secrets) in [
        (vec![service, route], "ns/s:80", &[][..]),
        (vec![policy], "ns/s:80?tls=ns/p", &["ca:ns/p"]),
        (
            vec![secret, mutual],
            "ns/s:80?tls=ns/p&client=ns/c",
            &["ca:ns/p", "ns/c"],
        ),
    ] {
        rig.put(objects);
        let resolved = |rig: &Rig| said(&rig.route("r").parents[0].conditions, "ResolvedRefs");
        assert_eq!(resolved(&rig), "ResolvedRefs/ResolvedRefs");
        let of_cluster = [
            (RejectedKind::Cluster, cluster),
            (RejectedKind::Endpoints, cluster),
        ];
        let of_cluster = of_cluster.map(|key| (key, format!("backend {cluster}")));
        let of_secrets = secrets.iter().map(|name| {
            let what = format!("secret {name} of backend {cluster}");
            ((RejectedKind::Secret, *name), what)
        });
        for ((what, name), expected) in of_cluster.into_iter().chain(of_secrets) {
            let found = while_rejected(&mut rig, what, name, resolved);
            let expected = format!("Envoy rejected {expected} (no) and keeps");
            assert!(found.contains(&expected), "{found}");
        }
    }
}

#[test]
fn a_rejected_certificate_or_ca_bundle_of_a_listener_is_reported() {
    let mut rig = rig(Mode::Managed);
    let [_, _, mut secret] = secured_service();
    let ca = secret["stringData"]["tls.crt"].clone();
    secret["stringData"]["ca.crt"] = ca;
    let validation = json!({"caCertificateRefs": [{"group": "", "kind": "Secret", "name": "c"}]});
    let mut verifying = gateway("web", "edge", 1);
    verifying["spec"]["tls"] = json!({"frontend": {"default": {"validation": validation}}});
    verifying["spec"]["listeners"] = json!([
        {"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "c"}]}},
    ]);
    rig.put([secret, verifying]);
    let programmed = |at: usize| {
        move |rig: &Rig| said(&rig.gateway("web").listeners[at].conditions, "Programmed")
    };
    assert_eq!(programmed(1)(&rig), "Programmed/Programmed");
    for (name, what) in [
        ("ns/c", "Secret ns/c"),
        ("clients:ns/web", "the CA certificates for clients"),
    ] {
        let mut of = |at| while_rejected(&mut rig, RejectedKind::Secret, name, programmed(at));
        assert_eq!(
            of(1),
            format!(
                "not Programmed/Invalid: Envoy rejected {what} (no) and keeps its last good version"
            )
        );
        assert_eq!(of(0), "Programmed/Programmed", "{name}");
    }
}

#[test]
fn a_rejected_authorization_service_of_a_listener_is_reported() {
    let mut rig = rig(Mode::Managed);
    rig.put(secured_service());
    let auth = json!({"type": "ExternalAuth", "externalAuth": {
        "protocol": "HTTP", "http": {}, "backendRef": {"name": "s", "port": 80},
    }});
    let filters = json!({"requests": [auth]});
    let checking = set(
        gateway("web", "edge", 1),
        "/spec/listeners/0/filters",
        filters,
    );
    rig.put([presenting(checking)]);
    let programmed = |rig: &Rig| said(&rig.gateway("web").listeners[0].conditions, "Programmed");
    assert_eq!(programmed(&rig), "Programmed/Programmed");
    let cluster = "ns/s:80?tls=ns/p&client=ns/c";
    for (what, name) in [
        (RejectedKind::Cluster, cluster),
        (RejectedKind::Endpoints, cluster),
        (RejectedKind::Secret, "ca:ns/p"),
        (RejectedKind::Secret, "ns/c"),
    ] {
        let found = while_rejected(&mut rig, what, name, programmed);
        assert!(
            found.contains("Envoy rejected the authorization service (no)"),
            "{found}"
        );
    }
}

#[test]
fn an_unavailable_port_makes_its_listener_not_accepted() {
    let mut rig = rig(Mode::Local);
    assert_eq!(rig.binds().len(), 1);
    let state = FleetState {
        ports: [(Port::tcp(80), "port 80 is taken".to_owned())].into(),
        ..ready()
    };
    rig.fleet(&fleet("web"), Some(state));
    let status = rig.gateway("web");
    assert_eq!(
        said(&status.listeners[0].conditions, "Accepted"),
        "not Accepted/PortUnavailable: port 80 is taken"
    );
    assert!(said(&status.conditions, "Accepted").starts_with("not Accepted/ListenersNotValid"));
    assert!(rig.binds().is_empty());
}

#[test]
fn a_different_api_version_is_reported_and_still_served() {
    let mut rig = rig(Mode::Managed);
    let version = |rig: &Rig| said(&rig.class("edge").unwrap().conditions, "SupportedVersion");
    let tell = |rig: &mut Rig, version: Option<&str>| {
        let release = version.map(|version| Release {
            version: version.to_owned(),
            experimental: false,
        });
        rig.change(|inputs, batch| inputs.set_release(batch, release))
    };
    assert_eq!(version(&rig), "SupportedVersion/SupportedVersion");
    assert!(
        tell(&mut rig, Some("v1.7.3"))
            .changes(rig.pipeline.outputs.statuses)
            .is_empty()
    );
    tell(&mut rig, Some("v1.5.0"));
    assert_eq!(
        version(&rig),
        "not SupportedVersion/UnsupportedVersion: the cluster has Gateway API v1.5.0, but Sesame supports v1.7; features that \
         differ between them may not work; install the v1.7 CRDs"
    );
    assert_eq!(
        said(&rig.class("edge").unwrap().conditions, "Accepted"),
        "Accepted/Accepted"
    );
    assert_eq!(
        said(&rig.gateway("web").conditions, "Programmed"),
        "Programmed/Programmed"
    );
    tell(&mut rig, None);
    assert_eq!(version(&rig), "SupportedVersion/SupportedVersion");
}

/// Objects of kinds that aren't read must not get a status.
#[test]
fn only_translated_kinds_get_statuses() {
    for kind in Kind::ALL {
        let served = matches!(
            kind,
            Kind::GatewayClass
                | Kind::Gateway
                | Kind::ListenerSet
                | Kind::XListenerSet
                | Kind::HTTPRoute
                | Kind::GRPCRoute
                | Kind::TLSRoute
                | Kind::TCPRoute
                | Kind::UDPRoute
                | Kind::BackendTLSPolicy
                | Kind::XBackend
                | Kind::XBackendTrafficPolicy
                | Kind::XTelemetryPolicy
                | Kind::HTTPProxy
                | Kind::Ingress
                | Kind::TLSCertificateDelegation
                | Kind::ExtensionService
                | Kind::SesameConfiguration
        ) || kind.is_of_contour();
        assert_eq!(kind.has_status(), served, "{kind}");
    }
    let rig = rig(Mode::Managed);
    let kinds: Vec<_> = rig.gateway("web").listeners[0]
        .supported_kinds
        .iter()
        .map(|kind| kind.known_kind())
        .collect();
    assert_eq!(kinds, [Some(Kind::HTTPRoute), Some(Kind::GRPCRoute)]);
    assert_eq!(rig.gateway("web").attached_listener_sets, None);
}
