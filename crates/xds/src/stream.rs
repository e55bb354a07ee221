//! The task of one stream: feeds requests to the session and sends its responses.

use std::sync::Arc;
use std::time::Instant;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost::Message;
use tokio::sync::{mpsc, watch};
use tonic::{Extensions, Status, Streaming};

use crate::resource::FleetId;
use crate::server::{Inner, Membership};
use crate::session::{LimitExceeded, Session};
use crate::wire::DeltaResponse;

type Responses = mpsc::Sender<Result<DeltaResponse, Status>>;

impl From<LimitExceeded> for Status {
    fn from(error: LimitExceeded) -> Status {
        Status::resource_exhausted(error.to_string())
    }
}

/// Serves a stream until it ends. If it ends with a status, the status is the last item sent.
pub(crate) async fn serve(
    registry: Arc<Inner>,
    requests: Streaming<DeltaDiscoveryRequest>,
    extensions: Extensions,
    responses: Responses,
    mut stop: watch::Receiver<bool>,
) {
    let ended = tokio::select! {
        ended = run(registry, requests, extensions, &responses) => ended,
        // An error means that the server is gone, which also ends the stream.
        _ = stop.wait_for(|stop| *stop) => Err(Status::unavailable("the server is shutting down")),
    };
    if let Err(status) = ended {
        tracing::debug!(code = ?status.code(), message = status.message(), "xDS stream ended");
        // Fails if the client is gone or isn't reading.
        let _: Result<(), _> = responses.try_send(Err(status));
    }
}

async fn run(
    registry: Arc<Inner>,
    mut requests: Streaming<DeltaDiscoveryRequest>,
    extensions: Extensions,
    responses: &Responses,
) -> Result<(), Status> {
    let config = &registry.config;
    let limits = config.limits.clone();
    let first = tokio::time::timeout(limits.first_request_timeout, requests.message())
        .await
        .map_err(|_| Status::deadline_exceeded("no request received"))??;
    let Some(first) = first else {
        return Ok(());
    };
    let member = join(&registry, &first, &extensions)?;
    let mut changed = member.fleet.changed();
    let variants = config
        .supports_variants
        .is_some_and(|supports| supports(&first));
    let mut session = Session::new(member.client, limits, Instant::now());
    let mut request = Some(first);
    loop {
        if let Some(request) = request.take() {
            member
                .fleet
                .with(|fleet| session.request(fleet, &request))?;
        }
        loop {
            changed.mark_unchanged();
            let (removed, response) = member.fleet.with(|fleet| {
                let removed = fleet.is_removed();
                (removed, session.poll(fleet, Instant::now()))
            });
            if removed {
                return Err(Status::unavailable("the fleet was removed"));
            }
            let Some(response) = response else {
                break;
            };
            let ty = response.ty;
            let response = DeltaResponse::new(response, variants);
            registry.sent.add(ty, response.payload_len());
            // Waits while the client isn't reading; meanwhile, changes are merged.
            if responses.send(Ok(response)).await.is_err() {
                return Ok(());
            }
        }
        let deadline = session.deadline();
        let timer = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            message = requests.message() => match message? {
                Some(message) => request = Some(message),
                None => return Ok(()),
            },
            result = changed.changed() => if result.is_err() {
                return Err(Status::unavailable("the fleet was removed"));
            },
            () = timer => {}
            () = responses.closed() => return Ok(()),
        }
    }
}

/// Adds the client to the fleet that its first request names. Only the first request contains the node.
fn join(
    registry: &Arc<Inner>,
    first: &DeltaDiscoveryRequest,
    extensions: &Extensions,
) -> Result<Membership, Status> {
    let limits = &registry.config.limits;
    let node = first.node.as_ref().ok_or_else(|| {
        Status::invalid_argument("the first request has no node; node.cluster must name the fleet")
    })?;
    if node.encoded_len() > limits.node_bytes {
        return Err(Status::resource_exhausted(format!(
            "the node is larger than {} bytes",
            limits.node_bytes
        )));
    }
    if node.cluster.is_empty() {
        return Err(Status::invalid_argument(
            "node.cluster is empty; it must name the fleet",
        ));
    }
    if node.cluster.len().max(node.id.len()) > limits.name_bytes {
        return Err(Status::resource_exhausted(format!(
            "node.cluster or node.id is longer than {} bytes",
            limits.name_bytes
        )));
    }
    let fleet = FleetId::new(node.cluster.as_str());
    if let Some(authorize) = &registry.config.authorize {
        authorize(extensions, &fleet).map_err(Status::permission_denied)?;
    }
    registry.join(&fleet, node.id.as_str().into())
}
