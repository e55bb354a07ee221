//! A fleet on an API server. In: its desired state. Out: objects and states.

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

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Long enough to detect an unneeded write.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// A namespace with one fleet, and a replica that reconciles it.
pub(crate) struct Fixture {
    namespace: String,
    /// Whether the fleet's Gateway is in another namespace.
    own_namespace: bool,
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
pub(crate) fn all_parameters() -> FleetSpec {
    let pair = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let mut spec = spec();
    spec.request.labels = pair("team", "shop");
    spec.request.annotations = pair("example.com/note", "hello");
    spec.request.ports.extend([Port::tcp(443), Port::udp(443)]);
    spec.parameters = FleetParameters {
        network_policy: Some(true),
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

impl Fixture {
    pub(crate) async fn new(namespace: &str) -> Self {
        Self::with(namespace, false).await
    }

    /// All fleets are in this namespace, which is Sesame's, and the Gateway in another one.
    pub(crate) async fn in_own_namespace(namespace: &str) -> Self {
        Self::with(namespace, true).await
    }

    async fn with(namespace: &str, own_namespace: bool) -> Self {
        let server = ApiServer::shared()
            .await
            .unwrap_or_else(|error| panic!("{error:#}"));
        let client = server.admin().await.unwrap();
        let resource = resource("Namespace");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let created = DynamicObject::new(namespace, &resource);
        api.create(&PostParams::default(), &created).await.unwrap();
        let mut fixture = Self {
            namespace: namespace.to_owned(),
            own_namespace,
            client: client.clone(),
            running: None,
        };
        fixture.run(client);
        fixture
    }

    /// Starts another replica for the same fleet.
    pub(crate) async fn second_replica(&self) -> Self {
        let mut fixture = Self {
            namespace: self.namespace.clone(),
            own_namespace: self.own_namespace,
            client: self.client.clone(),
            running: None,
        };
        fixture.run(self.client.clone());
        fixture
    }

    fn run(&mut self, client: Client) {
        // Each test has its own instance, so that it doesn't watch other tests' objects.
        let mut config = FleetsConfig::new(&self.namespace, "envoy:1", "sesame:1");
        config.own_namespace = self.own_namespace;
        let running = fleets::start(client, config);
        running.0.set_sesame_rolled_out(true);
        self.running = Some(running);
    }

    /// Stops this replica.
    pub(crate) async fn stop(&mut self) {
        self.running = None;
        sleep(POLL_INTERVAL).await;
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
    pub(crate) async fn run_read_only(&mut self) {
        let name = self.reader_name();
        let group = "rbac.authorization.k8s.io";
        self.set_verbs(&["get", "list", "watch"]).await;
        let binding = json!({
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": name }],
        });
        self.apply_cluster_wide("ClusterRoleBinding", binding).await;
        self.run_as(&name).await;
    }

    /// Grants all permissions to the read-only user.
    pub(crate) async fn allow_writes(&self) {
        self.set_verbs(&["*"]).await;
    }

    async fn set_verbs(&self, verbs: &[&str]) {
        let rule = json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": verbs });
        self.apply_cluster_wide("ClusterRole", json!({ "rules": [rule] }))
            .await;
    }

    async fn apply_cluster_wide(&self, kind: &str, rest: Value) {
        let (name, resource) = (self.reader_name(), resource(kind));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let object = DynamicObject::new(&name, &resource).data(rest);
        let params = PatchParams::apply("test").force();
        let patch = Patch::Apply(&object);
        api.patch(&name, &params, &patch).await.unwrap();
    }

    fn reader_name(&self) -> String {
        format!("reader-{}", self.namespace)
    }

    /// A client with the permissions of [`run_read_only`](Self::run_read_only).
    pub(crate) async fn reader(&self) -> Client {
        let server = ApiServer::shared().await.unwrap();
        server.client(&self.reader_name(), &[]).await.unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn provisioner(&self) -> &Provisioner {
        &self.running.as_ref().expect("a running replica").0
    }

    pub(crate) fn set_fleet(&self, spec: Option<FleetSpec>) {
        self.provisioner().set_fleet(self.fleet(), spec);
    }

    pub(crate) fn lead(&self) {
        self.provisioner().set_leading(true);
    }

    /// Sets whether all replicas of Sesame run the same release; initially true.
    pub(crate) fn set_sesame_rolled_out(&self, rolled_out: bool) {
        self.provisioner().set_sesame_rolled_out(rolled_out);
    }

    pub(crate) fn mark_complete(&self) {
        self.provisioner().mark_complete();
    }

    fn fleet(&self) -> FleetId {
        let namespace = match self.own_namespace {
            true => "elsewhere",
            false => &self.namespace,
        };
        FleetId::of_gateway(namespace, "web")
    }

    pub(crate) fn name(&self) -> String {
        names::object(&self.fleet())
    }

    /// Waits for a state that `pick` accepts.
    pub(crate) async fn until_state(&mut self, pick: impl Fn(&FleetState) -> bool) -> FleetState {
        let fleet = self.fleet();
        let (_, states) = self.running.as_mut().expect("a running replica");
        let mut last = None;
        let search = async {
            loop {
                let (of, state) = states.recv().await.expect("states");
                assert_eq!(of, fleet);
                if let Some(state) = state {
                    if pick(&state) {
                        return state;
                    }
                    last = Some(state);
                }
            }
        };
        match timeout(TIMEOUT, search).await {
            Ok(state) => state,
            Err(_) => panic!("not reported; the last state was {last:?}"),
        }
    }

    /// All states received within [`SETTLE_TIME`].
    pub(crate) async fn states_within_settle_time(&mut self) -> Vec<Option<FleetState>> {
        let (_, states) = self.running.as_mut().expect("a running replica");
        let mut seen = Vec::new();
        while let Ok(Some((_, state))) = timeout(SETTLE_TIME, states.recv()).await {
            seen.push(state);
        }
        seen
    }

    /// Waits long enough to detect an unneeded write.
    pub(crate) async fn settle(&self) {
        sleep(SETTLE_TIME).await;
    }

    pub(crate) async fn get(&self, kind: &str) -> Option<Value> {
        self.get_named(kind, &self.name()).await
    }

    pub(crate) async fn get_named(&self, kind: &str, name: &str) -> Option<Value> {
        let found = self.api(kind).get_opt(name).await.unwrap()?;
        Some(serde_json::to_value(found).unwrap())
    }

    /// Waits until the object exists and `accept` accepts it.
    pub(crate) async fn until(&self, kind: &str, accept: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        let search = async {
            loop {
                last = self.get(kind).await;
                if let Some(object) = last.as_ref().filter(|object| accept(object)) {
                    return object.clone();
                }
                sleep(POLL_INTERVAL).await;
            }
        };
        match timeout(TIMEOUT, search).await {
            Ok(object) => object,
            Err(_) => panic!("{kind} never reached the expected state: {:#}", json!(last)),
        }
    }

    pub(crate) async fn until_exists(&self, kind: &str) {
        self.until(kind, |_| true).await;
    }

    pub(crate) async fn until_gone(&self, kind: &str) {
        self.until_named_gone(kind, &self.name()).await;
    }

    pub(crate) async fn until_named_gone(&self, kind: &str, name: &str) {
        let search = async {
            while self.get_named(kind, name).await.is_some() {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(TIMEOUT, search)
            .await
            .unwrap_or_else(|_| panic!("{kind} {name} still exists"));
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

    /// Applies a merge patch, as `kubectl patch` does.
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
        let (client, resource) = (self.client.clone(), resource(kind));
        match kind {
            "GatewayClass" => Api::all_with(client, &resource),
            _ => Api::namespaced_with(client, &self.namespace, &resource),
        }
    }
}

fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "Deployment" | "DaemonSet" => ("apps", "v1"),
        "NetworkPolicy" => ("networking.k8s.io", "v1"),
        "PodDisruptionBudget" => ("policy", "v1"),
        "HorizontalPodAutoscaler" => ("autoscaling", "v2"),
        "Gateway" | "GatewayClass" | "TCPRoute" | "UDPRoute" => ("gateway.networking.k8s.io", "v1"),
        "ClusterRole" | "ClusterRoleBinding" => ("rbac.authorization.k8s.io", "v1"),
        _ => ("", "v1"),
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
