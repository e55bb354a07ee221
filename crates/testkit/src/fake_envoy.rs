//! A discovery client that behaves like Envoy.
//!
//! The test provides functions that decide which resources to subscribe to and which to reject; the client doesn't
//! decode resources.
//!
//! Like Envoy, it subscribes to all clusters and listeners, to the endpoints of each cluster, and to the references
//! that the test finds in resources. It acknowledges clusters once all are warm, that is, once it has received their
//! endpoints or a response that these don't exist. It accepts the valid clusters and listeners in a response, and its
//! NACK names the invalid ones; for other types, it accepts the resources before the first invalid one, and its NACK
//! doesn't name any. It sends its node only with the first message, and its versions when it reconnects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use envoy_types::pb::google::rpc::Status;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sesame_xds::ResourceType;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// The timeout of [`FakeEnvoy::until`].
const TIMEOUT: Duration = Duration::from_secs(60);

/// Capacity of the request buffer: more requests than any test sends to a server that reads them.
const REQUEST_BUFFER: usize = 4096;

type Requests = mpsc::Sender<DeltaDiscoveryRequest>;
type Follow = dyn Fn(ResourceType, &[u8]) -> Vec<(ResourceType, String)> + Send + Sync;
type Reject = dyn Fn(ResourceType, &str, &[u8]) -> Option<String> + Send + Sync;

/// The address of an xDS server.
#[derive(Debug, Clone)]
pub enum Server {
    /// A Unix socket.
    Unix(PathBuf),
    /// An `http://` or `https://` address.
    Tcp(Uri),
    /// A TCP address, with TLS.
    Tls {
        /// The address.
        address: SocketAddr,
        /// The expected server name.
        name: String,
        /// The CA bundle and the client certificate.
        config: Arc<ClientConfig>,
    },
}

/// A received or sent message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The server sent resources and removals.
    Response {
        /// The type.
        resource_type: ResourceType,
        /// The names of the resources.
        resources: Vec<String>,
        /// The names of removed resources.
        removed: Vec<String>,
    },
    /// The client acknowledged the latest response for the type.
    Ack(ResourceType),
    /// The client rejected the latest response for the type.
    Nack(ResourceType, String),
}

/// A client's state and message log.
#[derive(Debug, Default)]
pub struct State {
    resources: BTreeMap<(ResourceType, String), (String, Vec<u8>)>,
    /// The subscribed names.
    subscribed: BTreeSet<(ResourceType, String)>,
    /// Names of the endpoints that clusters are waiting for.
    warming: BTreeSet<String>,
    /// Unacknowledged responses: type, nonce and error.
    unacked: Vec<(ResourceType, String, Option<String>)>,
    held: BTreeSet<ResourceType>,
    messages: Vec<Message>,
    connected: bool,
    ended: Option<String>,
}

impl State {
    /// The names of the client's resources of a type.
    pub fn names(&self, ty: ResourceType) -> Vec<&str> {
        let of = self.resources.keys().filter(|(of, _)| *of == ty);
        of.map(|(_, name)| name.as_str()).collect()
    }

    /// The bytes of a resource.
    pub fn body(&self, ty: ResourceType, name: &str) -> Option<&[u8]> {
        let (_, body) = self.resources.get(&(ty, name.to_owned()))?;
        Some(body)
    }

    /// All messages since the client's creation.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Whether a stream is open.
    pub fn connected(&self) -> bool {
        self.connected
    }

    /// Why the latest stream ended, if it has.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }
}

/// Settings for a client.
pub struct Builder {
    fleet: String,
    node_id: String,
    follow: Arc<Follow>,
    reject: Arc<Reject>,
}

impl Builder {
    /// Sets a function that returns the names to subscribe to for a resource, in addition to a cluster's endpoints.
    pub fn follow(
        mut self,
        follow: impl Fn(ResourceType, &[u8]) -> Vec<(ResourceType, String)> + Send + Sync + 'static,
    ) -> Builder {
        self.follow = Arc::new(follow);
        self
    }

    /// Sets a function that rejects a resource by returning the error to report.
    pub fn reject(
        mut self,
        reject: impl Fn(ResourceType, &str, &[u8]) -> Option<String> + Send + Sync + 'static,
    ) -> Builder {
        self.reject = Arc::new(reject);
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub async fn connect(self, server: Server) -> anyhow::Result<FakeEnvoy> {
        let mut envoy = FakeEnvoy {
            shared: Arc::new(Shared {
                builder: self,
                state: Mutex::default(),
                changed: watch::Sender::new(()),
            }),
            server,
            stream: None,
        };
        envoy.reconnect().await?;
        Ok(envoy)
    }
}

struct Shared {
    builder: Builder,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Stream {
    requests: Requests,
    task: tokio::task::JoinHandle<()>,
}

/// A client. Dropping it ends its stream.
pub struct FakeEnvoy {
    shared: Arc<Shared>,
    server: Server,
    stream: Option<Stream>,
}

impl Drop for FakeEnvoy {
    fn drop(&mut self) {
        self.disconnect();
    }
}

impl FakeEnvoy {
    /// A client in this fleet (`node.cluster`) with this `node.id`.
    pub fn builder(fleet: &str, node_id: &str) -> Builder {
        Builder {
            fleet: fleet.to_owned(),
            node_id: node_id.to_owned(),
            follow: Arc::new(|_, _| Vec::new()),
            reject: Arc::new(|_, _, _| None),
        }
    }

    /// The current state. Don't hold it across an `await`.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// Waits until the state satisfies `wanted`.
    ///
    /// # Errors
    ///
    /// Returns an error on timeout; the error contains the state.
    pub async fn until(&self, wanted: impl Fn(&State) -> bool) -> anyhow::Result<()> {
        let mut changed = self.shared.changed.subscribe();
        let waiting = async {
            loop {
                changed.mark_unchanged();
                if wanted(&self.state()) {
                    return;
                }
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(TIMEOUT, waiting).await.is_err() {
            bail!("timeout; the client's state: {:#?}", self.state());
        }
        Ok(())
    }

    /// Delays the ACKs and NACKs for a type until [`FakeEnvoy::release`].
    pub fn hold(&self, ty: ResourceType) {
        self.state().held.insert(ty);
    }

    /// Sends the responses delayed by [`FakeEnvoy::hold`].
    pub fn release(&self, ty: ResourceType) {
        self.state().held.remove(&ty);
        if let Some(stream) = &self.stream {
            acknowledge(&self.shared, &stream.requests);
        }
    }

    /// Ends the stream. The client keeps its resources.
    pub fn disconnect(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.task.abort();
        }
        let mut state = self.state();
        state.connected = false;
        state.unacked.clear();
        state.warming.clear();
    }

    /// Opens a new stream, reporting the versions that the client has.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub async fn reconnect(&mut self) -> anyhow::Result<()> {
        self.disconnect();
        let channel = open(&self.server).await?;
        let mut client =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX);
        let (requests, outgoing) = mpsc::channel(REQUEST_BUFFER);
        first_requests(&self.shared, &requests);
        {
            let mut state = self.state();
            state.connected = true;
            state.ended = None;
        }
        let shared = Arc::clone(&self.shared);
        let sender = requests.clone();
        let task = tokio::spawn(async move {
            let outgoing = ReceiverStream::new(outgoing);
            let ended = match client.delta_aggregated_resources(outgoing).await {
                Err(status) => status.to_string(),
                Ok(stream) => {
                    let mut stream = stream.into_inner();
                    loop {
                        match stream.message().await {
                            Ok(Some(response)) => receive(&shared, &sender, response),
                            Ok(None) => break "the server ended the stream".to_owned(),
                            Err(status) => break status.to_string(),
                        }
                    }
                }
            };
            let mut state = shared.state();
            state.connected = false;
            state.ended = Some(ended);
            drop(state);
            shared.changed.send_replace(());
        });
        self.stream = Some(Stream { requests, task });
        Ok(())
    }

    /// Sends a request.
    pub fn send(&self, request: DeltaDiscoveryRequest) {
        if let Some(stream) = &self.stream {
            // Fails if the stream has ended, which the state shows.
            let _: Result<(), _> = stream.requests.try_send(request);
        }
    }
}

async fn open(server: &Server) -> anyhow::Result<Channel> {
    // Required, but ignored by the connectors.
    let endpoint = Endpoint::from_static("http://discovery");
    match server {
        Server::Tcp(uri) => Endpoint::from(uri.clone())
            .connect()
            .await
            .with_context(|| format!("cannot connect to {uri}")),
        Server::Unix(path) => {
            let socket = path.clone();
            let connect = move |_: Uri| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            };
            endpoint
                .connect_with_connector(service_fn(connect))
                .await
                .with_context(|| format!("cannot connect to {}", path.display()))
        }
        Server::Tls {
            address,
            name,
            config,
        } => {
            let name = ServerName::try_from(name.clone())?;
            let tls = TlsConnector::from(Arc::clone(config));
            let address = *address;
            let connect = move |_: Uri| {
                let (name, tls) = (name.clone(), tls.clone());
                async move {
                    let stream = TcpStream::connect(address).await?;
                    tls.connect(name, stream).await.map(TokioIo::new)
                }
            };
            endpoint
                .connect_with_connector(service_fn(connect))
                .await
                .with_context(|| format!("cannot connect to {address}"))
        }
    }
}

fn request(ty: ResourceType) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: ty.type_url().to_owned(),
        ..DeltaDiscoveryRequest::default()
    }
}

fn first_requests(shared: &Shared, requests: &Requests) {
    let state = shared.state();
    let mut node = Some(Node {
        id: shared.builder.node_id.clone(),
        cluster: shared.builder.fleet.clone(),
        ..Node::default()
    });
    for ty in ResourceType::ALL {
        let all = matches!(ty, ResourceType::Cluster | ResourceType::Listener);
        let names = state.subscribed.iter().filter(|(of, _)| *of == ty);
        let names: Vec<String> = names.map(|(_, name)| name.clone()).collect();
        if names.is_empty() && !all {
            continue;
        }
        let mut request = request(ty);
        request.node = node.take();
        request.resource_names_subscribe = names;
        request.initial_resource_versions = state
            .resources
            .iter()
            .filter(|((of, _), _)| *of == ty)
            .map(|((_, name), (version, _))| (name.clone(), version.clone()))
            .collect();
        let _: Result<(), _> = requests.try_send(request);
    }
}

/// Processes a response as Envoy would.
fn receive(shared: &Shared, requests: &Requests, response: DeltaDiscoveryResponse) {
    let Some(ty) = ResourceType::from_type_url(&response.type_url) else {
        return;
    };
    let mut state = shared.state();
    state.messages.push(Message::Response {
        resource_type: ty,
        resources: response.resources.iter().map(|r| r.name.clone()).collect(),
        removed: response.removed_resources.clone(),
    });
    let by_name = !matches!(
        ty,
        ResourceType::Cluster | ResourceType::Listener | ResourceType::ScopedRoute
    );
    let mut errors = Vec::new();
    for resource in response.resources {
        let body = resource.resource.map(|any| any.value).unwrap_or_default();
        if by_name && !state.subscribed.contains(&(ty, resource.name.clone())) {
            continue;
        }
        if ty == ResourceType::Endpoint {
            // Envoy also stops waiting for rejected endpoints.
            state.warming.remove(&resource.name);
        }
        if let Some(error) = (shared.builder.reject)(ty, &resource.name, &body) {
            errors.push((resource.name, error));
            if by_name {
                break;
            }
            continue;
        }
        if ty == ResourceType::Cluster {
            state.warming.insert(endpoints_of(&resource.name, &body));
        }
        let key = (ty, resource.name);
        state.resources.insert(key, (resource.version, body));
    }
    for name in response.removed_resources {
        if ty == ResourceType::Endpoint {
            state.warming.remove(&name);
        }
        let removed = state.resources.remove(&(ty, name.clone()));
        if let (ResourceType::Cluster, Some((_, body))) = (ty, removed) {
            state.warming.remove(&endpoints_of(&name, &body));
        }
    }
    let error = rejection(ty, &errors);
    state.unacked.push((ty, response.nonce, error));
    subscribe(shared, &mut state, requests);
    drop(state);
    acknowledge(shared, requests);
    shared.changed.send_replace(());
}

/// A cluster's EDS service name; defaults to the cluster's name.
fn endpoints_of(name: &str, cluster: &[u8]) -> String {
    let eds = Cluster::decode(cluster)
        .ok()
        .and_then(|cluster| cluster.eds_cluster_config);
    let named = eds
        .map(|eds| eds.service_name)
        .filter(|name| !name.is_empty());
    named.unwrap_or_else(|| name.to_owned())
}

fn rejection(ty: ResourceType, errors: &[(String, String)]) -> Option<String> {
    let (_, first) = errors.first()?;
    let list = |separator: &str| {
        let each = errors
            .iter()
            .map(|(name, error)| format!("{name}: {error}"));
        each.collect::<Vec<_>>().join(separator)
    };
    Some(match ty {
        ResourceType::Cluster => format!("Error adding/updating cluster(s) {}", list(", ")),
        ResourceType::Listener => format!("Error adding/updating listener(s) {}\n", list("\n")),
        _ => first.clone(),
    })
}

/// Updates the subscriptions to match what the resources refer to.
fn subscribe(shared: &Shared, state: &mut State, requests: &Requests) {
    let mut wanted = BTreeSet::new();
    for ((ty, name), (_, body)) in &state.resources {
        if *ty == ResourceType::Cluster {
            wanted.insert((ResourceType::Endpoint, endpoints_of(name, body)));
        }
        wanted.extend((shared.builder.follow)(*ty, body));
    }
    for ty in ResourceType::ALL {
        let of = |set: &BTreeSet<(ResourceType, String)>, other: &BTreeSet<_>| -> Vec<String> {
            let of = set.difference(other).filter(|(of, _)| *of == ty);
            of.map(|(_, name)| name.clone()).collect()
        };
        let mut request = request(ty);
        request.resource_names_subscribe = of(&wanted, &state.subscribed);
        request.resource_names_unsubscribe = of(&state.subscribed, &wanted);
        for name in &request.resource_names_unsubscribe {
            state.resources.remove(&(ty, name.clone()));
        }
        let changed = !request.resource_names_subscribe.is_empty()
            || !request.resource_names_unsubscribe.is_empty();
        if changed {
            let _: Result<(), _> = requests.try_send(request);
        }
    }
    state.subscribed = wanted;
}

/// Sends the ACKs and NACKs that are ready.
fn acknowledge(shared: &Shared, requests: &Requests) {
    let mut state = shared.state();
    let unacked = std::mem::take(&mut state.unacked);
    for (ty, nonce, error) in unacked {
        let warming = ty == ResourceType::Cluster && !state.warming.is_empty();
        if warming || state.held.contains(&ty) {
            state.unacked.push((ty, nonce, error));
            continue;
        }
        let mut request = request(ty);
        request.response_nonce = nonce;
        state.messages.push(match &error {
            None => Message::Ack(ty),
            Some(error) => Message::Nack(ty, error.clone()),
        });
        request.error_detail = error.map(|message| Status {
            // INTERNAL, as in Envoy.
            code: 13,
            message,
            details: Vec::new(),
        });
        let _: Result<(), _> = requests.try_send(request);
    }
}
