//! The task of one stream: feeds requests to the session and sends its responses.

use std::sync::Arc;
use std::time::Instant;

use envoy_types::pb::envoy::config::core::v3::Node;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::timeout;
use tonic::{Extensions, Status};

use crate::config::Limits;
use crate::grpc::{Encoded, Message, Requests};
use crate::resource::FleetId;
use crate::server::{Inner, Membership, SharedFleet};
use crate::session::{LimitExceeded, Session};
use crate::wire::DeltaRequest;

type Responses = mpsc::Sender<Message>;

impl From<LimitExceeded> for Status {
    fn from(error: LimitExceeded) -> Status {
        Status::resource_exhausted(error.to_string())
    }
}

/// Serves a stream until it ends, and sends the status if that isn't `OK`.
pub(crate) async fn serve(
    registry: Arc<Inner>,
    requests: Requests,
    extensions: Extensions,
    responses: Responses,
    end: oneshot::Sender<Status>,
    mut stop: watch::Receiver<bool>,
) {
    let ended = tokio::select! {
        ended = run(registry, requests, extensions, &responses) => ended,
        // An error means that the server is gone, which also ends the stream.
        _ = stop.wait_for(|stop| *stop) => Err(Status::unavailable("the server is shutting down")),
        () = responses.closed() => Ok(()),
    };
    if let Err(status) = ended {
        tracing::debug!(code = ?status.code(), message = status.message(), "xDS stream ended");
        // Fails if the client is gone.
        let _: Result<(), _> = end.send(status);
    }
}

async fn run(
    registry: Arc<Inner>,
    mut requests: Requests,
    extensions: Extensions,
    responses: &Responses,
) -> Result<(), Status> {
    let config = &registry.config;
    let limits = config.limits.clone();
    timeout(limits.request_timeout, requests.begins())
        .await
        .map_err(|_| Status::deadline_exceeded("no request received"))??;
    let Some(first) = requests.next().await? else {
        return Ok(());
    };
    let (member, variants) = {
        // Only the first request contains the node.
        let node = DeltaRequest::read_node(&first.bytes, &limits)?;
        let supports = config.supports_variants;
        let variants = supports.is_some_and(|supports| supports(&node));
        (join(&registry, &node, &extensions)?, variants)
    };
    let mut changed = member.fleet.changed();
    let mut session = Session::new(member.client, limits.clone(), Instant::now());
    process(first, &limits, &member.fleet, &mut session).await?;
    // Whether there may be a response to send.
    let mut due = true;
    loop {
        let deadline = session.deadline();
        let timer = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // While the client isn't reading, changes are merged.
            permit = responses.reserve(), if due => {
                // The client is gone.
                let Ok(permit) = permit else { return Ok(()) };
                changed.mark_unchanged();
                let (removed, response) = member.fleet.with(|fleet| {
                    let removed = fleet.is_removed();
                    (removed, session.poll(fleet, Instant::now()))
                });
                if removed {
                    return Err(fleet_removed());
                }
                match response {
                    Some(response) => {
                        registry.sent.add(response.ty, response.payload_len(variants));
                        permit.send(Box::new(response.into_parts(variants)));
                    }
                    None => due = false,
                }
            }
            next = requests.next() => match next? {
                Some(next) => {
                    process(next, &limits, &member.fleet, &mut session).await?;
                    due = true;
                }
                None => return Ok(()),
            },
            result = changed.changed() => {
                if result.is_err() || member.fleet.with(|fleet| fleet.is_removed()) {
                    return Err(fleet_removed());
                }
                due = true;
            }
            () = timer, if !due => due = true,
        }
    }
}

fn fleet_removed() -> Status {
    Status::unavailable("the fleet was removed")
}

/// Processes a request when it is the stream's turn.
async fn process(
    request: Encoded,
    limits: &Limits,
    fleet: &SharedFleet,
    session: &mut Session,
) -> Result<(), Status> {
    let _turn = fleet.turn().await;
    let request = DeltaRequest::read(&request.bytes, limits)?;
    let first = !session.has_begun(&request.type_url);
    for batch in request.batches(first) {
        fleet.with(|fleet| session.request(fleet, &batch))?;
        yield_now().await;
    }
    Ok(())
}

/// Adds the client to the fleet that its node names.
fn join(registry: &Arc<Inner>, node: &Node, extensions: &Extensions) -> Result<Membership, Status> {
    let limits = &registry.config.limits;
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
