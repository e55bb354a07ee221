//! Streams whose clients don't read or leave, with the request's and response's bodies as the connection sees them.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use prost::Message as _;
use prost::bytes::{BufMut, Bytes};
use tokio_stream::wrappers::ReceiverStream;

use super::super::*;
use crate::grpc::prefix;
use crate::resource::Resource;

/// The maximum size of a request, which is also the memory for all unprocessed requests of the fleet.
const MEMORY: usize = 32 << 10;

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

    /// Subscribes to all resources of the type, with a request of at least this size.
    async fn subscribe(&self, ty: ResourceType, size: usize) {
        let request = DeltaDiscoveryRequest {
            node: Some(Node {
                cluster: "f".to_owned(),
                ..Node::default()
            }),
            type_url: ty.type_url().to_owned(),
            resource_names_subscribe: vec!["*".to_owned(), "n".repeat(1_000)],
            response_nonce: "n".repeat(size),
            ..DeltaDiscoveryRequest::default()
        };
        let mut message = prefix(request.encoded_len());
        message.put(&*request.encode_to_vec());
        self.send(message.freeze()).await;
    }

    /// Receives a part of a response.
    async fn receive(&mut self) {
        let frame = self.responses.frame();
        let frame = tokio::time::timeout(Duration::from_secs(10), frame).await;
        assert!(frame.expect("a response").unwrap().unwrap().is_data());
    }
}

/// A service for a fleet with one resource of some types.
fn service() -> DeltaService {
    let registry = Registry::new(ServerConfig {
        limits: Limits {
            request_bytes: MEMORY,
            ..Limits::default()
        },
        ..ServerConfig::default()
    });
    let types = [
        ResourceType::Cluster,
        ResourceType::Listener,
        ResourceType::Secret,
    ];
    let upserts = types.map(|ty| (ty, Resource::new("r", b"body".to_vec())));
    registry.apply(
        &FleetId::new("f"),
        Update {
            upserts: upserts.into(),
            ..Update::default()
        },
    );
    DeltaService {
        inner: registry.inner,
        stop: watch::Sender::new(false),
    }
}

/// Large requests of a client that doesn't read its responses are processed.
#[tokio::test]
async fn a_client_that_does_not_read_does_not_hold_the_fleets_memory() {
    let service = service();
    let unread = Client::connect(&service);
    for ty in [
        ResourceType::Cluster,
        ResourceType::Secret,
        ResourceType::Listener,
    ] {
        unread.subscribe(ty, MEMORY * 3 / 4).await;
    }
    let mut other = Client::connect(&service);
    other.subscribe(ResourceType::Cluster, MEMORY * 3 / 4).await;
    other.receive().await;
    drop(unread);
}

/// A stream that waits for memory ends with its client, and doesn't take the memory later.
#[tokio::test]
async fn a_stream_that_waits_for_memory_ends_with_its_client() {
    let service = service();
    let begin = prefix(MEMORY).freeze();
    let first = Client::connect(&service);
    first.send(begin.clone()).await;
    let waiting = Client::connect(&service);
    waiting.send(begin).await;
    // Both streams have read the beginnings of their requests.
    while waiting.requests.capacity() < waiting.requests.max_capacity() {
        tokio::task::yield_now().await;
    }
    drop(waiting.responses);
    let ended = tokio::time::timeout(Duration::from_secs(10), waiting.requests.closed()).await;
    ended.expect("the stream ends");
    drop(first.responses);
    let mut other = Client::connect(&service);
    other.subscribe(ResourceType::Cluster, MEMORY * 3 / 4).await;
    other.receive().await;
}
