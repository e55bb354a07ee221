//! Checks the installation manifests against a real API server: it accepts them unmodified, and their RBAC rules allow
//! Sesame's requests and nothing else.
//!
//! The list of requests is maintained by hand, so removing a needed rule fails here. `cargo xtask deploy rbac` finds
//! unused rules in the conformance run's audit log.

use std::fs;
use std::path::Path;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, Patch, PatchParams, PostParams, ValidationDirective};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt};
use sesame_testkit::api_server::{ApiServer, Channel};

const GATEWAYS: &str = "gateway.networking.k8s.io";

const SESAME: &str = "projectsesame.io";

/// Sesame's own namespace.
const OWN: &str = "sesame-system";

/// A namespace with Gateways.
const SHOP: &str = "shop";

/// Requests: verbs, group, resource, namespace, name. An empty namespace means all namespaces, an empty name any name.
type Request = (
    &'static [&'static str],
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

const READ: &[&str] = &["list", "watch"];
const MANAGE: &[&str] = &["create", "delete", "get", "list", "patch", "watch"];

/// Requests that Sesame makes, grouped by crate.
const ALLOWED: &[Request] = &[
    // sources
    (
        READ,
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "",
        "",
    ),
    (READ, GATEWAYS, "gatewayclasses", "", ""),
    (READ, GATEWAYS, "gateways", "", ""),
    (READ, GATEWAYS, "httproutes", "", ""),
    (READ, GATEWAYS, "grpcroutes", "", ""),
    (READ, GATEWAYS, "referencegrants", "", ""),
    (READ, SESAME, "httpproxies", "", ""),
    (READ, SESAME, "tlscertificatedelegations", "", ""),
    (READ, SESAME, "extensionservices", "", ""),
    (READ, SESAME, "sesameconfigurations", "", ""),
    (READ, "networking.k8s.io", "ingresses", "", ""),
    (READ, "networking.k8s.io", "ingressclasses", "", ""),
    (READ, "", "namespaces", "", ""),
    (READ, "", "services", "", ""),
    (READ, "discovery.k8s.io", "endpointslices", "", ""),
    (&["get", "list", "watch"], "", "secrets", "", ""),
    (&["get", "list", "watch"], "", "configmaps", "", ""),
    // status: a patch, and a read after a conflict
    (&["get"], GATEWAYS, "gatewayclasses", "", "sesame"),
    // the finalizer
    (&["patch"], GATEWAYS, "gatewayclasses", "", "sesame"),
    (&["patch"], GATEWAYS, "gatewayclasses/status", "", "sesame"),
    (&["get"], GATEWAYS, "gateways", SHOP, "web"),
    (&["patch"], GATEWAYS, "gateways/status", SHOP, "web"),
    (&["get"], GATEWAYS, "httproutes", SHOP, "shop"),
    (&["patch"], GATEWAYS, "httproutes/status", SHOP, "shop"),
    (&["patch"], GATEWAYS, "grpcroutes/status", SHOP, "shop"),
    (&["get"], SESAME, "httpproxies", SHOP, "shop"),
    (&["patch"], SESAME, "httpproxies/status", SHOP, "shop"),
    (&["get"], SESAME, "extensionservices", SHOP, "shop"),
    (&["patch"], SESAME, "extensionservices/status", SHOP, "shop"),
    (&["get"], SESAME, "sesameconfigurations", OWN, "sesame"),
    (
        &["patch"],
        SESAME,
        "sesameconfigurations/status",
        OWN,
        "sesame",
    ),
    (&["get"], "networking.k8s.io", "ingresses", SHOP, "shop"),
    (
        &["patch"],
        "networking.k8s.io",
        "ingresses/status",
        SHOP,
        "shop",
    ),
    // fleets
    (MANAGE, "", "serviceaccounts", SHOP, ""),
    (MANAGE, "", "configmaps", SHOP, ""),
    (MANAGE, "", "services", SHOP, ""),
    (MANAGE, "apps", "deployments", SHOP, ""),
    (MANAGE, "apps", "daemonsets", SHOP, ""),
    (MANAGE, "policy", "poddisruptionbudgets", SHOP, ""),
    (MANAGE, "networking.k8s.io", "networkpolicies", SHOP, ""),
    (MANAGE, "autoscaling", "horizontalpodautoscalers", SHOP, ""),
    // the default fleet
    (MANAGE, "", "services", OWN, ""),
    (MANAGE, "apps", "deployments", OWN, ""),
    // identity
    (
        &["create", "delete", "get", "update"],
        "",
        "secrets",
        SHOP,
        "",
    ),
    (
        &["delete", "get", "list", "update", "watch"],
        "",
        "secrets",
        OWN,
        "sesame-ca",
    ),
    (
        &["delete", "get", "list", "update", "watch"],
        "",
        "secrets",
        OWN,
        "sesame-xds",
    ),
    (&["create"], "", "secrets", OWN, ""),
    // leader election and Events
    (&["create"], "coordination.k8s.io", "leases", OWN, ""),
    (
        &["get", "update"],
        "coordination.k8s.io",
        "leases",
        OWN,
        "sesame-leader",
    ),
    (&["create", "patch"], "events.k8s.io", "events", SHOP, ""),
    (
        &["create", "patch"],
        "events.k8s.io",
        "events",
        "default",
        "",
    ),
];

/// Requests that would make Sesame's service account a target, or that only a bug would cause.
const DENIED: &[Request] = &[
    (
        &["patch"],
        SESAME,
        "tlscertificatedelegations/status",
        SHOP,
        "shop",
    ),
    (
        &["create", "patch", "update", "delete"],
        SESAME,
        "extensionservices",
        SHOP,
        "shop",
    ),
    (
        &["create", "patch", "update", "delete"],
        SESAME,
        "sesameconfigurations",
        OWN,
        "sesame",
    ),
    (
        &["create", "patch", "update", "delete"],
        SESAME,
        "httpproxies",
        SHOP,
        "shop",
    ),
    (
        &["create", "patch", "update", "delete"],
        "networking.k8s.io",
        "ingresses",
        SHOP,
        "shop",
    ),
    (
        &["create", "patch", "update", "delete"],
        GATEWAYS,
        "gateways",
        SHOP,
        "web",
    ),
    (
        &["create", "patch", "update", "delete"],
        GATEWAYS,
        "httproutes",
        SHOP,
        "shop",
    ),
    (
        &["update", "delete"],
        GATEWAYS,
        "gatewayclasses",
        "",
        "sesame",
    ),
    (
        &["patch", "update"],
        GATEWAYS,
        "referencegrants",
        SHOP,
        "any",
    ),
    (&["get", "list", "create", "delete"], "", "pods", SHOP, ""),
    (&["create"], "", "pods/exec", SHOP, ""),
    (&["create"], "", "serviceaccounts/token", SHOP, ""),
    (&["get", "list"], "", "nodes", "", ""),
    (&["create", "patch", "delete"], "", "namespaces", "", "any"),
    (
        &["create", "patch", "update", "delete"],
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "",
        "any",
    ),
    (
        &["create", "patch", "escalate", "bind"],
        "rbac.authorization.k8s.io",
        "clusterroles",
        "",
        "any",
    ),
    (
        &["create", "patch"],
        "rbac.authorization.k8s.io",
        "rolebindings",
        SHOP,
        "any",
    ),
    (&["impersonate"], "", "users", "", "any"),
    (
        &["get", "update"],
        "coordination.k8s.io",
        "leases",
        OWN,
        "another",
    ),
    (
        &["create", "get", "update"],
        "coordination.k8s.io",
        "leases",
        SHOP,
        "sesame-leader",
    ),
    (&["deletecollection"], "", "secrets", SHOP, ""),
];

fn objects(path: &str) -> Vec<DynamicObject> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    let text = fs::read_to_string(path).expect("the file is in the repository");
    serde_saphyr::from_multiple(&text).expect("the file contains objects")
}

/// Applies objects as `kubectl apply --server-side` does; an unknown field is an error.
async fn apply(client: &Client, objects: &[DynamicObject]) {
    let params = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("install")
    };
    for object in objects {
        let types = object.types.as_ref().expect("each object has a kind");
        let kind =
            GroupVersionKind::try_from(types).expect("an apiVersion is a group and a version");
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let name = object.name_any();
        if let Err(error) = api.patch(&name, &params, &Patch::Apply(object)).await {
            panic!("{} {name}: {error}", types.kind);
        }
    }
}

/// Whether the client's user may make this request.
async fn may(client: &Client, verb: &str, request: &Request) -> bool {
    let (_, group, resource, namespace, name) = request;
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: text(verb),
                group: text(group),
                resource: text(resource),
                subresource: text(part),
                namespace: text(namespace),
                name: text(name),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let response = api.create(&PostParams::default(), &review).await;
    let response = response.expect("every user may review its own access");
    response.status.expect("a review has a status").allowed
}

#[tokio::test]
async fn the_api_server_accepts_the_manifests_and_they_allow_exactly_what_sesame_needs() {
    let server = ApiServer::start().await.unwrap();
    server
        .install_definitions(Channel::Experimental)
        .await
        .unwrap();
    let admin = server.admin().await.unwrap();
    // Twice, as in an upgrade.
    let files = [
        "deploy/manifests/sesame.yaml",
        "deploy/example-shop.yaml",
        "deploy/example.yaml",
        "deploy/example-httpproxy.yaml",
        "deploy/example-envoy.yaml",
    ];
    for path in files.repeat(2) {
        apply(&admin, &objects(path)).await;
    }

    let sesame = server.service_account(OWN, "sesame").await.unwrap();
    let mut wrong = Vec::new();
    for (list, right) in [(ALLOWED, true), (DENIED, false)] {
        for request in list {
            for verb in request.0 {
                if may(&sesame, verb, request).await != right {
                    wrong.push((*verb, request.1, request.2, request.3, request.4, right));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "verb, group, resource, namespace, name, whether it should be allowed: {wrong:#?}"
    );

    // Another service account in the same namespace has none of these permissions.
    let other = server.service_account(OWN, "default").await.unwrap();
    assert!(!may(&other, "list", &(READ, GATEWAYS, "gateways", "", "")).await);
}
