//! Streams whose clients don't read or leave, with the request's and response's bodies as the connection sees them.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use prost::Message as _;
use prost::bytes::{BufMut, Bytes, BytesMut};
use tokio::task::yield_now;
use tokio_stream::wrappers::ReceiverStream;

use super::super::*;
use crate::grpc::{PREFIX, prefix};
use crate::resource::Resource;

/// The maximum size of a request, which is also the memory for all unprocessed requests of the fleet.
const MEMORY: usize = 32 << 10;
/// Time limit of each step.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client's ends of a stream.
struct Client {
    requests: mpsc::Sender<Result<Frame<Bytes>, Status>>,
    responses: Body,
}

impl Client {
    fn connect(service: &DeltaService) -> Client {
        let (requests, frames) = mpsc::channel(100);
        let body = Body::new(StreamBody::new(ReceiverStream::new(frames)));
        let responses = service.stream(http::Request::new(body));
        Client {
            requests,
            responses: responses.into_body(),
        }
    }

    async fn send(&self, bytes: Bytes) {
        self.requests.send(Ok(Frame::data(bytes))).await.unwrap();
    }

    /// Returns once the stream has read what the client sent, and handled what else was due.
    async fn is_read(&self) {
        let read = async {
            while self.requests.capacity() < self.requests.max_capacity() {
                yield_now().await;
            }
        };
        let read = tokio::time::timeout(PATIENCE, read).await;
        read.expect("the requests are read");
        // The test has a single thread, so this runs the stream's task.
        yield_now().await;
    }

    /// Subscribes to the resource of a type, receives it and acknowledges it.
    async fn follow(&mut self, ty: ResourceType) {
        self.send(encoded(ty, &["r"], "")).await;
        let response = self.receive().await;
        self.send(encoded(ty, &[], &response.nonce)).await;
    }

    /// Receives a response.
    async fn receive(&mut self) -> DeltaDiscoveryResponse {
        let mut received = BytesMut::new();
        loop {
            let frame = tokio::time::timeout(PATIENCE, self.responses.frame()).await;
            let frame = frame.expect("a response").unwrap().unwrap();
            received.extend_from_slice(&frame.into_data().unwrap());
            if let Some(message) = received.get(PREFIX..)
                && let Ok(response) = DeltaDiscoveryResponse::decode(message)
                && !response.nonce.is_empty()
            {
                return response;
            }
        }
    }
}

/// A request that subscribes to these names, with its prefix.
fn encoded(ty: ResourceType, names: &[&str], nonce: &str) -> Bytes {
    let request = DeltaDiscoveryRequest {
        node: Some(Node {
            cluster: "f".to_owned(),
            ..Node::default()
        }),
        type_url: ty.type_url().to_owned(),
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        response_nonce: nonce.to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    let mut message = prefix(request.encoded_len());
    message.put(&*request.encode_to_vec());
    message.freeze()
}

/// A request for the cluster that takes most of the memory.
fn large() -> Bytes {
    encoded(ResourceType::Cluster, &["r"], &"n".repeat(MEMORY * 3 / 4))
}

/// A service for a fleet with a cluster and a secret, which are sent independently.
fn service() -> (Registry, DeltaService) {
    let registry = Registry::new(ServerConfig {
        limits: Limits {
            request_bytes: MEMORY,
            ..Limits::default()
        },
        ..ServerConfig::default()
    });
    update(&registry, "one");
    let service = DeltaService {
        inner: Arc::clone(&registry.inner),
        stop: watch::Sender::new(false),
    };
    (registry, service)
}

fn update(registry: &Registry, body: &str) {
    let types = [ResourceType::Cluster, ResourceType::Secret];
    let upserts = types.map(|ty| (ty, Resource::new("r", body.as_bytes().to_vec())));
    let update = Update {
        upserts: upserts.into(),
        ..Update::default()
    };
    registry.apply(&FleetId::new("f"), update);
}

/// A request that has begun is processed although responses wait for the client.
#[tokio::test]
async fn a_client_that_does_not_read_does_not_hold_the_fleets_memory() {
    let (registry, service) = service();
    let mut unread = Client::connect(&service);
    unread.follow(ResourceType::Cluster).await;
    unread.follow(ResourceType::Secret).await;
    let mut request = large();
    unread.send(request.split_to(MEMORY / 2)).await;
    unread.is_read().await;
    update(&registry, "two");
    unread.is_read().await;
    unread.send(request).await;
    let mut other = Client::connect(&service);
    other.send(large()).await;
    other.receive().await;
    drop(unread);
}

/// A stream that waits for memory ends with its client, and doesn't take the memory later.
#[tokio::test]
async fn a_stream_that_waits_for_memory_ends_with_its_client() {
    let (_registry, service) = service();
    let begin = prefix(MEMORY).freeze();
    let first = Client::connect(&service);
    first.send(begin.clone()).await;
    let waiting = Client::connect(&service);
    waiting.send(begin).await;
    waiting.is_read().await;
    drop(waiting.responses);
    let ended = tokio::time::timeout(PATIENCE, waiting.requests.closed()).await;
    ended.expect("the stream ends");
    drop(first.responses);
    let mut other = Client::connect(&service);
    other.send(large()).await;
    other.receive().await;
}
