//! The server over real sockets, with fake Envoys.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use sesame_testkit::fake_envoy::{Builder, FakeEnvoy, Message, Server, State};
use sesame_xds::ResourceType::{Cluster, Endpoint, Listener, Route};
use sesame_xds::{
    EventReceiver, FleetId, Limits, Registry, Resource, ResourceType, ServerConfig, Update,
    XdsEvent,
};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;

struct Running {
    registry: Registry,
    server: Server,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Running {
    fn start(config: ServerConfig) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("xds.sock");
        let registry = Registry::new(config);
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = registry.clone();
        let incoming = UnixListenerStream::new(UnixListener::bind(&path).unwrap());
        let task = tokio::spawn(async move {
            let shutdown = async { stopped.await.unwrap_or_default() };
            serving.serve_incoming(incoming, shutdown).await.unwrap();
        });
        Running {
            registry,
            server: Server::Unix(path),
            stop: Some(stop),
            task,
            _dir: dir,
        }
    }

    async fn connect(&self, builder: Builder) -> FakeEnvoy {
        builder.connect(self.server.clone()).await.unwrap()
    }

    fn apply(
        &self,
        revision: u64,
        upserts: &[(ResourceType, &str, &str)],
        removals: &[(ResourceType, &str)],
    ) {
        self.registry
            .apply(&fleet(), update(revision, upserts, removals));
    }

    async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(10), &mut self.task)
            .await
            .expect("the server stops despite open streams")
            .unwrap();
    }
}

fn fleet() -> FleetId {
    FleetId::new("ns/gateway")
}

fn update(
    revision: u64,
    upserts: &[(ResourceType, &str, &str)],
    removals: &[(ResourceType, &str)],
) -> Update {
    Update {
        upserts: upserts
            .iter()
            .map(|(ty, name, body)| (*ty, Resource::new(*name, body.as_bytes().to_vec())))
            .collect(),
        removals: removals
            .iter()
            .map(|(ty, name)| (*ty, (*name).into()))
            .collect(),
        revision,
    }
}

/// A client that subscribes to the route named in a listener's body and rejects bodies that begin with `bad`.
fn envoy(node_id: &str) -> Builder {
    FakeEnvoy::builder("ns/gateway", node_id)
        .follow(|ty, body| match ty {
            Listener => vec![(Route, String::from_utf8(body.to_vec()).unwrap())],
            _ => Vec::new(),
        })
        .reject(|_, _, body| body.starts_with(b"bad").then(|| "it is bad".to_owned()))
}

async fn next(events: &mut EventReceiver) -> XdsEvent {
    tokio::time::timeout(Duration::from_secs(10), events.next())
        .await
        .expect("an event")
}

async fn until(events: &mut EventReceiver, wanted: impl Fn(&XdsEvent) -> bool) -> XdsEvent {
    loop {
        let event = next(events).await;
        if wanted(&event) {
            return event;
        }
    }
}

const SERVED: &[(ResourceType, &str, &str)] = &[
    (Route, "r", "v0"),
    (Listener, "l", "r"),
    (Endpoint, "c", "v0"),
    (Cluster, "c", "v0"),
];

fn response(ty: ResourceType, resources: &[&str], removed: &[&str]) -> Message {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Message::Response {
        resource_type: ty,
        resources: owned(resources),
        removed: owned(removed),
    }
}

#[tokio::test]
async fn a_client_waits_for_its_fleet_and_gets_everything_in_order() {
    let running = Running::start(ServerConfig::default());
    let mut events = running.registry.events();
    let envoy = running.connect(envoy("one")).await;
    assert!(
        matches!(next(&mut events).await, XdsEvent::Connected(client) if &*client.node_id == "one")
    );
    assert!(running.registry.fleets().is_empty());
    running.apply(3, SERVED, &[]);
    until(&mut events, |event| {
        matches!(event, XdsEvent::Acked { revision: 3, .. })
    })
    .await;
    let expected = [
        response(Cluster, &["c"], &[]),
        response(Endpoint, &["c"], &[]),
        Message::Ack(Cluster),
        Message::Ack(Endpoint),
        response(Listener, &["l"], &[]),
        Message::Ack(Listener),
        response(Route, &["r"], &[]),
        Message::Ack(Route),
    ];
    let mut messages = envoy.state().messages().to_vec();
    // Clusters are acknowledged once they have endpoints, in any order.
    messages.sort_by_key(|message| expected.iter().position(|other| other == message));
    assert_eq!(messages, expected);
    let at = |wanted: Message| {
        let state = envoy.state();
        state.messages().iter().position(|m| *m == wanted).unwrap()
    };
    assert!(at(Message::Ack(Cluster)) < at(response(Listener, &["l"], &[])));
    assert_eq!(envoy.state().body(Route, "r"), Some(&b"v0"[..]));
    running.stop().await;
}

/// A cluster with the EDS service name `c`: `eds_cluster_config { service_name: "c" }`.
const WITH_ENDPOINTS_OF_C: &[u8] = b"\x1a\x03\x12\x01c";

#[tokio::test]
async fn endpoints_are_sent_again_for_another_cluster_that_uses_them() {
    let running = Running::start(ServerConfig::default());
    running.apply(1, SERVED, &[]);
    let mut events = running.registry.events();
    let envoy = running.connect(envoy("one")).await;
    for (revision, name) in [(2, "d"), (3, "e")] {
        let upserts = vec![(Cluster, Resource::new(name, WITH_ENDPOINTS_OF_C))];
        let update = Update {
            upserts,
            revision,
            ..Update::default()
        };
        running.registry.apply(&fleet(), update);
        until(&mut events, |event| match event {
            XdsEvent::Acked { revision: of, .. } => *of == revision,
            XdsEvent::WarmingTimedOut(_) => panic!("{name} is still warming"),
            _ => false,
        })
        .await;
    }
    drop(envoy);
    running.stop().await;
}

#[tokio::test]
async fn routes_wait_for_the_acknowledgement_of_clusters() {
    let running = Running::start(ServerConfig::default());
    running.apply(1, SERVED, &[]);
    let mut events = running.registry.events();
    let envoy = running.connect(envoy("one")).await;
    until(&mut events, |event| {
        matches!(event, XdsEvent::Acked { revision: 1, .. })
    })
    .await;
    envoy.hold(Cluster);
    running.apply(
        2,
        &[
            (Cluster, "d", "v0"),
            (Endpoint, "d", "v0"),
            (Route, "r", "v1"),
        ],
        &[],
    );
    envoy
        .until(|state| state.body(Endpoint, "d").is_some())
        .await
        .unwrap();
    assert_eq!(envoy.state().body(Route, "r"), Some(&b"v0"[..]));
    running.apply(3, &[(Endpoint, "c", "v1")], &[]);
    envoy
        .until(|state| state.body(Endpoint, "c") == Some(b"v1"))
        .await
        .unwrap();
    assert_eq!(envoy.state().body(Route, "r"), Some(&b"v0"[..]));
    envoy.release(Cluster);
    envoy
        .until(|state| state.body(Route, "r") == Some(b"v1"))
        .await
        .unwrap();
    until(&mut events, |event| {
        matches!(event, XdsEvent::Acked { revision: 3, .. })
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn a_reconnecting_client_is_not_sent_what_it_has() {
    let running = Running::start(ServerConfig::default());
    running.apply(1, SERVED, &[]);
    let mut events = running.registry.events();
    let mut envoy = running.connect(envoy("one")).await;
    until(&mut events, |event| matches!(event, XdsEvent::Acked { .. })).await;
    let before = envoy.state().messages().len();
    envoy.disconnect();
    until(&mut events, |event| {
        matches!(event, XdsEvent::Disconnected(_))
    })
    .await;
    envoy.reconnect().await.unwrap();
    until(&mut events, |event| {
        matches!(event, XdsEvent::Acked { revision: 1, .. })
    })
    .await;
    running.apply(2, &[(Route, "r", "v1")], &[]);
    envoy
        .until(|state| state.body(Route, "r") == Some(b"v1"))
        .await
        .unwrap();
    assert_eq!(
        envoy.state().messages()[before..],
        [response(Route, &["r"], &[]), Message::Ack(Route)]
    );
    running.stop().await;
}

#[tokio::test]
async fn a_rejected_resource_does_not_affect_other_resources_or_clients() {
    let running = Running::start(ServerConfig::default());
    running.apply(1, SERVED, &[]);
    let mut events = running.registry.events();
    let one = running.connect(envoy("one")).await;
    until(&mut events, |event| matches!(event, XdsEvent::Acked { .. })).await;
    running.apply(
        2,
        &[
            (Cluster, "c", "bad"),
            (Cluster, "d", "v0"),
            (Route, "r", "v1"),
        ],
        &[],
    );
    let rejected = until(&mut events, |event| {
        matches!(event, XdsEvent::Rejected { .. })
    })
    .await;
    let XdsEvent::Rejected { rejection, .. } = rejected else {
        unreachable!()
    };
    assert_eq!((rejection.resource_type, &*rejection.name), (Cluster, "c"));
    assert_eq!(&*rejection.message, "it is bad");
    one.until(|state| state.body(Route, "r") == Some(b"v1"))
        .await
        .unwrap();
    assert_eq!(one.state().body(Cluster, "c"), Some(&b"v0"[..]));
    assert_eq!(one.state().names(Cluster), ["c", "d"]);

    let two = running.connect(envoy("two")).await;
    two.until(|state| state.body(Route, "r").is_some())
        .await
        .unwrap();
    assert_eq!(
        two.state().body(Cluster, "c"),
        Some(&b"v0"[..]),
        "the last good version"
    );
    assert!(
        !two.state()
            .messages()
            .iter()
            .any(|m| matches!(m, Message::Nack(..)))
    );

    running.apply(3, &[(Cluster, "c", "v3")], &[]);
    until(&mut events, |event| {
        matches!(event, XdsEvent::Recovered { .. })
    })
    .await;
    let status = running.registry.status(&fleet()).unwrap();
    assert!(status.rejections.is_empty());
    assert_eq!(status.clients.len(), 2);
    running.stop().await;
}

#[tokio::test]
async fn a_removed_fleet_ends_its_streams_and_can_be_created_again() {
    let running = Running::start(ServerConfig::default());
    running.apply(1, SERVED, &[]);
    let mut envoy = running.connect(envoy("one")).await;
    envoy
        .until(|state| state.body(Route, "r").is_some())
        .await
        .unwrap();
    running.registry.remove_fleet(&fleet());
    envoy.until(|state| !state.connected()).await.unwrap();
    assert!(
        envoy
            .state()
            .ended()
            .unwrap()
            .contains("the fleet was removed")
    );
    envoy.reconnect().await.unwrap();
    running.apply(1, &[(Listener, "l", "r")], &[]);
    envoy
        .until(|state| state.names(Cluster).is_empty())
        .await
        .unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_client_without_an_allowed_fleet_is_refused() {
    let limits = Limits {
        waiting_streams: 1,
        ..Limits::default()
    };
    let running = Running::start(ServerConfig {
        limits,
        authorize: Some(Arc::new(|_, fleet| match fleet.as_str() {
            "secret" => Err("not of this fleet".to_owned()),
            _ => Ok(()),
        })),
        ..ServerConfig::default()
    });
    let refused = async |fleet: &str| {
        let envoy = running.connect(FakeEnvoy::builder(fleet, "n")).await;
        envoy.until(|state| state.ended().is_some()).await.unwrap();
        envoy.state().ended().unwrap().to_owned()
    };
    assert!(refused("").await.contains("node.cluster is empty"));
    assert!(refused("secret").await.contains("not of this fleet"));
    let waiting = running.connect(FakeEnvoy::builder("unknown", "n")).await;
    let mut events = running.registry.events();
    while running.registry.status(&FleetId::new("unknown")).is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(
        refused("other")
            .await
            .contains("too many streams are waiting")
    );
    drop(waiting);
    until(&mut events, |event| {
        matches!(event, XdsEvent::Disconnected(_))
    })
    .await;
    assert_eq!(
        running.registry.status(&FleetId::new("unknown")),
        None,
        "an unknown fleet is dropped with its last client"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_client_that_exceeds_a_limit_loses_its_stream() {
    let limits = Limits {
        names: 10,
        ..Limits::default()
    };
    let running = Running::start(ServerConfig {
        limits,
        ..ServerConfig::default()
    });
    running.apply(1, SERVED, &[]);
    let envoy = running.connect(envoy("one")).await;
    envoy.send(DeltaDiscoveryRequest {
        node: Some(Node::default()),
        type_url: Route.type_url().to_owned(),
        resource_names_subscribe: (0..11).map(|i| i.to_string()).collect(),
        ..DeltaDiscoveryRequest::default()
    });
    envoy.until(|state| state.ended().is_some()).await.unwrap();
    let error = envoy.state().ended().unwrap().to_owned();
    assert!(error.contains("more than 10 names"), "{error}");
    running.stop().await;
}

#[tokio::test]
async fn variants_are_sent_to_clients_that_support_them() {
    let running = Running::start(ServerConfig {
        supports_variants: Some(|node| node.id == "able"),
        ..ServerConfig::default()
    });
    let resource = Resource::new("l", &b"plain"[..]).with_variant(&b"variant"[..]);
    let update = Update {
        upserts: vec![(Listener, resource)],
        ..Update::default()
    };
    running.registry.apply(&fleet(), update);
    for (node, body) in [("able", &b"variant"[..]), ("other", b"plain")] {
        let envoy = running
            .connect(FakeEnvoy::builder("ns/gateway", node))
            .await;
        let received = |state: &State| state.body(Listener, "l").is_some();
        envoy.until(received).await.unwrap();
        assert_eq!(envoy.state().body(Listener, "l").unwrap(), body);
    }
    running.stop().await;
}

#[tokio::test]
async fn only_the_delta_method_is_supported() {
    use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
    let registry = Registry::new(ServerConfig::default());
    registry.apply(&fleet(), update(1, SERVED, &[]));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = registry.clone();
    let task = tokio::spawn(async move {
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let shutdown = async { stopped.await.unwrap_or_default() };
        serving.serve_incoming(incoming, shutdown).await.unwrap();
    });
    let server = Server::Tcp(uri.parse().unwrap());
    let envoy = envoy("one").connect(server).await.unwrap();
    envoy
        .until(|state| state.body(Route, "r").is_some())
        .await
        .unwrap();
    let mut client = AggregatedDiscoveryServiceClient::connect(uri)
        .await
        .unwrap();
    let status = client
        .stream_aggregated_resources(tokio_stream::empty())
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
    assert!(status.message().contains("DELTA_GRPC"));
    stop.send(()).unwrap();
    task.await.unwrap();
    envoy.until(|state| !state.connected()).await.unwrap();
}

#[tokio::test]
async fn an_undecodable_request_ends_its_stream_with_invalid_argument() {
    use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
    use tonic::codegen::http::uri::PathAndQuery;
    let registry = Registry::new(ServerConfig::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let shutdown = async { stopped.await.unwrap_or_default() };
        registry.serve_incoming(incoming, shutdown).await.unwrap();
    });
    let channel = tonic::transport::Endpoint::new(uri).unwrap();
    let mut client = tonic::client::Grpc::new(channel.connect().await.unwrap());
    client.ready().await.unwrap();
    // prost encodes a `Vec<u8>` message as field 1, which in a request is the node.
    let requests = tokio_stream::iter([vec![0xff]]);
    let mut responses = client
        .streaming(
            tonic::Request::new(requests),
            PathAndQuery::from_static(
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
            ),
            tonic_prost::ProstCodec::<Vec<u8>, DeltaDiscoveryResponse>::default(),
        )
        .await
        .unwrap()
        .into_inner();
    let status = responses.message().await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    drop((responses, client));
    stop.send(()).unwrap();
    task.await.unwrap();
}
