//! The registry of fleets and its gRPC service.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot, watch};
use tonic::body::Body;
use tonic::codegen::{Service, StdError, http};
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::server::NamedService;
use tonic::{Extensions, Status};

use crate::config::{Limits, ServerConfig};
use crate::event::{EventReceiver, Publisher};
use crate::fleet::{Fleet, FleetStatus};
use crate::grpc::{Memory, Requests, Responses};
use crate::resource::{FleetId, ResourceType, Update};
use crate::sent::{SentCounters, SentTotals};
use crate::stream;
use crate::tls::Peer;

const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const STATE_OF_THE_WORLD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// Number of responses buffered per stream, besides the one being sent.
const RESPONSE_BUFFER: usize = 1;
/// Concurrent streams on a connection. Envoy uses one.
const STREAMS_PER_CONNECTION: u32 = 4;
/// How many bytes of a stream, and of a connection, the server buffers until the stream's task reads them.
const STREAM_WINDOW: u32 = 12 << 10;
const CONNECTION_WINDOW: u32 = 64 << 10;
/// Interval and timeout of HTTP/2 keepalive pings.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A fleet shared by the registry and its streams.
#[derive(Debug)]
pub(crate) struct SharedFleet {
    state: Mutex<Fleet>,
    /// Streams process requests in turn, so that a fleet with many requests has one task to run, like other fleets.
    turn: Semaphore,
    /// Notifies streams of changes.
    changed: watch::Sender<()>,
    publisher: Arc<Publisher>,
}

impl SharedFleet {
    /// Locks the fleet, then publishes the events and notifies the streams of changes.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Fleet) -> R) -> R {
        let mut fleet = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let observe = |fleet: &Fleet| {
            let rejections = fleet.rejection_count();
            (
                fleet.epoch(),
                fleet.log_end(),
                rejections,
                fleet.is_removed(),
            )
        };
        let before = observe(&fleet);
        let result = f(&mut fleet);
        let after = observe(&fleet);
        // Under the lock, to keep the order of events.
        self.publisher.publish(&fleet.take_events());
        drop(fleet);
        if before != after {
            self.changed.send_replace(());
        }
        result
    }

    /// Waits until no other stream of the fleet processes a request.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // Never closed.
        self.turn.acquire().await.ok()
    }

    pub(crate) fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// A client's membership in a fleet, which ends on drop.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) fleet: Arc<SharedFleet>,
    pub(crate) client: u64,
    registry: Arc<Inner>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.registry.leave(&self.fleet, self.client);
    }
}

/// The fleets by ID, and their streams. Its lock is never held while waiting for a fleet's lock, so a busy fleet doesn't
/// delay others.
#[derive(Debug, Default)]
struct Fleets {
    by_id: HashMap<FleetId, Known>,
    streams: usize,
    /// The streams of fleets that aren't updated yet.
    waiting: usize,
}

/// A fleet with updates, or with clients that wait for its first update.
#[derive(Debug)]
struct Known {
    shared: Arc<SharedFleet>,
    /// Whether the fleet has updates. If not, it is dropped with its last client.
    updated: bool,
    streams: usize,
}

/// The state of a registry.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: ServerConfig,
    fleets: Mutex<Fleets>,
    /// The memory for requests, by the fleet that the client's certificate names.
    memory: Mutex<HashMap<Option<FleetId>, Memory>>,
    publisher: Arc<Publisher>,
    next_client: AtomicU64,
    pub(crate) sent: SentCounters,
}

impl Inner {
    fn fleets(&self) -> MutexGuard<'_, Fleets> {
        self.fleets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory for the requests of a stream that begins.
    fn memory(&self, extensions: &Extensions) -> Memory {
        let fleet = extensions.get::<Peer>().map(|peer| peer.fleet.clone());
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.retain(|_, memory| !memory.is_unused());
        let new = || Memory::new(&self.config.limits);
        memory.entry(fleet).or_insert_with(new).clone()
    }

    fn get_or_create<'a>(&self, fleets: &'a mut Fleets, id: &FleetId) -> &'a mut Known {
        fleets.by_id.entry(id.clone()).or_insert_with(|| Known {
            shared: Arc::new(SharedFleet {
                state: Mutex::new(Fleet::new(id.clone())),
                turn: Semaphore::new(1),
                changed: watch::Sender::new(()),
                publisher: Arc::clone(&self.publisher),
            }),
            updated: false,
            streams: 0,
        })
    }

    /// Adds a client to a fleet. A client of an unknown fleet waits for the fleet's first update.
    pub(crate) fn join(
        self: &Arc<Self>,
        id: &FleetId,
        node_id: Arc<str>,
    ) -> Result<Membership, Status> {
        let fleet = self.admit(id)?;
        let client = self.next_client.fetch_add(1, Ordering::Relaxed);
        fleet.with(|fleet| fleet.join(client, node_id));
        Ok(Membership {
            fleet,
            client,
            registry: Arc::clone(self),
        })
    }

    /// Counts a new stream of a fleet, unless there are too many.
    fn admit(&self, id: &FleetId) -> Result<Arc<SharedFleet>, Status> {
        let limits = &self.config.limits;
        let mut fleets = self.fleets();
        let known = fleets.by_id.get(id);
        let updated = known.is_some_and(|known| known.updated);
        let refusal = if fleets.streams >= limits.streams {
            Some("too many streams")
        } else if known.map_or(0, |known| known.streams) >= limits.fleet_streams {
            Some("the fleet has too many streams")
        } else if !updated && fleets.waiting >= limits.waiting_streams {
            Some("too many streams are waiting for unknown fleets")
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return Err(Status::resource_exhausted(refusal));
        }
        fleets.streams += 1;
        fleets.waiting += usize::from(!updated);
        let known = self.get_or_create(&mut fleets, id);
        known.streams += 1;
        Ok(Arc::clone(&known.shared))
    }

    fn leave(&self, fleet: &Arc<SharedFleet>, client: u64) {
        let id = fleet.with(|fleet| {
            fleet.leave(client);
            fleet.id().clone()
        });
        let mut fleets = self.fleets();
        fleets.streams -= 1;
        // Otherwise, the fleet has been removed, and perhaps created again.
        if let Some(known) = fleets.by_id.get_mut(&id)
            && Arc::ptr_eq(&known.shared, fleet)
        {
            known.streams -= 1;
            if !known.updated {
                let unused = known.streams == 0;
                fleets.waiting -= 1;
                if unused {
                    fleets.by_id.remove(&id);
                }
            }
        }
    }
}

/// All fleets and their resources. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

impl Registry {
    /// An empty registry.
    pub fn new(config: ServerConfig) -> Registry {
        Registry {
            inner: Arc::new(Inner {
                config,
                fleets: Mutex::default(),
                memory: Mutex::default(),
                publisher: Arc::default(),
                next_client: AtomicU64::new(1),
                sent: SentCounters::default(),
            }),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.inner.config.limits
    }

    /// Applies an update to a fleet. The first update creates the fleet and should be complete, since nothing is served
    /// before it. Costs O(update).
    pub fn apply(&self, fleet: &FleetId, update: Update) {
        let shared = {
            let mut fleets = self.inner.fleets();
            let known = self.inner.get_or_create(&mut fleets, fleet);
            let waiting = match std::mem::replace(&mut known.updated, true) {
                true => 0,
                false => known.streams,
            };
            let shared = Arc::clone(&known.shared);
            fleets.waiting -= waiting;
            shared
        };
        shared.with(|state| state.apply(update));
    }

    /// Removes a fleet and ends its streams. Reconnecting clients wait until the fleet is created again.
    pub fn remove_fleet(&self, fleet: &FleetId) {
        let removed = {
            let mut fleets = self.inner.fleets();
            let removed = fleets.by_id.remove(fleet);
            if let Some(known) = removed.as_ref().filter(|known| !known.updated) {
                fleets.waiting -= known.streams;
            }
            removed
        };
        if let Some(known) = removed {
            known.shared.with(Fleet::remove);
        }
    }

    /// Subscribes to all future events.
    pub fn events(&self) -> EventReceiver {
        self.inner.publisher.subscribe()
    }

    /// Totals sent since the registry's creation, by type.
    pub fn sent(&self) -> [SentTotals; ResourceType::ALL.len()] {
        self.inner.sent.totals()
    }

    /// The known fleets, sorted. Excludes fleets that exist only because clients wait for them.
    pub fn fleets(&self) -> Vec<FleetId> {
        let fleets = self.inner.fleets();
        let mut ids: Vec<FleetId> = fleets
            .by_id
            .iter()
            .filter(|(_, known)| known.updated)
            .map(|(id, _)| id.clone())
            .collect();
        ids.sort_unstable();
        ids
    }

    /// A fleet's clients and rejections, if the fleet is known or has waiting clients.
    pub fn status(&self, fleet: &FleetId) -> Option<FleetStatus> {
        let shared = Arc::clone(&self.inner.fleets().by_id.get(fleet)?.shared);
        Some(shared.with(|fleet| fleet.status()))
    }

    /// Serves connections from `incoming` until `shutdown` completes, then ends all their streams.
    ///
    /// # Errors
    ///
    /// Returns an error if the server fails. A failed connection is not an error.
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
        let service = DeltaService {
            inner: Arc::clone(&self.inner),
            stop: watch::Sender::new(false),
        };
        let stop = service.stop.clone();
        tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, async {
                shutdown.await;
                // Open streams would keep their connections, and so the server, open forever.
                stop.send_replace(true);
            })
            .await
            .map_err(ServeError)
    }
}

/// The xDS server failed.
#[derive(Debug, thiserror::Error)]
#[error("the xDS server failed: {0}")]
pub struct ServeError(#[source] tonic::transport::Error);

/// The delta method of the gRPC service `envoy.service.discovery.v3.AggregatedDiscoveryService`. The state-of-the-world
/// method answers `UNIMPLEMENTED`.
#[derive(Debug, Clone)]
struct DeltaService {
    inner: Arc<Inner>,
    stop: watch::Sender<bool>,
}

impl NamedService for DeltaService {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

impl Service<http::Request<Body>> for DeltaService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let response = match request.uri().path() {
            DELTA => self.stream(request),
            STATE_OF_THE_WORLD => Status::unimplemented(
                "only incremental discovery is supported: set api_type to DELTA_GRPC",
            )
            .into_http(),
            _ => Status::unimplemented("no such method").into_http(),
        };
        ready(Ok(response))
    }
}

impl DeltaService {
    /// Begins a stream.
    fn stream(&self, request: http::Request<Body>) -> http::Response<Body> {
        let (sender, responses) = mpsc::channel(RESPONSE_BUFFER);
        let (end, status) = oneshot::channel();
        let (parts, body) = request.into_parts();
        let memory = self.inner.memory(&parts.extensions);
        let requests = Requests::new(body, memory, &self.inner.config.limits);
        tokio::spawn(stream::serve(
            Arc::clone(&self.inner),
            requests,
            parts.extensions,
            sender,
            end,
            self.stop.subscribe(),
        ));
        let mut response = http::Response::new(Body::new(Responses::new(responses, status)));
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, GRPC_CONTENT_TYPE);
        response
    }
}

#[cfg(test)]
mod tests;
