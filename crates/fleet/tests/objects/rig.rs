//! A fleet on an API server. In: its desired state. Out: objects and observations.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use sesame_fleet::kube::{
    self as fleets, FleetSpec, FleetStates, FleetsConfig, Provisioner, names,
};
use sesame_model::{
    FleetId, FleetLogLevel, FleetParameters, FleetRequest, FleetState, GatewayOwner, Port,
    TaintEffect, Toleration, TrafficPolicy,
};
use sesame_testkit::api_server::ApiServer;
use tokio::time::{sleep, timeout};

/// Generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between polls.
const PAUSE: Duration = Duration::from_millis(50);

/// Long enough for an unwanted write to show.
const MOMENT: Duration = Duration::from_secs(2);

/// The only fleet of a namespace, and the replica that reconciles it.
pub(crate) struct Rig {
    namespace: String,
    client: Client,
    running: Option<(Provisioner, FleetStates)>,
}

/// A fleet without parameters.
pub(crate) fn spec() -> FleetSpec {
    FleetSpec {
        request: FleetRequest {
            owner: Some(GatewayOwner {
                name: "web".into(),
                uid: "uid".to_owned(),
                class: "sesame".into(),
            }),
            ports: [Port::tcp(80)].into(),
            ..FleetRequest::new()
        },
        parameters: FleetParameters::default(),
        bootstrap: "{}".into(),
        module: true,
        files: BTreeMap::new(),
    }
}

/// A fleet with nearly every parameter set.
pub(crate) fn chosen() -> FleetSpec {
    let pair = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let mut spec = spec();
    spec.request.labels = pair("team", "shop");
    spec.request.annotations = pair("example.com/note", "hello");
    spec.request.ports.extend([Port::tcp(443), Port::udp(443)]);
    spec.parameters = FleetParameters {
        service_annotations: Some(pair("lb.example/speed", "high")),
        load_balancer_class: Some("example.com/lb".to_owned()),
        load_balancer_source_ranges: Some(vec!["198.51.100.0/24".to_owned()]),
        external_traffic_policy: Some(TrafficPolicy::Local),
        image_pull_secrets: Some(vec!["pull".to_owned()]),
        cpu_request: Some(500),
        cpu_limit: Some(2000),
        memory_request: Some(1_500_000),
        memory_limit: Some(1 << 30),
        node_selector: Some(pair("role", "edge")),
        tolerations: Some(vec![
            Toleration::default(),
            Toleration {
                key: Some("role".to_owned()),
                value: Some("edge".to_owned()),
                effect: Some(TaintEffect::NoExecute),
                seconds: Some(30),
            },
        ]),
        drain_delay: Some(Duration::from_millis(1500)),
        log_level: Some(FleetLogLevel::Debug),
        ..FleetParameters::default()
    };
    spec
}

impl Rig {
    pub(crate) async fn new(namespace: &str) -> Self {
        let server = ApiServer::shared()
            .await
            .unwrap_or_else(|error| panic!("{error:#}"));
        let client = server.admin().await.unwrap();
        let resource = resource("Namespace");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let made = DynamicObject::new(namespace, &resource);
        api.create(&PostParams::default(), &made).await.unwrap();
        let mut rig = Self {
            namespace: namespace.to_owned(),
            client: client.clone(),
            running: None,
        };
        rig.run(client);
        rig
    }

    /// Another replica.
    pub(crate) async fn beside(&self) -> Self {
        let mut rig = Self {
            namespace: self.namespace.clone(),
            client: self.client.clone(),
            running: None,
        };
        rig.run(self.client.clone());
        rig
    }

    fn run(&mut self, client: Client) {
        // Every test has its own instance, so that it doesn't watch the objects of another.
        let config = FleetsConfig::new(&self.namespace, "envoy:1", "sesame:1");
        self.running = Some(fleets::start(client, config));
    }

    /// Ends this replica.
    pub(crate) async fn stop(&mut self) {
        self.running = None;
        sleep(PAUSE).await;
    }

    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.run(self.client.clone());
    }

    pub(crate) async fn run_as(&mut self, user: &str) {
        self.stop().await;
        let server = ApiServer::shared().await.unwrap();
        self.run(server.client(user, &[]).await.unwrap());
    }

    /// Restarts the replica with read-only permissions.
    pub(crate) async fn run_as_reader(&mut self) {
        let name = format!("reader-{}", self.namespace);
        let group = "rbac.authorization.k8s.io";
        for (kind, rest) in [
            (
                "ClusterRole",
                json!({ "rules": [
                    { "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"] },
                ] }),
            ),
            (
                "ClusterRoleBinding",
                json!({
                    "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
                    "subjects": [{ "apiGroup": group, "kind": "User", "name": name }],
                }),
            ),
        ] {
            let resource = resource(kind);
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let made = DynamicObject::new(&name, &resource).data(rest);
            api.create(&PostParams::default(), &made).await.unwrap();
        }
        self.run_as(&name).await;
    }

    fn provisioner(&self) -> &Provisioner {
        &self.running.as_ref().expect("a replica that runs").0
    }

    pub(crate) fn want(&self, spec: Option<FleetSpec>) {
        self.provisioner().want(self.fleet(), spec);
    }

    pub(crate) fn lead(&self) {
        self.provisioner().lead(true);
    }

    pub(crate) fn settled(&self) {
        self.provisioner().settled();
    }

    fn fleet(&self) -> FleetId {
        FleetId::of_gateway(self.namespace.as_str(), "web")
    }

    pub(crate) fn name(&self) -> String {
        names::object(&self.fleet())
    }

    /// The next observation that `pick` accepts.
    pub(crate) async fn observed(&mut self, pick: impl Fn(&FleetState) -> bool) -> FleetState {
        let fleet = self.fleet();
        let (_, observations) = self.running.as_mut().expect("a replica that runs");
        let mut last = None;
        let search = async {
            loop {
                let (of, observation) = observations.recv().await.expect("observations");
                assert_eq!(of, fleet);
                if let Some(observation) = observation {
                    if pick(&observation) {
                        return observation;
                    }
                    last = Some(observation);
                }
            }
        };
        match timeout(PATIENCE, search).await {
            Ok(observation) => observation,
            Err(_) => panic!("not observed; the last was {last:?}"),
        }
    }

    /// All observations of the next [`MOMENT`].
    pub(crate) async fn observed_soon(&mut self) -> Vec<Option<FleetState>> {
        let (_, observations) = self.running.as_mut().expect("a replica that runs");
        let mut seen = Vec::new();
        while let Ok(Some((_, observation))) = timeout(MOMENT, observations.recv()).await {
            seen.push(observation);
        }
        seen
    }

    /// Waits long enough for an unwanted write to show.
    pub(crate) async fn settle(&self) {
        sleep(MOMENT).await;
    }

    pub(crate) async fn get(&self, kind: &str) -> Option<Value> {
        self.get_named(kind, &self.name()).await
    }

    pub(crate) async fn get_named(&self, kind: &str, name: &str) -> Option<Value> {
        let found = self.api(kind).get_opt(name).await.unwrap()?;
        Some(serde_json::to_value(found).unwrap())
    }

    /// Waits until the object exists and `right` accepts it.
    pub(crate) async fn until(&self, kind: &str, right: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        let search = async {
            loop {
                last = self.get(kind).await;
                if let Some(object) = last.as_ref().filter(|object| right(object)) {
                    return object.clone();
                }
                sleep(PAUSE).await;
            }
        };
        match timeout(PATIENCE, search).await {
            Ok(object) => object,
            Err(_) => panic!("{kind} is not as it should be: {:#}", json!(last)),
        }
    }

    pub(crate) async fn until_there(&self, kind: &str) {
        self.until(kind, |_| true).await;
    }

    pub(crate) async fn until_gone(&self, kind: &str) {
        let search = async {
            while self.get(kind).await.is_some() {
                sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, search)
            .await
            .unwrap_or_else(|_| panic!("{kind} is still there"));
    }

    pub(crate) async fn all_gone(&self) {
        for kind in crate::KINDS {
            self.until_gone(kind).await;
        }
    }

    pub(crate) async fn create(&self, kind: &str, object: Value) {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let params = PostParams::default();
        self.api(kind).create(&params, &object).await.unwrap();
    }

    pub(crate) async fn delete(&self, kind: &str) {
        let params = DeleteParams::default();
        self.api(kind).delete(&self.name(), &params).await.unwrap();
    }

    /// A merge patch, as by `kubectl patch`.
    pub(crate) async fn merge(&self, kind: &str, patch: Value) {
        let params = PatchParams {
            field_manager: Some("another-manager".to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        let api = self.api(kind);
        api.patch(&self.name(), &params, &patch).await.unwrap();
    }

    /// Patches the status, as a controller does.
    pub(crate) async fn status(&self, kind: &str, patch: Value) {
        let params = PatchParams::default();
        let patch = Patch::Merge(patch);
        let api = self.api(kind);
        api.patch_status(&self.name(), &params, &patch)
            .await
            .unwrap();
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }
}

fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "Deployment" | "DaemonSet" => ("apps", "v1"),
        "PodDisruptionBudget" => ("policy", "v1"),
        "HorizontalPodAutoscaler" => ("autoscaling", "v2"),
        "ClusterRole" | "ClusterRoleBinding" => ("rbac.authorization.k8s.io", "v1"),
        _ => ("", "v1"),
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
