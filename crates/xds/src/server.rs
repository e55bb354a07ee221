//! The registry of fleets, and the gRPC service in front of it.
//!
//! In: updates from the controller, connections from Envoys. Out: streams, events, status.
//! It must not know: the protocol, which is the session's business.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Status, Streaming};

use crate::codec::DeltaCodec;
use crate::config::{Authorize, Config, Limits, TakesVariants};
use crate::event::{Events, Hub};
use crate::fleet::{Fleet, FleetStatus};
use crate::resource::{FleetId, ResourceType, Update};
use crate::session::Response;
use crate::stream;
use crate::traffic::{Counts, Traffic};

const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const STATE_OF_THE_WORLD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// Responses between the session and the connection of one stream.
const QUEUE: usize = 2;
/// How often a silent connection is asked whether its client is still there, and how long the
/// answer may take.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A fleet and its bell.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<Fleet>,
    /// Rung when something changed that streams should look at.
    changed: watch::Sender<()>,
    hub: Arc<Hub>,
}

impl Shared {
    /// Works on the fleet, then tells everybody what came of it.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Fleet) -> R) -> R {
        let mut fleet = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let look = |fleet: &Fleet| {
            let refusals = fleet.refusals();
            (fleet.epoch(), fleet.log_end(), refusals, fleet.is_removed())
        };
        let before = look(&fleet);
        let result = f(&mut fleet);
        let after = look(&fleet);
        // Under the lock, so that events come in the order in which things happened.
        self.hub.publish(fleet.take_events());
        drop(fleet);
        if before != after {
            self.changed.send_replace(());
        }
        result
    }

    pub(crate) fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// A client's membership of a fleet, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: u64,
    registry: Arc<Inner>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.registry.detach(&self.shared, self.client);
    }
}

#[derive(Debug, Default)]
struct Fleets {
    by_id: HashMap<FleetId, Arc<Shared>>,
    streams: usize,
}

/// What all handles of a registry share.
pub(crate) struct Inner {
    pub(crate) limits: Arc<Limits>,
    pub(crate) authorize: Option<Authorize>,
    pub(crate) takes_variants: Option<TakesVariants>,
    fleets: Mutex<Fleets>,
    hub: Arc<Hub>,
    clients: AtomicU64,
    pub(crate) traffic: Counts,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl Inner {
    fn fleets(&self) -> MutexGuard<'_, Fleets> {
        self.fleets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get_or_create(&self, fleets: &mut Fleets, id: &FleetId) -> Arc<Shared> {
        let shared = fleets.by_id.entry(id.clone()).or_insert_with(|| {
            Arc::new(Shared {
                state: Mutex::new(Fleet::new(id.clone())),
                changed: watch::Sender::new(()),
                hub: Arc::clone(&self.hub),
            })
        });
        Arc::clone(shared)
    }

    /// Makes a client a member of a fleet, of one that isn't known too: it then waits for it.
    pub(crate) fn attach(
        self: &Arc<Self>,
        id: &FleetId,
        node_id: Arc<str>,
    ) -> Result<Attached, Status> {
        let mut fleets = self.fleets();
        if fleets.streams >= self.limits.streams {
            return Err(Status::resource_exhausted("too many streams"));
        }
        let known = fleets.by_id.get(id);
        let ready = known.is_some_and(|shared| shared.with(|fleet| fleet.ready()));
        if !ready {
            let waiting: usize = fleets
                .by_id
                .values()
                .map(|shared| shared.with(|fleet| if fleet.ready() { 0 } else { fleet.clients() }))
                .sum();
            if waiting >= self.limits.waiting_streams {
                return Err(Status::resource_exhausted(
                    "too many streams wait for fleets that are not known",
                ));
            }
        }
        let shared = self.get_or_create(&mut fleets, id);
        let client = self.clients.fetch_add(1, Ordering::Relaxed);
        shared.with(|fleet| fleet.join(client, node_id));
        fleets.streams += 1;
        Ok(Attached {
            shared,
            client,
            registry: Arc::clone(self),
        })
    }

    fn detach(&self, shared: &Arc<Shared>, client: u64) {
        let mut fleets = self.fleets();
        fleets.streams -= 1;
        let (id, forgotten) = shared.with(|fleet| {
            fleet.leave(client);
            (fleet.id().clone(), !fleet.ready() && fleet.clients() == 0)
        });
        // A fleet that only its clients knew of goes with the last of them.
        let same = |known: &Arc<Shared>| Arc::ptr_eq(known, shared);
        if forgotten && fleets.by_id.get(&id).is_some_and(same) {
            fleets.by_id.remove(&id);
        }
    }
}

/// All fleets and their resources. A handle: clones are the same registry.
#[derive(Debug, Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

impl Registry {
    /// An empty registry.
    pub fn new(config: Config) -> Registry {
        Registry {
            inner: Arc::new(Inner {
                limits: Arc::new(config.limits),
                authorize: config.authorize,
                takes_variants: config.takes_variants,
                fleets: Mutex::default(),
                hub: Arc::default(),
                clients: AtomicU64::new(1),
                traffic: Counts::default(),
            }),
        }
    }

    /// Takes the next step of a fleet's config. The first one makes the fleet: nothing is served
    /// to its clients before, so it should be complete. Costs as much as the update is long.
    pub fn apply(&self, fleet: &FleetId, update: Update) {
        // Held for as long as it takes: else the last client that waits for the fleet could leave in
        // between, and the fleet be forgotten just before it becomes known.
        let mut fleets = self.inner.fleets();
        let shared = self.inner.get_or_create(&mut fleets, fleet);
        shared.with(|state| state.apply(update));
    }

    /// Forgets a fleet and ends its streams. Clients that come again wait for it to be made anew.
    pub fn remove_fleet(&self, fleet: &FleetId) {
        let removed = self.inner.fleets().by_id.remove(fleet);
        if let Some(shared) = removed {
            shared.with(Fleet::remove);
        }
    }

    /// A receiver of all that happens from now on.
    pub fn events(&self) -> Events {
        self.inner.hub.subscribe()
    }

    /// What was sent since the registry was made, by type.
    pub fn traffic(&self) -> [Traffic; ResourceType::ALL.len()] {
        self.inner.traffic.read()
    }

    /// The fleets that are known, in order; those that are only waited for are not.
    pub fn fleets(&self) -> Vec<FleetId> {
        let fleets = self.inner.fleets();
        let mut ids: Vec<FleetId> = fleets
            .by_id
            .iter()
            .filter(|(_, shared)| shared.with(|fleet| fleet.ready()))
            .map(|(id, _)| id.clone())
            .collect();
        ids.sort_unstable();
        ids
    }

    /// A fleet's clients and rejections, if it is known or waited for.
    pub fn status(&self, fleet: &FleetId) -> Option<FleetStatus> {
        let shared = self.inner.fleets().by_id.get(fleet).map(Arc::clone)?;
        Some(shared.with(|fleet| fleet.status()))
    }

    /// The gRPC service `AggregatedDiscoveryService`, for a server of the caller's.
    pub fn service(&self) -> AdsService {
        AdsService {
            inner: Arc::clone(&self.inner),
            stop: watch::Sender::new(false),
        }
    }

    /// Serves over a Unix socket until `shutdown` completes, then ends all its streams and removes
    /// the socket. A socket that a dead process left behind is replaced; only the owner of the
    /// process may connect.
    ///
    /// # Errors
    ///
    /// The socket can't be made (another server has it, or the path is too long or not writable),
    /// or serving fails.
    pub async fn serve_unix(
        &self,
        path: &Path,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let listener = bind(path).await.map_err(|source| ServeError::Bind {
            path: path.to_owned(),
            source,
        })?;
        let result = self
            .serve_incoming(UnixListenerStream::new(listener), shutdown)
            .await;
        // Best effort: a socket that stays behind is replaced at the next start.
        let _: io::Result<()> = tokio::fs::remove_file(path).await;
        result
    }

    /// Serves the connections of `incoming` (plain, or with TLS already terminated by the caller)
    /// until `shutdown` completes, then ends all their streams.
    ///
    /// # Errors
    ///
    /// Serving fails; a connection that fails is not a failure of the server.
    pub async fn serve_incoming<I, IO, IE>(
        &self,
        incoming: I,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError>
    where
        I: tokio_stream::Stream<Item = Result<IO, IE>>,
        IO: tokio::io::AsyncRead
            + tokio::io::AsyncWrite
            + tonic::transport::server::Connected
            + Unpin
            + Send
            + 'static,
        IE: Into<StdError>,
    {
        let service = self.service();
        let stop = service.stop.clone();
        tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, async {
                shutdown.await;
                // Open streams would keep their connections, and those the server, for ever.
                stop.send_replace(true);
            })
            .await
            .map_err(ServeError::Serve)
    }
}

/// A failure to serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket can't be made.
    #[error("cannot listen on {}: {source}", path.display())]
    Bind {
        /// The path of the socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The server failed.
    #[error("the discovery server failed: {0}")]
    Serve(#[source] tonic::transport::Error),
}

async fn bind(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let left_behind = tokio::fs::symlink_metadata(path)
                .await?
                .file_type()
                .is_socket()
                && UnixStream::connect(path)
                    .await
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if !left_behind {
                return Err(error);
            }
            tokio::fs::remove_file(path).await?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    tokio::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).await?;
    Ok(listener)
}

/// The gRPC service `envoy.service.discovery.v3.AggregatedDiscoveryService`: its delta method. The
/// state-of-the-world method answers `UNIMPLEMENTED`.
#[derive(Debug, Clone)]
pub struct AdsService {
    inner: Arc<Inner>,
    stop: watch::Sender<bool>,
}

impl NamedService for AdsService {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

impl<B> Service<http::Request<B>> for AdsService
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let refusal = match request.uri().path() {
            DELTA => {
                let mut grpc = Grpc::new(DeltaCodec)
                    .max_decoding_message_size(self.inner.limits.request_bytes);
                let delta = Delta(self.clone());
                return Box::pin(async move { Ok(grpc.streaming(delta, request).await) });
            }
            STATE_OF_THE_WORLD => {
                Status::unimplemented("only delta discovery is spoken: set api_type DELTA_GRPC")
            }
            _ => Status::unimplemented("no such method"),
        };
        Box::pin(async move { Ok(refusal.into_http()) })
    }
}

#[cfg(test)]
mod tests;

/// The delta method.
struct Delta(AdsService);

impl StreamingService<DeltaDiscoveryRequest> for Delta {
    type Response = Response;
    type ResponseStream = ReceiverStream<Result<Response, Status>>;
    type Future = BoxFuture<tonic::Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: tonic::Request<Streaming<DeltaDiscoveryRequest>>) -> Self::Future {
        let (out, responses) = mpsc::channel(QUEUE);
        let (_, extensions, requests) = request.into_parts();
        tokio::spawn(stream::serve(
            Arc::clone(&self.0.inner),
            requests,
            extensions,
            out,
            self.0.stop.subscribe(),
        ));
        Box::pin(async move { Ok(tonic::Response::new(ReceiverStream::new(responses))) })
    }
}
