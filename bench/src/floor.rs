//! The baseline server: a minimal xDS server whose latency is a lower bound for Sesame's. It pushes encoded resources
//! to one client in a safe order, without translation, sessions, versions or NACKs.
//!
//! In: encoded resources. Out: the same, to one Envoy, in this order:
//!
//! - on subscription: the resources subscribed to by name, or all clusters, listeners and scopes;
//! - a push without new clusters: routes and endpoints, at once;
//! - a push with new clusters: the clusters; once Envoy subscribes to their endpoints, endpoints and routes together.
//!   This is the fastest order in which no route refers to a missing cluster;
//! - removed clusters, once Envoy has ACKed the routes that no longer refer to them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::Pin;

use anyhow::{Context, Result};
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use envoy_types::pb::google::protobuf::Any;
use sesame_envoy::{ResourceChange, names};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use crate::rig;

/// Capacity of the push and response queues.
const QUEUE: usize = 64;

/// The server, with a dedicated thread.
#[derive(Debug)]
pub(crate) struct Floor {
    pushes: mpsc::Sender<Push>,
    _runtime: Runtime,
}

/// An encoded change.
#[derive(Debug, Default)]
pub(crate) struct Push {
    upserts: BTreeMap<&'static str, Vec<Resource>>,
    removals: BTreeMap<&'static str, Vec<String>>,
}

impl Push {
    pub(crate) fn new(changes: &[ResourceChange]) -> Self {
        let mut push = Self::default();
        for change in changes {
            let type_url = change.type_url;
            // These Envoys have the module.
            let message = change.message_with_module().or_else(|| change.message());
            match message {
                Some(message) => push.upserts.entry(type_url).or_default().push(Resource {
                    name: change.name.clone(),
                    resource: Some(Any {
                        type_url: type_url.to_owned(),
                        value: message.to_vec(),
                    }),
                    ..Resource::default()
                }),
                None => push
                    .removals
                    .entry(type_url)
                    .or_default()
                    .push(change.name.clone()),
            }
        }
        push
    }

    /// Adds a resource.
    pub(crate) fn add(&mut self, type_url: &'static str, name: &str, message: Vec<u8>) {
        self.upserts.entry(type_url).or_default().push(Resource {
            name: name.to_owned(),
            resource: Some(Any {
                type_url: type_url.to_owned(),
                value: message,
            }),
            ..Resource::default()
        });
    }
}

impl Floor {
    /// Serves on a Unix socket, initially with the resources in `first`.
    pub(crate) fn start(socket: &Path, first: Push) -> Result<Self> {
        let runtime = rig::runtime("floor")?;
        let (pushes, incoming) = mpsc::channel(QUEUE);
        let mut server = Server::default();
        server.store(&first);
        let service = Service {
            parts: Mutex::new(Some((server, incoming))),
        };
        let _in_runtime = runtime.enter();
        let listener =
            UnixListener::bind(socket).context("cannot listen on the baseline server's socket")?;
        drop(_in_runtime);
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(AggregatedDiscoveryServiceServer::new(service))
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        Ok(Self {
            pushes,
            _runtime: runtime,
        })
    }

    /// A sender for use in async tasks.
    pub(crate) fn pushes(&self) -> mpsc::Sender<Push> {
        self.pushes.clone()
    }
}

/// The gRPC service, for one stream.
#[derive(Debug)]
struct Service {
    parts: Mutex<Option<(Server, mpsc::Receiver<Push>)>>,
}

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Responses<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Responses<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        _: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("only delta xDS is supported"))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let (mut server, mut pushes) = self
            .parts
            .lock()
            .await
            .take()
            .ok_or_else(|| Status::unavailable("only one stream is supported"))?;
        let mut requests = request.into_inner();
        let (out, responses) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            loop {
                let responses = tokio::select! {
                    Some(request) = requests.next() => match request {
                        Ok(request) => server.request(&request),
                        Err(_) => return,
                    },
                    Some(push) = pushes.recv() => server.push(push),
                    else => return,
                };
                for response in responses {
                    if out.send(Ok(response)).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }
}

/// Current resources and pending responses.
#[derive(Debug, Default)]
struct Server {
    resources: BTreeMap<&'static str, BTreeMap<String, Resource>>,
    started: BTreeSet<&'static str>,
    /// Sent once Envoy subscribes to endpoints.
    after_clusters: Vec<DeltaDiscoveryResponse>,
    /// Sent once Envoy ACKs routes.
    after_routes: Vec<DeltaDiscoveryResponse>,
    sent: u64,
}

impl Server {
    fn store(&mut self, push: &Push) {
        for (type_url, upserts) in &push.upserts {
            let of_type = self.resources.entry(type_url).or_default();
            of_type.extend(upserts.iter().map(|new| (new.name.clone(), new.clone())));
        }
        for (type_url, removals) in &push.removals {
            let of_type = self.resources.entry(type_url).or_default();
            of_type.retain(|name, _| !removals.contains(name));
        }
    }

    fn request(&mut self, request: &DeltaDiscoveryRequest) -> Vec<DeltaDiscoveryResponse> {
        let known = names::TYPES.into_iter().find(|ty| **ty == request.type_url);
        let Some(type_url) = known else {
            return Vec::new();
        };
        if let Some(error) = &request.error_detail {
            eprintln!(
                "the baseline server's Envoy rejected an update: {}",
                error.message
            );
        }
        let acknowledges = !request.response_nonce.is_empty();
        if type_url == names::ROUTES && acknowledges {
            return std::mem::take(&mut self.after_routes);
        }
        let roots = [names::CLUSTER, names::LISTENER, names::SCOPE];
        let all = self.started.insert(type_url) && roots.contains(&type_url);
        let of_type = self.resources.get(type_url);
        let wanted: Vec<Resource> = of_type
            .into_iter()
            .flatten()
            .filter(|(name, _)| all || request.resource_names_subscribe.contains(name))
            .map(|(_, resource)| resource.clone())
            .collect();
        let mut responses = Vec::new();
        if all || !request.resource_names_subscribe.is_empty() {
            responses.push(self.response(type_url, wanted, Vec::new()));
        }
        if type_url == names::ENDPOINTS && !responses.is_empty() {
            responses.append(&mut self.after_clusters);
        }
        responses
    }

    fn push(&mut self, mut push: Push) -> Vec<DeltaDiscoveryResponse> {
        self.store(&push);
        let mut take = |type_url| push.upserts.remove(type_url).unwrap_or_default();
        let [clusters, endpoints, routes] =
            [names::CLUSTER, names::ENDPOINTS, names::ROUTES].map(&mut take);
        let mut responses = Vec::new();
        let new_clusters = !clusters.is_empty();
        if new_clusters {
            responses.push(self.response(names::CLUSTER, clusters, Vec::new()));
        } else if !endpoints.is_empty() {
            responses.push(self.response(names::ENDPOINTS, endpoints, Vec::new()));
        }
        if !routes.is_empty() {
            let routes = self.response(names::ROUTES, routes, Vec::new());
            if new_clusters {
                self.after_clusters.push(routes);
            } else {
                responses.push(routes);
            }
        }
        if let Some(gone) = push.removals.remove(names::CLUSTER) {
            let gone = self.response(names::CLUSTER, Vec::new(), gone);
            self.after_routes.push(gone);
        }
        responses
    }

    fn response(
        &mut self,
        type_url: &str,
        mut resources: Vec<Resource>,
        removed_resources: Vec<String>,
    ) -> DeltaDiscoveryResponse {
        self.sent += 1;
        for resource in &mut resources {
            resource.version = self.sent.to_string();
        }
        DeltaDiscoveryResponse {
            type_url: type_url.to_owned(),
            nonce: self.sent.to_string(),
            resources,
            removed_resources,
            ..DeltaDiscoveryResponse::default()
        }
    }
}
