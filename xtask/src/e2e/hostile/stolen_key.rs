//! A client with the key of one fleet's Envoys.
//!
//! In: neighbours. Out: the client gets that fleet's resources only, its floods are refused, and other fleets are updated.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, TE};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{APART, DEFAULT_FLEET, Neighbours, SHARED, replicas, text};
use crate::e2e::scene::Scene;
use crate::e2e::shop;
use crate::install;

/// The port of Sesame's discovery server.
const PORT: u16 = 18_000;
const METHOD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

/// The permitted streams of a fleet, and of a connection.
const STREAMS: usize = 1_024;
const PER_CONNECTION: usize = 4;

/// More names than a stream may subscribe to.
const NAMES: usize = 100_001;

/// gRPC status codes.
const PERMISSION_DENIED: &str = "7";
const RESOURCE_EXHAUSTED: &str = "8";

/// Time limit for a response.
const RESPONSE: Duration = Duration::from_secs(60);

/// Connects to each replica with the key of the shared Gateway's Envoys.
pub(super) fn attack(scene: &Scene, neighbours: &mut Neighbours<'_>) -> Result<String> {
    let config = stolen(scene)?;
    let mut refused = 0;
    for pod in replicas(scene)? {
        let address = SocketAddr::new(text(&pod["status"]["podIP"]).parse()?, PORT);
        let config = Arc::clone(&config);
        let (flooded, wait) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let attack = scene
            .network
            .spawn(move |runtime| runtime.block_on(one(address, &config, flooded, stopped)));
        // Fails if the attack has failed, which its result shows.
        let _ = wait.blocking_recv();
        neighbours.change()?;
        let _ = stop.send(());
        let attack = attack
            .join()
            .map_err(|_| anyhow::anyhow!("the attack panicked"))?;
        refused += attack??;
    }
    Ok(format!("{refused} streams of a fleet refused"))
}

/// The TLS settings of the shared Gateway's Envoys.
fn stolen(scene: &Scene) -> Result<Arc<ClientConfig>> {
    let deployment = shop::one_made_for(scene, SHARED, "deployments")?;
    let secret = format!("{}-xds", text(&deployment["metadata"]["name"]));
    let entry = |name: &str| {
        let template = format!("go-template={{{{index .data {name:?} | base64decode}}}}");
        scene.kubectl(&[
            "-n",
            shop::NAMESPACE,
            "get",
            "secret",
            &secret,
            "-o",
            &template,
        ])
    };
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(entry("ca.crt")?.as_bytes()) {
        roots.add(root?)?;
    }
    let chain = CertificateDer::pem_slice_iter(entry("tls.crt")?.as_bytes())
        .collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(entry("tls.key")?.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// Attacks a replica, and holds the streams until the signal. Returns the number of refused streams.
async fn one(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    flooded: oneshot::Sender<()>,
    stopped: oneshot::Receiver<()>,
) -> Result<usize> {
    let own = format!("{}/{SHARED}", shop::NAMESPACE);
    let apart = format!("{}/{APART}", shop::NAMESPACE);
    let mut server = connect(address, config).await?;
    let all = ["*".to_owned()];
    let stream = Stream::open(&mut server, &own, CLUSTERS, &all).await?;
    let clusters = stream.received().await?;
    ensure!(
        clusters.contains("shop/shop:8080"),
        "no clusters of the own fleet: {clusters}"
    );
    ensure!(
        !clusters.contains(&format!("shop/{APART}:8080")),
        "clusters of another fleet: {clusters}"
    );
    for other in [&*apart, DEFAULT_FLEET, "unmanaged", "missing/missing"] {
        let stream = Stream::open(&mut server, other, CLUSTERS, &all).await?;
        let status = stream.refused().await.with_context(|| other.to_owned())?;
        ensure!(status == PERMISSION_DENIED, "{other}: status {status}");
    }
    let names: Vec<String> = (0..NAMES).map(|name| name.to_string()).collect();
    let status = Stream::open(&mut server, &own, ROUTES, &names)
        .await?
        .refused()
        .await?;
    ensure!(
        status == RESOURCE_EXHAUSTED,
        "{NAMES} names: status {status}"
    );

    let (mut held, mut refused) = (Vec::new(), 0);
    while held.len() + refused < STREAMS + PER_CONNECTION {
        let server = connect(address, config).await?;
        let mut streams = JoinSet::new();
        for _ in 0..PER_CONNECTION {
            let (mut server, own, all) = (server.clone(), own.clone(), all.clone());
            streams.spawn(async move { Stream::open(&mut server, &own, CLUSTERS, &all).await });
        }
        for stream in streams.join_all().await {
            let mut stream = stream?;
            match stream.is_served().await? {
                true => held.push(stream),
                false => refused += 1,
            }
        }
    }
    ensure!(
        refused > 0,
        "{} streams of a fleet were accepted",
        held.len()
    );
    // The receiver waits for either.
    let _ = flooded.send(());
    let _ = stopped.await;
    Ok(refused)
}

async fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<SendRequest<Open>> {
    let name = format!("sesame-xds.{}.svc", install::NAMESPACE);
    let connect = async {
        let stream = TcpStream::connect(address).await?;
        let tls = TlsConnector::from(Arc::clone(config));
        let stream = tls.connect(ServerName::try_from(name)?, stream).await?;
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        anyhow::Ok(sender)
    };
    timeout(RESPONSE, connect).await.context("no connection")?
}

/// A discovery stream.
struct Stream {
    body: Incoming,
    /// The status, if the server ended the stream at once.
    refusal: Option<String>,
}

impl Stream {
    /// Opens a stream that claims to be an Envoy of this fleet, and subscribes to these names.
    async fn open(
        server: &mut SendRequest<Open>,
        fleet: &str,
        type_url: &str,
        names: &[String],
    ) -> Result<Self> {
        // The fields of a DeltaDiscoveryRequest, and of its node.
        let node = [field(1, b"thief"), field(2, fleet.as_bytes())].concat();
        let mut message = [field(1, &node), field(2, type_url.as_bytes())].concat();
        for name in names {
            message.extend(field(3, name.as_bytes()));
        }
        let length = u32::try_from(message.len())?.to_be_bytes();
        let message = [&[0], &length[..], &message].concat();
        let request = hyper::Request::post(format!("https://sesame{METHOD}"))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .body(Open(Some(message.into())))?;
        let response = timeout(RESPONSE, server.send_request(request))
            .await
            .context("no response")??;
        let refusal = response.headers().get("grpc-status");
        Ok(Self {
            refusal: refusal.map(|status| String::from_utf8_lossy(status.as_bytes()).into_owned()),
            body: response.into_body(),
        })
    }

    /// The first response, as text.
    async fn received(mut self) -> Result<String> {
        let frame = timeout(RESPONSE, self.body.frame())
            .await
            .context("no data")?;
        let data = frame.context("the stream ended")??.into_data();
        let data = data.map_err(|trailers| anyhow::anyhow!("no data: {trailers:?}"))?;
        Ok(String::from_utf8_lossy(&data).into_owned())
    }

    /// Whether the stream gets a response, instead of a status.
    async fn is_served(&mut self) -> Result<bool> {
        let frame = timeout(RESPONSE, self.body.frame()).await;
        let frame = frame.context("no response")?.transpose()?;
        Ok(frame.is_some_and(|frame| frame.is_data()))
    }

    /// The status of a stream that ends without a response.
    async fn refused(self) -> Result<String> {
        if let Some(status) = self.refusal {
            return Ok(status);
        }
        let collected = timeout(RESPONSE, self.body.collect())
            .await
            .context("not refused")??;
        let status = collected
            .trailers()
            .and_then(|trailers| trailers.get("grpc-status"));
        let status = status.context("no status")?.to_str()?.to_owned();
        ensure!(
            collected.to_bytes().is_empty(),
            "resources, then status {status}"
        );
        Ok(status)
    }
}

/// A field of a message: bytes or a string (protobuf's encoding).
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(bytes);
    out
}

/// A request body that stays open after its first message.
struct Open(Option<Bytes>);

impl Body for Open {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(message) => Poll::Ready(Some(Ok(Frame::data(message)))),
            None => Poll::Pending,
        }
    }
}
