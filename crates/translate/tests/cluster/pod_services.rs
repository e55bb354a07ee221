//! The Services of XBackends of type EndpointSelector.

use serde_json::{Value, json};
use sesame_api::{Kind, ObjectKey, ObjectStatus};
use sesame_model::{FleetId, PodServiceChange};
use sesame_translate::settings::Mode;
use sesame_translate::shared::pod_services::name;

use crate::rig::{Rig, class, gateway, named, route, said, set};

/// An XBackend for Pods with the label `app: api`.
fn xbackend() -> Value {
    json!({
        "apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackend",
        "metadata": {"name": "x", "namespace": "ns", "generation": 1, "uid": "uid-x"},
        "spec": {
            "type": "EndpointSelector", "endpointSelector": {"matchLabels": {"app": "api"}}, "port": {"number": 80},
        },
    })
}

fn to_xbackend() -> Value {
    let backend = json!({"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "x"});
    set(
        route("r", &["web"]),
        "/spec/rules",
        json!([{ "backendRefs": [backend] }]),
    )
}

/// The XBackend's Service, as Sesame creates it, with this UID as its owner's.
fn service(owner: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": &*name("x"), "namespace": "ns", "uid": "uid-s",
            "ownerReferences": [{
                "apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackend", "name": "x", "uid": owner,
            }],
        },
        "spec": {"clusterIP": "None", "selector": {"app": "api"}},
    })
}

fn slice(address: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "e", "namespace": "ns", "labels": {"kubernetes.io/service-name": &*name("x")},
        },
        "addressType": "IPv4", "endpoints": [{"addresses": [address]}], "ports": [],
    })
}

fn rig(mode: Mode) -> Rig {
    let mut rig = Rig::new(mode);
    rig.put([class("edge", 0), gateway("web", "edge", 1)]);
    rig
}

fn key() -> ObjectKey {
    named("x").of_kind(Kind::XBackend)
}

/// The pending change, as text.
fn pending(rig: &Rig) -> String {
    let change = rig.engine.get(rig.pipeline.outputs.pod_services, &key());
    match change.as_deref() {
        None => String::new(),
        Some(PodServiceChange::Create(service)) => {
            format!("create {:?}", service.selector)
        }
        Some(PodServiceChange::Update { uid, service }) => {
            format!("update {uid} {:?}", service.selector)
        }
        Some(PodServiceChange::Delete { uid, .. }) => format!("delete {uid}"),
    }
}

fn accepted(rig: &Rig) -> String {
    let status = rig.engine.get(rig.pipeline.outputs.statuses, &key());
    match status.as_deref() {
        Some(ObjectStatus::Policy(status)) => said(&status.ancestors[0].conditions, "Accepted"),
        other => panic!("{other:?}"),
    }
}

/// The endpoints of all clusters.
fn endpoints(rig: &Rig) -> Vec<String> {
    let endpoints = rig.engine.iter(rig.pipeline.outputs.endpoints);
    let all = endpoints.flat_map(|(_, endpoints)| endpoints.endpoints.clone());
    all.map(|endpoint| format!("{}:{}", endpoint.address, endpoint.port))
        .collect()
}

#[test]
fn a_service_is_created_once_it_is_needed_and_kept_up_to_date() {
    for mode in [Mode::Managed, Mode::Unmanaged { gateway: None }] {
        let mut rig = rig(mode);
        rig.put([xbackend()]);
        assert_eq!(pending(&rig), "", "no route refers to it");
        rig.put([to_xbackend()]);
        assert_eq!(pending(&rig), r#"create {"app": "api"}"#);
        assert_eq!(accepted(&rig), "Accepted/Accepted");
        rig.put([service("uid-x"), slice("10.0.0.1")]);
        assert_eq!(pending(&rig), "");
        assert_eq!(endpoints(&rig), ["10.0.0.1:80"]);

        // An edited Service.
        rig.put([set(
            service("uid-x"),
            "/spec/selector",
            json!({"app": "other"}),
        )]);
        assert_eq!(pending(&rig), r#"update uid-s {"app": "api"}"#);
        rig.put([service("uid-x")]);
        // An edited XBackend. The new port applies immediately.
        rig.put([set(xbackend(), "/spec/port/number", json!(81))]);
        assert_eq!(pending(&rig), "");
        assert_eq!(endpoints(&rig), ["10.0.0.1:81"]);
        rig.put([xbackend()]);

        // Routes may come and go.
        rig.remove(Kind::HTTPRoute, "ns", "r");
        assert_eq!(pending(&rig), "");
        rig.put([to_xbackend()]);
        // Its Service may be deleted before the XBackend is.
        let since = json!("2026-01-01T00:00:00Z");
        let deleting = set(xbackend(), "/metadata/deletionTimestamp", since);
        rig.put([deleting]);
        rig.remove(Kind::Service, "ns", &name("x"));
        assert_eq!(pending(&rig), "");
        rig.put([xbackend()]);
        assert_eq!(pending(&rig), r#"create {"app": "api"}"#);
    }
}

#[test]
fn an_xbackend_of_another_type_loses_its_service() {
    let mut rig = rig(Mode::Managed);
    let external = json!({
        "type": "ExternalHostname", "externalHostname": {"hostname": "a.example.com"}, "port": {"number": 80},
    });
    let external = set(xbackend(), "/spec", external);
    rig.put([external.clone(), service("uid-x"), to_xbackend()]);
    assert_eq!(pending(&rig), "delete uid-s");
    rig.put([service("other")]);
    assert_eq!(pending(&rig), "", "an earlier XBackend's");
    rig.put([xbackend()]);
    assert_eq!(pending(&rig), r#"update uid-s {"app": "api"}"#);
    rig.put([external]);
    rig.remove(Kind::Service, "ns", &name("x"));
    assert_eq!(pending(&rig), "");
}

#[test]
fn a_service_of_the_same_name_is_left_alone() {
    let mut rig = rig(Mode::Managed);
    let foreign = set(service("uid-x"), "/metadata/ownerReferences", json!([]));
    rig.put([foreign, slice("10.0.0.1"), xbackend(), to_xbackend()]);
    assert_eq!(pending(&rig), "");
    assert!(endpoints(&rig).is_empty());
    let found = accepted(&rig);
    let expected = format!("not Accepted/Invalid: Service ns/{} exists", name("x"));
    assert!(found.starts_with(&expected), "{found}");
    rig.remove(Kind::Service, "ns", &name("x"));
    assert_eq!(pending(&rig), r#"create {"app": "api"}"#);
    assert_eq!(accepted(&rig), "Accepted/Accepted");
}

#[test]
fn a_refused_write_is_reported_until_the_service_exists() {
    let mut rig = rig(Mode::Managed);
    rig.put([xbackend(), to_xbackend()]);
    let fail = |rig: &mut Rig, message: Option<&str>| {
        let message = message.map(str::to_owned);
        rig.change(|inputs, batch| inputs.set_pod_service_failure(batch, key(), message))
    };
    fail(&mut rig, Some("cannot create it: quota"));
    assert_eq!(
        accepted(&rig),
        "not Accepted/NoResources: cannot create it: quota; without this Service, Kubernetes finds no endpoints"
    );
    rig.put([service("uid-x")]);
    assert_eq!(accepted(&rig), "Accepted/Accepted");
    let unchanged = fail(&mut rig, None);
    assert!(unchanged.changes(rig.pipeline.outputs.statuses).is_empty());
}

#[test]
fn outside_a_cluster_no_service_is_written() {
    let mut rig = rig(Mode::Local);
    rig.fleet(
        &FleetId::of_gateway("ns", "web"),
        Some(sesame_model::FleetState::default()),
    );
    rig.put([xbackend(), to_xbackend(), slice("10.0.0.1")]);
    assert_eq!(pending(&rig), "");
    assert_eq!(endpoints(&rig), ["10.0.0.1:80"]);
}
