//! A client of the discovery server that behaves like Envoy, without being one.
//!
//! In: the address of a discovery server, and what the test says of resources: what to ask for
//! because of them, which to reject. Out: what the client has, and the record of all messages.
//! It must not know: what is inside a resource; the test tells by functions.
//!
//! Like Envoy it asks for all clusters and listeners; for the endpoints of each cluster it gets, by
//! the cluster's name; and for whatever the test says that a resource refers to. It acknowledges
//! clusters when all are warm, that is when their endpoints came after them (or the word that there
//! are none). It takes the good clusters and listeners of a response and names the bad ones; of
//! other types it takes what comes before the first bad one and names none. It sends its node
//! with the first message only, and tells what it has when it comes again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, bail};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use envoy_types::pb::google::rpc::Status;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sesame_xds::ResourceType;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::{BoxFuture, Service};
use tonic::transport::{Channel, Endpoint, Uri};

/// How long [`FakeEnvoy::until`] waits at most.
const PATIENCE: Duration = Duration::from_secs(20);

/// Requests between a client and its connection: more than a server that reads ever leaves.
const QUEUE: usize = 4096;

type Requests = mpsc::Sender<DeltaDiscoveryRequest>;
type Follow = dyn Fn(ResourceType, &[u8]) -> Vec<(ResourceType, String)> + Send + Sync;
type Reject = dyn Fn(ResourceType, &str, &[u8]) -> Option<String> + Send + Sync;

/// Where the discovery server listens.
#[derive(Debug, Clone)]
pub enum Server {
    /// A Unix socket.
    Unix(PathBuf),
    /// An `http://` or `https://` address.
    Tcp(Uri),
    /// A TCP port, with TLS.
    Tls {
        /// The port.
        address: SocketAddr,
        /// The name that the server has to prove.
        name: String,
        /// Whom the client trusts, and what it shows of itself.
        config: Arc<ClientConfig>,
    },
}

/// One message, in the order in which this client saw or sent them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The server sent resources and removals.
    Response {
        /// The type.
        resource_type: ResourceType,
        /// The names of the resources.
        resources: Vec<String>,
        /// The names of the removed ones.
        removed: Vec<String>,
    },
    /// The client acknowledged the last response of the type.
    Ack(ResourceType),
    /// The client rejected the last response of the type.
    Nack(ResourceType, String),
}

/// What a client has and did.
#[derive(Debug, Default)]
pub struct State {
    resources: BTreeMap<(ResourceType, String), (String, Vec<u8>)>,
    /// The names asked for, of types that are asked for by name.
    asked: BTreeSet<(ResourceType, String)>,
    cold: BTreeSet<String>,
    /// Words that are said when the types may be acknowledged.
    unsaid: Vec<(ResourceType, String, Option<String>)>,
    held: BTreeSet<ResourceType>,
    messages: Vec<Message>,
    connected: bool,
    ended: Option<String>,
}

impl State {
    /// The names of the resources of a type that the client has.
    pub fn names(&self, ty: ResourceType) -> Vec<&str> {
        let of = self.resources.keys().filter(|(of, _)| *of == ty);
        of.map(|(_, name)| name.as_str()).collect()
    }

    /// The bytes of a resource that the client has.
    pub fn body(&self, ty: ResourceType, name: &str) -> Option<&[u8]> {
        let (_, body) = self.resources.get(&(ty, name.to_owned()))?;
        Some(body)
    }

    /// All messages since the client was made.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The stream is up and has received something or is waiting to.
    pub fn connected(&self) -> bool {
        self.connected
    }

    /// Why the last stream ended, if it did.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }
}

/// Settings of a client that is about to connect.
pub struct Builder {
    fleet: String,
    node_id: String,
    follow: Arc<Follow>,
    reject: Arc<Reject>,
}

impl Builder {
    /// What to ask for by name because of a resource, beside a cluster's endpoints.
    pub fn follow(
        mut self,
        follow: impl Fn(ResourceType, &[u8]) -> Vec<(ResourceType, String)> + Send + Sync + 'static,
    ) -> Builder {
        self.follow = Arc::new(follow);
        self
    }

    /// Which resources to reject, and with which message.
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
    /// Nobody listens there.
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

/// A client. Its stream ends when it is dropped.
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
    /// A client of that fleet (`node.cluster`) with that `node.id`.
    pub fn builder(fleet: &str, node_id: &str) -> Builder {
        Builder {
            fleet: fleet.to_owned(),
            node_id: node_id.to_owned(),
            follow: Arc::new(|_, _| Vec::new()),
            reject: Arc::new(|_, _, _| None),
        }
    }

    /// What the client has and did, at this moment. Don't keep it over an `await`.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// Waits until the client's state is as wanted.
    ///
    /// # Errors
    ///
    /// It isn't after a while; the error tells what it is.
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
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            bail!("the client is not as wanted: {:#?}", self.state());
        }
        Ok(())
    }

    /// Holds back the acknowledgements (and rejections) of a type until [`FakeEnvoy::release`].
    pub fn hold(&self, ty: ResourceType) {
        self.state().held.insert(ty);
    }

    /// Says what was held back, and holds back no more.
    pub fn release(&self, ty: ResourceType) {
        self.state().held.remove(&ty);
        if let Some(stream) = &self.stream {
            speak(&self.shared, &stream.requests);
        }
    }

    /// Ends the stream; what the client has it goes on having.
    pub fn disconnect(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.task.abort();
        }
        let mut state = self.state();
        state.connected = false;
        state.unsaid.clear();
        state.cold.clear();
    }

    /// Begins a new stream, telling what the client has.
    ///
    /// # Errors
    ///
    /// Nobody listens there.
    pub async fn reconnect(&mut self) -> anyhow::Result<()> {
        self.disconnect();
        let channel = open(&self.server).await?;
        let mut client =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX);
        let (requests, outgoing) = mpsc::channel(QUEUE);
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
                            Ok(Some(response)) => take(&shared, &sender, response),
                            Ok(None) => break "the server ended it".to_owned(),
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

    /// Sends a request as it is, after the client's own.
    pub fn send(&self, request: DeltaDiscoveryRequest) {
        if let Some(stream) = &self.stream {
            // A stream that has ended says so in the state.
            let _: Result<(), _> = stream.requests.try_send(request);
        }
    }
}

async fn open(server: &Server) -> anyhow::Result<Channel> {
    match server {
        Server::Tcp(uri) => Endpoint::from(uri.clone())
            .connect()
            .await
            .with_context(|| format!("cannot connect to {uri}")),
        Server::Unix(path) => connect_by(Unix(path.as_path().into()))
            .await
            .with_context(|| format!("cannot connect to {}", path.display())),
        Server::Tls {
            address,
            name,
            config,
        } => {
            let connector = Tls {
                address: *address,
                name: ServerName::try_from(name.clone())?,
                tls: TlsConnector::from(Arc::clone(config)),
            };
            connect_by(connector)
                .await
                .with_context(|| format!("cannot connect to {address}"))
        }
    }
}

/// Connects by a way of ours, whatever the address.
async fn connect_by<C>(connector: C) -> Result<Channel, tonic::transport::Error>
where
    C: Service<Uri, Error = std::io::Error> + Send + 'static,
    C::Response: hyper::rt::Read + hyper::rt::Write + Send + Unpin,
    C::Future: Send,
{
    // The address is never looked at, but has to be one.
    Endpoint::from_static("http://discovery")
        .connect_with_connector(connector)
        .await
}

/// Connects to a Unix socket.
#[derive(Clone)]
struct Unix(Arc<Path>);

impl Service<Uri> for Unix {
    type Response = TokioIo<UnixStream>;
    type Error = std::io::Error;
    type Future = BoxFuture<Self::Response, std::io::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = Arc::clone(&self.0);
        Box::pin(async move { Ok(TokioIo::new(UnixStream::connect(path).await?)) })
    }
}

/// Connects to a TCP port with TLS.
#[derive(Clone)]
struct Tls {
    address: SocketAddr,
    name: ServerName<'static>,
    tls: TlsConnector,
}

impl Service<Uri> for Tls {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = std::io::Error;
    type Future = BoxFuture<Self::Response, std::io::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Tls { address, name, tls } = self.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            Ok(TokioIo::new(tls.connect(name, stream).await?))
        })
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
        let asked = state.asked.iter().filter(|(of, _)| *of == ty);
        let names: Vec<String> = asked.map(|(_, name)| name.clone()).collect();
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

/// Takes a response as Envoy would, asks for what it refers to, and says its word.
fn take(shared: &Shared, requests: &Requests, response: DeltaDiscoveryResponse) {
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
        if by_name && !state.asked.contains(&(ty, resource.name.clone())) {
            continue;
        }
        if ty == ResourceType::Endpoint {
            // Endpoints that are rejected end the waiting for them too.
            state.cold.remove(&resource.name);
        }
        if let Some(error) = (shared.builder.reject)(ty, &resource.name, &body) {
            errors.push((resource.name, error));
            if by_name {
                break;
            }
            continue;
        }
        if ty == ResourceType::Cluster {
            state.cold.insert(resource.name.clone());
        }
        let key = (ty, resource.name);
        state.resources.insert(key, (resource.version, body));
    }
    for name in response.removed_resources {
        if matches!(ty, ResourceType::Cluster | ResourceType::Endpoint) {
            state.cold.remove(&name);
        }
        state.resources.remove(&(ty, name));
    }
    let error = rejection(ty, &errors);
    state.unsaid.push((ty, response.nonce, error));
    ask(shared, &mut state, requests);
    drop(state);
    speak(shared, requests);
    shared.changed.send_replace(());
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

/// Asks for what the resources refer to, and no more for what they don't.
fn ask(shared: &Shared, state: &mut State, requests: &Requests) {
    let mut wanted = BTreeSet::new();
    for ((ty, name), (_, body)) in &state.resources {
        if *ty == ResourceType::Cluster {
            wanted.insert((ResourceType::Endpoint, name.clone()));
        }
        wanted.extend((shared.builder.follow)(*ty, body));
    }
    for ty in ResourceType::ALL {
        let of = |set: &BTreeSet<(ResourceType, String)>, other: &BTreeSet<_>| -> Vec<String> {
            let of = set.difference(other).filter(|(of, _)| *of == ty);
            of.map(|(_, name)| name.clone()).collect()
        };
        let mut request = request(ty);
        request.resource_names_subscribe = of(&wanted, &state.asked);
        request.resource_names_unsubscribe = of(&state.asked, &wanted);
        for name in &request.resource_names_unsubscribe {
            state.resources.remove(&(ty, name.clone()));
        }
        let asks = !request.resource_names_subscribe.is_empty()
            || !request.resource_names_unsubscribe.is_empty();
        if asks {
            let _: Result<(), _> = requests.try_send(request);
        }
    }
    state.asked = wanted;
}

/// Says what may be said by now.
fn speak(shared: &Shared, requests: &Requests) {
    let mut state = shared.state();
    let unsaid = std::mem::take(&mut state.unsaid);
    for (ty, nonce, error) in unsaid {
        let warming = ty == ResourceType::Cluster && !state.cold.is_empty();
        if warming || state.held.contains(&ty) {
            state.unsaid.push((ty, nonce, error));
            continue;
        }
        let mut request = request(ty);
        request.response_nonce = nonce;
        state.messages.push(match &error {
            None => Message::Ack(ty),
            Some(error) => Message::Nack(ty, error.clone()),
        });
        request.error_detail = error.map(|message| Status {
            // Internal, as Envoy says.
            code: 13,
            message,
            details: Vec::new(),
        });
        let _: Result<(), _> = requests.try_send(request);
    }
}
