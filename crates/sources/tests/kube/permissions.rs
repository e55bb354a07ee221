//! Missing permissions.

use serde_json::{Value, json};
use sesame_api::{Kind, ObjectKey};
use sesame_testkit::api_server::{ApiServer, Channel};

use crate::subscriber::{Cluster, Subscriber, config, gateway, route, secret};

/// Grants these rules, in all namespaces, to a service account in namespace `default`.
pub(crate) async fn grant(cluster: &Cluster, account: &str, rules: Value) {
    let name = format!("test-{account}");
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": account}],
    });
    cluster.apply(&role).await;
    cluster.apply(&binding).await;
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

#[tokio::test]
async fn forbidden_kinds_are_reported_and_read_once_they_are_allowed() {
    let server = ApiServer::shared().await.unwrap();
    server.install_definitions(Channel::Standard).await.unwrap();
    let cluster = Cluster(server.admin().await.unwrap());
    cluster.namespace("permissions").await;
    cluster.apply(&route("permissions", "r", "b")).await;
    cluster.apply(&gateway("permissions", "g", "s")).await;
    cluster.apply(&secret("permissions", "s", "content")).await;
    let watch = ["list", "watch"];
    let definitions = rule(
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &watch,
    );
    let gateways = rule("gateway.networking.k8s.io", &["gateways"], &watch);
    grant(&cluster, "limited", json!([definitions, gateways])).await;

    let client = server.service_account("default", "limited").await.unwrap();
    let kinds = [Kind::Gateway, Kind::HTTPRoute, Kind::Secret];
    let mut subscriber = Subscriber::new(client, config(&kinds, Some("permissions")));
    subscriber.synced().await;
    let at = |kind, name| ObjectKey::new(kind, "permissions", name);
    assert!(subscriber.has(&at(Kind::Gateway, "g")));
    assert_eq!(subscriber.objects.len(), 1);
    subscriber
        .until("all failures", |received| received.failures.len() == 3)
        .await;
    assert_eq!(
        subscriber.failing(),
        [
            "HTTPRoute in namespace permissions: Forbidden",
            "Secret in namespace permissions: Forbidden",
            "Secret/permissions/s: Forbidden"
        ]
    );
    let messages: Vec<_> = subscriber
        .failures
        .iter()
        .map(|failure| failure.message.clone())
        .collect();
    let routes = "missing permission: grant the verbs list and watch on httproutes.gateway.networking.k8s.io: ";
    assert!(messages[0].starts_with(routes), "{}", messages[0]);
    let get = "missing permission: grant the verb get on secrets: ";
    assert!(messages[2].starts_with(get), "{}", messages[2]);

    let all = rule(
        "gateway.networking.k8s.io",
        &["gateways", "httproutes"],
        &watch,
    );
    let secrets = rule("", &["secrets"], &["get", "list", "watch"]);
    grant(&cluster, "limited", json!([definitions, all, secrets])).await;
    subscriber
        .until("the allowed objects", |received| {
            received.failures.is_empty()
                && received.has(&at(Kind::HTTPRoute, "r"))
                && received.has(&at(Kind::Secret, "s"))
        })
        .await;
    // Objects stay if they are forbidden again.
    grant(&cluster, "limited", json!([definitions])).await;
    assert_eq!(subscriber.objects.len(), 3);
}

#[tokio::test]
async fn permissions_in_one_namespace_suffice_to_watch_it() {
    let server = ApiServer::shared().await.unwrap();
    server.install_definitions(Channel::Standard).await.unwrap();
    let cluster = Cluster(server.admin().await.unwrap());
    for namespace in ["inside", "outside"] {
        cluster.namespace(namespace).await;
        cluster.apply(&route(namespace, "r", "b")).await;
    }
    let watch = ["list", "watch"];
    let definitions = rule(
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &watch,
    );
    let mut namespaces = rule("", &["namespaces"], &watch);
    namespaces["resourceNames"] = json!(["inside"]);
    grant(&cluster, "insider", json!([definitions, namespaces])).await;
    let group = "rbac.authorization.k8s.io";
    let metadata = json!({"namespace": "inside", "name": "insider"});
    let routes = rule("gateway.networking.k8s.io", &["httproutes"], &watch);
    cluster
        .apply(&json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": [routes],
        }))
        .await;
    cluster
        .apply(&json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "insider"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "insider"}],
        }))
        .await;
    let client = server.service_account("default", "insider").await.unwrap();
    let kinds = [Kind::HTTPRoute, Kind::Namespace];
    let mut subscriber = Subscriber::new(client, config(&kinds, Some("inside")));
    subscriber.synced().await;
    subscriber
        .until("no failures", |received| received.failures.is_empty())
        .await;
    let keys: Vec<_> = subscriber.objects.keys().map(ToString::to_string).collect();
    assert_eq!(keys, ["HTTPRoute/inside/r", "Namespace/inside"]);
}
