//! The operator on a real API server, with the permissions in the manifests. No pods run.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use sesame_operator::OperatorConfig;
use sesame_testkit::api_server::ApiServer;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An API server with the operator's manifests, and a running operator.
struct Fixture {
    _server: ApiServer,
    admin: Client,
    operator: Client,
    _running: JoinSet<()>,
}

impl Fixture {
    async fn new() -> Self {
        let server = ApiServer::start().await.unwrap();
        let admin = server.admin().await.unwrap();
        let operator = server
            .service_account("sesame-system", "sesame-operator")
            .await
            .unwrap();
        let mut running = JoinSet::new();
        let config = OperatorConfig {
            image: "sesame:1".to_owned(),
            envoy_image: "envoy:1".to_owned(),
            version: "1".to_owned(),
        };
        let fixture = Self {
            _server: server,
            admin,
            operator: operator.clone(),
            _running: JoinSet::new(),
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let manifests = fs::read_to_string(root.join("deploy/manifests/operator.yaml")).unwrap();
        let manifests: Vec<Value> = serde_saphyr::from_multiple(&manifests).unwrap();
        for object in manifests {
            fixture.apply(object).await;
        }
        running.spawn(sesame_operator::run(operator, config));
        Self {
            _running: running,
            ..fixture
        }
    }

    fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, resource),
            None => Api::all_with(self.admin.clone(), resource),
        }
    }

    async fn apply(&self, object: Value) {
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str();
        let api = self.api(&resource(api_version, kind), namespace);
        let params = PatchParams::apply("test").force();
        let name = text(&metadata["name"]);
        eventually(async || {
            let applied = api.patch(name, &params, &Patch::Apply(&object)).await;
            applied.map_err(|error| format!("{kind} {name}: {error}"))
        })
        .await;
    }

    async fn get(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let api = self.api(&resource(api_version, kind), namespace);
        let found = api.get_opt(name).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    /// Creates a namespace with a configuration.
    async fn configure(&self, namespace: &str, spec: Value) {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace },
        }))
        .await;
        self.apply(json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "SesameConfiguration",
            "metadata": { "name": "edge", "namespace": namespace },
            "spec": spec,
        }))
        .await;
    }

    /// Waits for the reason of the condition `Available`, and returns its message.
    async fn reason(&self, namespace: &str, reason: &str) -> String {
        eventually(async || {
            let found = self
                .get(
                    "projectsesame.io/v1alpha1",
                    "SesameConfiguration",
                    namespace,
                    "edge",
                )
                .await
                .ok_or("the configuration is gone")?;
            let condition = &found["status"]["conditions"][0];
            match condition["reason"] == reason {
                true => Ok(text(&condition["message"]).to_owned()),
                false => Err(format!("{condition}")),
            }
        })
        .await
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Polls until the result isn't an error.
async fn eventually<T, E: std::fmt::Display>(mut poll: impl AsyncFnMut() -> Result<T, E>) -> T {
    let mut last = String::new();
    let polled = timeout(TIMEOUT, async {
        loop {
            match poll().await {
                Ok(done) => return done,
                Err(error) => last = error.to_string(),
            }
            sleep(POLL_INTERVAL).await;
        }
    })
    .await;
    polled.unwrap_or_else(|_| panic!("timeout: {last}"))
}

fn instance(name: &str) -> Value {
    json!({
        "gateway": { "controllerName": format!("example.com/{name}") },
        "ingress": { "classNames": [name] },
        "envoy": {},
    })
}

#[tokio::test]
async fn an_instance_exists_as_long_as_its_configuration() {
    let fixture = Fixture::new().await;
    fixture.configure("team", instance("team")).await;
    let message = fixture.reason("team", "Unavailable").await;
    assert!(
        message.starts_with("0 of 2 replicas are available"),
        "{message}"
    );
    let binding = "sesame-instance-fleets:team";
    let rbac = "rbac.authorization.k8s.io/v1";
    assert!(
        fixture
            .get(rbac, "ClusterRoleBinding", "", binding)
            .await
            .is_some()
    );

    // With fewer namespaces, it has fewer permissions.
    let mut spec = instance("team");
    spec["instance"] = json!({ "replicas": 1 });
    spec["watchNamespaces"] = json!(["default"]);
    fixture.configure("team", spec).await;
    eventually(async || {
        let deployment = fixture.get("apps/v1", "Deployment", "team", "sesame").await;
        let replicas = &deployment.ok_or("no Deployment")?["spec"]["replicas"];
        let left = fixture.get(rbac, "ClusterRoleBinding", "", binding).await;
        match (replicas == 1, left) {
            (true, None) => Ok(()),
            (_, left) => Err(format!("{replicas} replicas, {left:?}")),
        }
    })
    .await;
    assert!(
        fixture
            .get(rbac, "RoleBinding", "default", binding)
            .await
            .is_some()
    );

    // An object of a fleet, as Sesame creates them.
    fixture
        .apply(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "web",
                "namespace": "default",
                "labels": {
                    "app.kubernetes.io/managed-by": "sesame",
                    "app.kubernetes.io/instance": "team",
                    "projectsesame.io/fleet": "web",
                },
            },
        }))
        .await;
    let configurations = resource("projectsesame.io/v1alpha1", "SesameConfiguration");
    let configurations = fixture.api(&configurations, Some("team"));
    configurations
        .delete("edge", &DeleteParams::default())
        .await
        .unwrap();
    eventually(
        async || match configurations.get_opt("edge").await.unwrap() {
            None => Ok(()),
            Some(found) => Err(format!("{:?}", found.data)),
        },
    )
    .await;
    for (api_version, kind, namespace, name) in [
        ("apps/v1", "Deployment", "team", "sesame"),
        ("v1", "ServiceAccount", "team", "sesame"),
        ("v1", "Service", "team", "sesame-xds"),
        ("v1", "Service", "team", "sesame-metrics"),
        ("policy/v1", "PodDisruptionBudget", "team", "sesame"),
        ("networking.k8s.io/v1", "NetworkPolicy", "team", "sesame"),
        (
            rbac,
            "ClusterRoleBinding",
            "",
            "sesame-instance-cluster:team",
        ),
        (rbac, "RoleBinding", "default", binding),
        (rbac, "RoleBinding", "team", "sesame-instance-own:team"),
        ("v1", "ConfigMap", "default", "web"),
    ] {
        let left = fixture.get(api_version, kind, namespace, name).await;
        assert!(left.is_none(), "{left:?}");
    }
}

#[tokio::test]
async fn objects_of_others_are_left_unchanged() {
    let fixture = Fixture::new().await;
    fixture
        .apply(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team" } }))
        .await;
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": "sesame", "namespace": "team" },
    });
    fixture.apply(account).await;
    fixture.configure("team", instance("team")).await;
    let message = fixture.reason("team", "ObjectExists").await;
    assert!(
        message.contains("ServiceAccount team/sesame exists"),
        "{message}"
    );
    let found = fixture
        .get("v1", "ServiceAccount", "team", "sesame")
        .await
        .unwrap();
    assert!(found["metadata"]["labels"].is_null(), "{found}");

    // Younger, or of the same age and with a later name.
    fixture.configure("younger", instance("team")).await;
    let message = fixture.reason("younger", "Conflict").await;
    assert!(
        message.contains("team/edge has the same gateway.controllerName"),
        "{message}"
    );
    assert!(
        fixture
            .get("apps/v1", "Deployment", "younger", "sesame")
            .await
            .is_none()
    );
}

#[tokio::test]
async fn the_operator_cant_grant_other_permissions() {
    let fixture = Fixture::new().await;
    let bindings = resource("rbac.authorization.k8s.io/v1", "ClusterRoleBinding");
    let api: Api<DynamicObject> = Api::all_with(fixture.operator.clone(), &bindings);
    let bind = async |role: &str| {
        let binding = json!({
            "apiVersion": bindings.api_version,
            "kind": bindings.kind,
            "metadata": { "name": "escalated" },
            "roleRef": { "apiGroup": bindings.group, "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": "a", "namespace": "default" }],
        });
        api.patch(
            "escalated",
            &PatchParams::apply("test"),
            &Patch::Apply(&binding),
        )
        .await
    };
    let error = bind("cluster-admin").await.unwrap_err().to_string();
    assert!(error.contains("not currently held"), "{error}");
    eventually(async || bind("sesame-instance-own").await).await;
}
