//! An API server with a namespace for a test, and operations on them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sesame_api::NamespacedName;
use sesame_control::cluster::{ClusterError, Scope, status_store};
use sesame_control::serve::{ContourCompat, Envoys, Serve, ServeConfig};
use sesame_control::status_store::StatusStore;
use sesame_control::{ElectionSettings, INGRESS_CLASS, Mode, Settings, Sharding};
use sesame_testkit::api_server::{ApiServer, Channel};
use sesame_testkit::certs::client_config_as;
use sesame_testkit::client::{Request, send};
use sesame_testkit::fake_envoy::{FakeEnvoy, Server};
use sesame_xds::ResourceType;
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use crate::resource::resource;

/// Longer than any step takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Selects the objects of the default fleet.
const DEFAULT_FLEET: &str = "projectsesame.io/fleet=default-fleet";
/// Delay between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An API server, shared with other tests or dedicated to one.
enum ServerRef {
    Shared(&'static ApiServer),
    Own(Box<ApiServer>),
}

/// The namespace of a test, and its server.
pub(crate) struct Rig {
    server: ServerRef,
    client: Client,
    namespace: String,
    files: TempDir,
    envoys: AtomicUsize,
}

/// A condition's status, or an empty string.
pub(crate) fn condition<'a>(status: &'a Value, type_: &str) -> &'a str {
    let conditions = status["conditions"].as_array().map(Vec::as_slice);
    let found = conditions.unwrap_or_default().iter();
    let mut found = found.filter(|condition| condition["type"] == type_);
    found
        .next()
        .and_then(|c| c["status"].as_str())
        .unwrap_or("")
}

async fn define(server: &ApiServer) {
    for channel in [Channel::Experimental, Channel::Early, Channel::Sesame] {
        server.install_definitions(channel).await.unwrap();
    }
}

impl Rig {
    /// Creates a namespace in the shared server.
    pub(crate) async fn new() -> Self {
        static DEFINED: OnceCell<()> = OnceCell::const_new();
        let server = ApiServer::shared().await.unwrap();
        DEFINED.get_or_init(|| define(server)).await;
        Self::of(ServerRef::Shared(server)).await
    }

    /// Creates a namespace in this server.
    pub(crate) async fn on(server: ApiServer) -> Self {
        define(&server).await;
        Self::of(ServerRef::Own(Box::new(server))).await
    }

    async fn of(server: ServerRef) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let namespace = format!("test-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let api: &ApiServer = match &server {
            ServerRef::Shared(server) => server,
            ServerRef::Own(server) => server,
        };
        let client = api.admin().await.unwrap();
        let files = tempfile::tempdir().unwrap();
        let kubeconfig = api.kubeconfig(None).unwrap();
        std::fs::write(files.path().join("kubeconfig"), kubeconfig).unwrap();
        let rig = Self {
            server,
            client,
            namespace: namespace.clone(),
            files,
            envoys: AtomicUsize::new(0),
        };
        rig.apply("namespaces", json!({"metadata": {"name": namespace}}))
            .await;
        rig.apply(
            "gatewayclasses",
            json!({"metadata": {"name": "sesame"}, "spec": {"controllerName": "projectsesame.io/gateway-controller"}}),
        )
        .await;
        rig
    }

    pub(crate) fn server(&self) -> &ApiServer {
        match &self.server {
            ServerRef::Shared(server) => server,
            ServerRef::Own(server) => server,
        }
    }

    fn api(&self, plural: &str) -> Api<DynamicObject> {
        let resource = resource(plural);
        match plural {
            "gatewayclasses" | "namespaces" | "customresourcedefinitions" => {
                Api::all_with(self.client.clone(), &resource)
            }
            _ => Api::namespaced_with(self.client.clone(), &self.namespace, &resource),
        }
    }

    pub(crate) async fn apply(&self, plural: &str, mut object: Value) {
        let kind = resource(plural);
        object["apiVersion"] = json!(kind.api_version);
        object["kind"] = json!(kind.kind);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let params = PatchParams::apply("test").force();
        let patched = self
            .api(plural)
            .patch(&name, &params, &Patch::Apply(&object))
            .await;
        patched.unwrap();
    }

    pub(crate) async fn gateway(&self, name: &str) {
        let spec = json!({
            "gatewayClassName": "sesame",
            "allowedListeners": {"namespaces": {"from": "Same"}},
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
        });
        self.apply(
            "gateways",
            json!({"metadata": {"name": name}, "spec": spec}),
        )
        .await;
    }

    /// Creates an XListenerSet for a Gateway, with a listener without a port. Its status has this port, if any.
    pub(crate) async fn early_set(&self, name: &str, gateway: &str, port: Option<u16>) {
        let spec = json!({
            "parentRef": {"name": gateway},
            "listeners": [{"name": "more", "protocol": "HTTP"}],
        });
        let set = json!({"metadata": {"name": name}, "spec": spec});
        self.apply("xlistenersets", set).await;
        if let Some(port) = port {
            let listener = json!({
                "name": "more", "port": port, "attachedRoutes": 0, "supportedKinds": [], "conditions": [],
            });
            let status = json!({"status": {"listeners": [listener]}});
            self.status("xlistenersets", name, status).await;
        }
    }

    /// The port in the status of an XListenerSet's listener, once the set is accepted.
    pub(crate) async fn assigned_port(&self, name: &str) -> Option<u64> {
        let set = self.get("xlistenersets", name).await;
        let port = set["status"]["listeners"][0]["port"].as_u64();
        port.filter(|_| condition(&set["status"], "Accepted") == "True")
    }

    /// Creates a Service with one endpoint.
    pub(crate) async fn service(&self, name: &str) {
        let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
        self.apply(
            "services",
            json!({"metadata": {"name": name}, "spec": {"ports": ports}}),
        )
        .await;
        self.apply(
            "endpointslices",
            json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": true}}],
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            }),
        )
        .await;
    }

    /// Creates an XBackend for Pods with a label, and a route of the same name to it.
    pub(crate) async fn xbackend(&self, name: &str, gateway: &str, app: &str) {
        let spec = json!({
            "type": "EndpointSelector",
            "endpointSelector": {"matchLabels": {"app": app}},
            "port": {"number": 8080},
        });
        let xbackend = json!({"metadata": {"name": name}, "spec": spec});
        self.apply("xbackends", xbackend).await;
        let backend =
            json!({"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": name});
        self.route_to(name, gateway, backend).await;
    }

    /// The Service of an XBackend.
    pub(crate) async fn pod_service(&self, xbackend: &str) -> Option<Value> {
        let selector = format!("projectsesame.io/xbackend={xbackend}");
        let service = self.list("services", &selector).await.pop()?;
        Some(serde_json::to_value(service).unwrap())
    }

    /// The condition Accepted of an XBackend, as `True Accepted`.
    pub(crate) async fn xbackend_accepted(&self, name: &str) -> String {
        let xbackend = self.get("xbackends", name).await;
        let accepted = &xbackend["status"]["ancestors"][0]["conditions"][0];
        let text = |field: &str| accepted[field].as_str().unwrap_or("").to_owned();
        format!("{} {}", text("status"), text("reason"))
    }

    /// Forbids the creation of Services. Also sets the quota's status, since no controller runs.
    pub(crate) async fn forbid_services(&self) {
        let hard = json!({"hard": {"services": "0"}});
        let quota = json!({"metadata": {"name": "none"}, "spec": hard});
        self.apply("resourcequotas", quota).await;
        let status = json!({"status": {"hard": {"services": "0"}, "used": {"services": "0"}}});
        self.status("resourcequotas", "none", status).await;
    }

    /// Changes a Service, as a user would.
    pub(crate) async fn edit_service(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        let params = PatchParams::default();
        let patched = self.api("services").patch(name, &params, &patch).await;
        patched.unwrap();
    }

    /// Creates a Gateway `web`, a Service `shop`, and a route `shop` between them.
    pub(crate) async fn shop(&self) {
        self.gateway("web").await;
        self.service("shop").await;
        self.route("shop", "web", "shop").await;
    }

    /// Waits until a route's only parent has accepted it.
    pub(crate) async fn until_accepted(&self, name: &str) {
        self.until(&format!("the route {name} is accepted"), async || {
            let route = self.get("httproutes", name).await;
            condition(&route["status"]["parents"][0], "Accepted") == "True"
        })
        .await;
    }

    pub(crate) async fn route(&self, name: &str, gateway: &str, service: &str) {
        self.route_to(name, gateway, json!({"name": service, "port": 80}))
            .await;
    }

    /// Reasons and notes of the Events on an object.
    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let events = self.list("events", "").await;
        let of_object = events
            .iter()
            .filter(|event| event.data["regarding"]["name"] == name);
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        of_object
            .map(|event| {
                format!(
                    "{}: {}",
                    text(&event.data["reason"]),
                    text(&event.data["note"])
                )
            })
            .collect()
    }

    async fn route_to(&self, name: &str, gateway: &str, backend: Value) {
        let spec = json!({
            "parentRefs": [{"name": gateway}],
            "hostnames": [format!("{name}.example.com")],
            "rules": [{"backendRefs": [backend]}],
        });
        self.apply(
            "httproutes",
            json!({"metadata": {"name": name}, "spec": spec}),
        )
        .await;
    }

    pub(crate) async fn get(&self, plural: &str, name: &str) -> Value {
        let object = self.api(plural).get(name).await.unwrap();
        serde_json::to_value(object).unwrap()
    }

    pub(crate) async fn delete(&self, plural: &str, name: &str) {
        let params = DeleteParams::default();
        self.api(plural).delete(name, &params).await.unwrap();
    }

    async fn list(&self, plural: &str, selector: &str) -> Vec<DynamicObject> {
        let params = ListParams::default().labels(selector);
        self.api(plural).list(&params).await.unwrap().items
    }

    pub(crate) async fn serves(&self, plural: &str) -> bool {
        self.api(plural).list(&ListParams::default()).await.is_ok()
    }

    /// The statuses that `sesame status` shows.
    pub(crate) async fn statuses(&self) -> Result<StatusStore, ClusterError> {
        let kubeconfig = self.files.path().join("kubeconfig");
        status_store(Some(&kubeconfig), &Scope::All, INGRESS_CLASS, false).await
    }

    /// Names of the objects that Sesame has created for a Gateway.
    pub(crate) async fn owned(&self, gateway: &str) -> Vec<String> {
        let selector = format!("gateway.networking.k8s.io/gateway-name={gateway}");
        self.selected(&selector).await
    }

    /// Names of the objects that Sesame has created for the default fleet.
    pub(crate) async fn of_default_fleet(&self) -> Vec<String> {
        self.selected(DEFAULT_FLEET).await
    }

    async fn selected(&self, selector: &str) -> Vec<String> {
        let mut names = Vec::new();
        for plural in ["deployments", "services", "configmaps", "secrets"] {
            for object in self.list(plural, selector).await {
                names.push(format!("{plural}/{}", object.metadata.name.unwrap()));
            }
        }
        names
    }

    /// Writes the statuses of a Gateway's Deployment and Service, as a cluster would.
    pub(crate) async fn fake_cluster_status(&self, gateway: &str, address: &str) {
        let selector = format!("gateway.networking.k8s.io/gateway-name={gateway}");
        self.fake_status(&selector, address).await;
    }

    /// Writes the statuses of the default fleet's Deployment and Service.
    pub(crate) async fn fake_default_fleet_status(&self, address: &str) {
        self.fake_status(DEFAULT_FLEET, address).await;
    }

    async fn fake_status(&self, selector: &str, address: &str) {
        for plural in ["deployments", "services"] {
            self.until(plural, async || {
                !self.list(plural, selector).await.is_empty()
            })
            .await;
        }
        let deployment = self.list("deployments", selector).await.remove(0);
        let generation = deployment.metadata.generation.unwrap();
        let status = json!({"status": {
            "observedGeneration": generation, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
            "availableReplicas": 2,
        }});
        self.status("deployments", &deployment.metadata.name.unwrap(), status)
            .await;
        let service = self.list("services", selector).await.remove(0);
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
        self.status("services", &service.metadata.name.unwrap(), status)
            .await;
    }

    pub(crate) async fn status(&self, plural: &str, name: &str, status: Value) {
        let params = PatchParams::default();
        let patched = self
            .api(plural)
            .patch_status(name, &params, &Patch::Merge(&status))
            .await;
        patched.unwrap();
    }

    /// Starts a replica of Sesame.
    pub(crate) async fn replica(&self, name: &str) -> Serve {
        self.replica_beside_contour(name, ContourCompat::Off).await
    }

    /// Starts a replica of Sesame, which may read Contour's objects.
    pub(crate) async fn replica_beside_contour(&self, name: &str, contour: ContourCompat) -> Serve {
        self.start(name, contour, Settings::new(Mode::Managed), None)
            .await
    }

    /// The path of a file of this test; `kubeconfig` is one.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// The name of an object in the test's namespace.
    pub(crate) fn name(&self, name: &str) -> NamespacedName {
        NamespacedName::new(self.namespace.as_str(), name)
    }

    /// Starts a replica of Sesame with these settings.
    pub(crate) async fn start(
        &self,
        name: &str,
        contour: ContourCompat,
        settings: Settings,
        configuration_file: Option<PathBuf>,
    ) -> Serve {
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let config = ServeConfig {
            kubeconfig: Some(self.files.path().join("kubeconfig")),
            namespace: self.namespace.clone(),
            replica: name.to_owned(),
            watch_namespaces: Some(vec![self.namespace.clone()]),
            settings,
            configuration_file,
            contour,
            envoys: Envoys::Managed {
                envoy_image: "envoy:test".to_owned(),
                sidecar_image: "sesame:test".to_owned(),
                own_namespace: false,
                xds_host: None,
                xds_port: Some(18000),
            },
            xds: local,
            certificates: None,
            sharding: Sharding::Auto,
            module: true,
            election: ElectionSettings::default(),
            metrics: Some(local),
            probes: Some(local),
            admin: None,
        };
        Serve::start(config).await.unwrap()
    }

    /// An Envoy of a Gateway's fleet, with the certificate that Sesame has issued for it.
    pub(crate) async fn envoy(&self, replica: &Serve, gateway: &str) -> FakeEnvoy {
        self.envoy_with(replica, gateway, gateway).await
    }

    /// An Envoy that claims to belong to a Gateway's fleet, with the certificate of another fleet.
    pub(crate) async fn envoy_with(
        &self,
        replica: &Serve,
        gateway: &str,
        certificate: &str,
    ) -> FakeEnvoy {
        let selector = format!("gateway.networking.k8s.io/gateway-name={certificate}");
        self.store_certificate(&selector, certificate).await;
        self.connect(replica, gateway, certificate).await
    }

    /// An Envoy of the default fleet.
    pub(crate) async fn default_envoy(&self, replica: &Serve) -> FakeEnvoy {
        self.store_certificate(DEFAULT_FLEET, "default").await;
        self.connect_to(replica, "default", "default").await
    }

    async fn store_certificate(&self, selector: &str, name: &str) {
        self.until("the Envoy's certificate exists", async || {
            !self.list("secrets", selector).await.is_empty()
        })
        .await;
        let secret = self.list("secrets", selector).await.remove(0);
        for (key, text) in secret_files(&secret) {
            std::fs::write(self.file(name, &key), text).unwrap();
        }
    }

    /// Another Envoy of the same fleet, which doesn't need access to the API server.
    pub(crate) async fn another_envoy(&self, replica: &Serve, gateway: &str) -> FakeEnvoy {
        self.connect(replica, gateway, gateway).await
    }

    async fn connect(&self, replica: &Serve, gateway: &str, certificate: &str) -> FakeEnvoy {
        let fleet = format!("{}/{gateway}", self.namespace);
        self.connect_to(replica, &fleet, certificate).await
    }

    async fn connect_to(&self, replica: &Serve, fleet: &str, certificate: &str) -> FakeEnvoy {
        let read = |key: &str| std::fs::read_to_string(self.file(certificate, key)).unwrap();
        let identity = sesame_testkit::certs::Identity {
            chain: read("tls.crt"),
            private_key: read("tls.key"),
        };
        let config = client_config_as(Some(&identity), &read("ca.crt"), &["h2"]).unwrap();
        let server = Server::Tls {
            address: replica.xds(),
            name: format!("sesame-xds.{}.svc", self.namespace),
            config,
        };
        let number = self.envoys.fetch_add(1, Ordering::Relaxed);
        FakeEnvoy::builder(fleet, &format!("envoy-{number}"))
            .follow(follow)
            .connect(server)
            .await
            .unwrap()
    }

    fn file(&self, certificate: &str, key: &str) -> PathBuf {
        self.files.path().join(format!("{certificate}-{key}"))
    }

    /// Polls until a condition is true.
    pub(crate) async fn until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !condition().await {
            assert!(Instant::now() < end, "timed out: {what}");
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// The subscription that follows from a plain listener: its port's route table.
fn follow(ty: ResourceType, _: &[u8]) -> Vec<(ResourceType, String)> {
    match ty {
        ResourceType::Listener => vec![(ResourceType::Route, "80".to_owned())],
        _ => Vec::new(),
    }
}

/// The files of a Secret, as text.
fn secret_files(secret: &DynamicObject) -> BTreeMap<String, String> {
    let data = secret.data["data"].as_object().unwrap();
    let files = data.iter().map(|(key, encoded)| {
        let bytes = BASE64_STANDARD.decode(encoded.as_str().unwrap()).unwrap();
        (key.clone(), String::from_utf8(bytes).unwrap())
    });
    files.collect()
}

impl Rig {
    async fn page(&self, server: SocketAddr, path: &str) -> (u16, String) {
        let response = send(server, &Request::get("sesame", path)).await.unwrap();
        let text = String::from_utf8(response.body.to_vec()).unwrap();
        (response.status.as_u16(), text)
    }

    /// The status and text of the readiness page.
    pub(crate) async fn readyz(&self, replica: &Serve) -> (u16, String) {
        self.page(replica.probes().unwrap(), "/readyz").await
    }

    /// Whether a replica's metrics report it as the leader.
    pub(crate) async fn reports_leader(&self, replica: &Serve) -> bool {
        let (_, text) = self.page(replica.metrics().unwrap(), "/metrics").await;
        text.lines().any(|line| line == "sesame_leader 1")
    }

    /// Waits until a replica is the leader.
    pub(crate) async fn until_leader(&self, replica: &Serve) {
        self.until("the replica is the leader", async || {
            self.reports_leader(replica).await
        })
        .await;
    }

    /// The resourceVersions of all objects that Sesame may write.
    pub(crate) async fn versions(&self) -> BTreeMap<(String, String), String> {
        let mut versions = BTreeMap::new();
        for plural in [
            "gateways",
            "xlistenersets",
            "httproutes",
            "httpproxies",
            "ingresses",
            "deployments",
            "services",
            "configmaps",
            "secrets",
        ] {
            for object in self.list(plural, "").await {
                let key = (plural.to_owned(), object.metadata.name.unwrap());
                versions.insert(key, object.metadata.resource_version.unwrap());
            }
        }
        versions
    }

    /// Waits until nothing has been written for three seconds.
    pub(crate) async fn settled(&self) {
        let mut before = self.versions().await;
        let mut quiet_seconds = 0;
        while quiet_seconds < 3 {
            sleep(Duration::from_secs(1)).await;
            let now = self.versions().await;
            quiet_seconds = if now == before { quiet_seconds + 1 } else { 0 };
            before = now;
        }
    }
}
