//! One stream as a task: moves requests into the session and responses out of it.
//!
//! In: a stream of requests. Out: a stream of responses, or the status that ended it.
//! It must not know: what the requests and responses mean.

use std::sync::Arc;
use std::time::Instant;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost::Message;
use tokio::sync::{mpsc, watch};
use tonic::{Extensions, Status, Streaming};

use crate::resource::FleetId;
use crate::server::{Attached, Inner};
use crate::session::{Response, Session, Violation};

type Out = mpsc::Sender<Result<Response, Status>>;

impl From<Violation> for Status {
    fn from(violation: Violation) -> Status {
        Status::resource_exhausted(violation.to_string())
    }
}

/// Serves one stream until it ends; what ends it is its last item.
pub(crate) async fn serve(
    registry: Arc<Inner>,
    requests: Streaming<DeltaDiscoveryRequest>,
    extensions: Extensions,
    out: Out,
    mut stop: watch::Receiver<bool>,
) {
    let ended = tokio::select! {
        ended = drive(registry, requests, extensions, &out) => ended,
        // An error means that the server itself is gone, which ends the stream as well.
        _ = stop.wait_for(|stop| *stop) => Err(Status::unavailable("the server is shutting down")),
    };
    if let Err(status) = ended {
        tracing::debug!(code = ?status.code(), message = status.message(), "discovery stream ends");
        // The client may be gone already, or not be reading: then nobody is there to be told.
        let _: Result<(), _> = out.try_send(Err(status));
    }
}

async fn drive(
    registry: Arc<Inner>,
    mut requests: Streaming<DeltaDiscoveryRequest>,
    extensions: Extensions,
    out: &Out,
) -> Result<(), Status> {
    let limits = Arc::clone(&registry.limits);
    let first = tokio::time::timeout(limits.first_request, requests.message())
        .await
        .map_err(|_| Status::deadline_exceeded("no request came"))??;
    let Some(first) = first else {
        return Ok(());
    };
    let attached = identify(&registry, &first, &extensions)?;
    let mut changed = attached.shared.changed();
    let variants = registry.takes_variants.is_some_and(|takes| takes(&first));
    let session = Session::new(attached.client, limits, Instant::now());
    let mut session = session.with_variants(variants);
    let mut request = Some(first);
    loop {
        if let Some(request) = request.take() {
            attached
                .shared
                .with(|fleet| session.request(fleet, &request))?;
        }
        loop {
            changed.mark_unchanged();
            let (removed, response) = attached.shared.with(|fleet| {
                let removed = fleet.is_removed();
                (removed, session.poll(fleet, Instant::now()))
            });
            if removed {
                return Err(Status::unavailable("the fleet was removed"));
            }
            let Some(response) = response else {
                break;
            };
            registry.traffic.add(&response);
            // A client that doesn't read is waited for here; what changes meanwhile merges.
            if out.send(Ok(response)).await.is_err() {
                return Ok(());
            }
        }
        let deadline = session.deadline();
        let alarm = async {
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
            () = alarm => {}
            () = out.closed() => return Ok(()),
        }
    }
}

/// Finds out from the first request, which alone has the node, which fleet the client belongs to.
fn identify(
    registry: &Arc<Inner>,
    first: &DeltaDiscoveryRequest,
    extensions: &Extensions,
) -> Result<Attached, Status> {
    let limits = &registry.limits;
    let node = first.node.as_ref().ok_or_else(|| {
        Status::invalid_argument("the first request has no node: which fleet is this client of?")
    })?;
    if node.encoded_len() > limits.node_bytes {
        return Err(Status::resource_exhausted(format!(
            "the node has more than {} bytes",
            limits.node_bytes
        )));
    }
    if node.cluster.is_empty() {
        return Err(Status::invalid_argument(
            "node.cluster is empty: it must name the fleet that this client is of",
        ));
    }
    if node.cluster.len().max(node.id.len()) > limits.name_bytes {
        return Err(Status::resource_exhausted(format!(
            "node.cluster or node.id has more than {} bytes",
            limits.name_bytes
        )));
    }
    let fleet = FleetId::new(node.cluster.as_str());
    if let Some(authorize) = &registry.authorize {
        authorize(extensions, &fleet).map_err(Status::permission_denied)?;
    }
    registry.attach(&fleet, node.id.as_str().into())
}
