//! A fleet on an API server: wishes in, objects and observations out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use sesame_api::NamespacedName;
use sesame_fleet::kube::{
    self as fleets, Config, FleetSpec, Observation, Observations, Port, Provisioner, names,
};
use sesame_model::{
    FleetId, FleetLogLevel, FleetParameters, TaintEffect, Toleration, TrafficPolicy,
};
use sesame_testkit::api_server::ApiServer;
use tokio::time::{sleep, timeout};

/// For a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between looks at something that is awaited.
const PAUSE: Duration = Duration::from_millis(50);

/// Long enough for what shouldn't happen.
const MOMENT: Duration = Duration::from_secs(2);

/// The one fleet of a namespace, and who keeps it.
pub(crate) struct Rig {
    namespace: String,
    client: Client,
    running: Option<(Provisioner, Observations)>,
}

/// A fleet whose owner asks for nothing.
pub(crate) fn spec(namespace: &str) -> FleetSpec {
    FleetSpec {
        gateway: NamespacedName::new(namespace, "web"),
        gateway_uid: "uid".to_owned(),
        gateway_class: "sesame".into(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        ports: BTreeSet::from([Port::tcp(80)]),
        addresses: Vec::new(),
        parameters: FleetParameters::default(),
        bootstrap: "{}".into(),
        module: true,
        files: BTreeMap::new(),
    }
}

/// A fleet whose owner has chosen what there is to choose.
pub(crate) fn chosen(namespace: &str) -> FleetSpec {
    let pair = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let mut spec = spec(namespace);
    spec.labels = pair("team", "shop");
    spec.annotations = pair("example.com/note", "hello");
    spec.ports.extend([Port::tcp(443), Port::udp(443)]);
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
        // Every test has an instance of its own, so that none sees another's objects.
        let config = Config::new(&self.namespace, "envoy:1", "sesame:1");
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

    /// A replica that may look at everything and write nothing.
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
        FleetId::of_gateway(&self.namespace, "web")
    }

    pub(crate) fn name(&self) -> String {
        names::object(&self.fleet())
    }

    /// The first observation from now on that `pick` takes.
    pub(crate) async fn observed(&mut self, pick: impl Fn(&Observation) -> bool) -> Observation {
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

    /// All observations of the next moment.
    pub(crate) async fn observed_soon(&mut self) -> Vec<Option<Observation>> {
        let (_, observations) = self.running.as_mut().expect("a replica that runs");
        let mut seen = Vec::new();
        while let Ok(Some((_, observation))) = timeout(MOMENT, observations.recv()).await {
            seen.push(observation);
        }
        seen
    }

    /// Lets pass what time something unwanted would need.
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

    /// Waits until the object is as it should be.
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

    /// What `kubectl patch` does.
    pub(crate) async fn merge(&self, kind: &str, patch: Value) {
        let params = PatchParams {
            field_manager: Some("somebody".to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        let api = self.api(kind);
        api.patch(&self.name(), &params, &patch).await.unwrap();
    }

    /// What a controller says.
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
