//! Admin pages: health, state and metrics of Sesame.
//!
//! In: HTTP requests, on an address that the user chose. Out: JSON, and text for Prometheus. The pages change nothing and
//! show no private key.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};
use sesame_model::FleetId;
use sesame_xds as xds;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::owner::{Message, Outputs, inspect, xds_fleet};
use crate::serve::health::Health;
use crate::translate::Resources;

/// Sources of the pages.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) outputs: Outputs,
    pub(crate) owner: mpsc::WeakSender<Message>,
    pub(crate) readiness: Readiness,
}

/// Source of the readiness page.
#[derive(Clone)]
pub(crate) enum Readiness {
    /// A local run: the fleets whose Envoys should run.
    Local(watch::Receiver<BTreeSet<FleetId>>),
    /// A replica in a cluster.
    Serve(Arc<Health>),
}

/// All pages.
pub(crate) fn pages(pages: Pages) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/status", get(status))
        .route("/problems", get(problems))
        .route("/fleets", get(fleets))
        .route("/config", get(config))
        .route("/debug/engine", get(engine))
        .with_state(pages.clone())
        .merge(probes(pages))
}

/// The pages for probes and Prometheus. They show no configuration.
pub(crate) fn probes(pages: Pages) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(pages)
}

/// Serves until `stop` completes.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await
}

async fn index() -> &'static str {
    "Sesame\n\n\
     /healthz       it runs\n\
     /readyz        whether it serves, or why not\n\
     /status        statuses of objects\n\
     /problems      errors in files, or from the API server\n\
     /fleets        Envoys and what they have\n\
     /config?fleet= what an Envoy gets, by the namespace/name of its Gateway\n\
     /metrics       counts, for Prometheus\n\
     /debug/engine  the size of the tables\n"
}

async fn readyz(State(pages): State<Pages>) -> Response {
    match &pages.readiness {
        Readiness::Local(running) => local_readiness(&pages, running).await,
        Readiness::Serve(health) => served_readiness(health),
    }
}

/// 200 when every wanted fleet has an Envoy that serves it, 503 before.
async fn local_readiness(pages: &Pages, running: &watch::Receiver<BTreeSet<FleetId>>) -> Response {
    let wanted = running.borrow().clone();
    let waiting: Vec<String> = wanted
        .iter()
        .filter(|fleet| !serves(&pages.outputs.registry, fleet))
        .map(ToString::to_string)
        .collect();
    let synced = inspect(&pages.owner, |core| core.engine().revision() > 0).await;
    match (synced, waiting.is_empty()) {
        (Some(true), true) => "ok\n".into_response(),
        (Some(true), false) => unavailable(format!("waiting for {}\n", waiting.join(", "))),
        _ => unavailable("the objects have not been read yet\n".to_owned()),
    }
}

/// 200 when connecting Envoys are served, with all failures listed; 503 before.
fn served_readiness(health: &Health) -> Response {
    let mut text = match health.waits_for() {
        None => "ok\n".to_owned(),
        Some(waits) => format!("{waits}\n"),
    };
    for wrong in health.wrong() {
        text.push_str(&wrong);
        text.push('\n');
    }
    match health.waits_for() {
        None => text.into_response(),
        Some(_) => unavailable(text),
    }
}

fn serves(registry: &xds::Registry, fleet: &FleetId) -> bool {
    let status = registry.status(&xds_fleet(fleet));
    status.is_some_and(|status| {
        let mut clients = status.clients.iter();
        clients.any(|client| client.acked_revision.is_some())
    })
}

fn unavailable(text: String) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn status(State(pages): State<Pages>) -> Response {
    Json(pages.outputs.status_store.statuses()).into_response()
}

async fn problems(State(pages): State<Pages>) -> Response {
    match &pages.readiness {
        Readiness::Local(_) => {
            let problems = pages.outputs.status_store.problems();
            let views: Vec<crate::event::ProblemView> = problems.iter().map(Into::into).collect();
            Json(views).into_response()
        }
        Readiness::Serve(health) => Json(health.wrong()).into_response(),
    }
}

async fn fleets(State(pages): State<Pages>) -> Json<Value> {
    let registry = &pages.outputs.registry;
    let fleets = registry.fleets().into_iter().filter_map(|id| {
        let status = registry.status(&id)?;
        let mut view = json!({
            "fleet": id.as_str(),
            "revision": status.revision,
            "resources": counts(&status.resources),
            "clients": status.clients.iter().map(client).collect::<Vec<_>>(),
            "rejections": status.rejections.iter().map(rejection).collect::<Vec<_>>(),
        });
        if let Readiness::Local(running) = &pages.readiness {
            let fleet = id.as_str().parse::<FleetId>();
            view["running"] = fleet
                .is_ok_and(|fleet| running.borrow().contains(&fleet))
                .into();
        }
        Some(view)
    });
    Json(Value::Array(fleets.collect()))
}

fn counts(resources: &[(xds::ResourceType, usize)]) -> Value {
    let counts = resources.iter().filter(|(_, number)| *number > 0);
    counts
        .map(|(resource_type, number)| (resource_type.to_string(), json!(number)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn client(client: &xds::ClientStatus) -> Value {
    let types = client.types.iter().map(|of| {
        json!({
            "type": of.resource_type.to_string(),
            "wildcard": of.wildcard,
            "subscribed": of.subscribed,
            "sent": of.sent,
            "acked": of.acked,
            "pending": of.pending,
            "nacks": of.nacks,
        })
    });
    json!({
        "nodeId": &*client.node_id,
        "ackedRevision": client.acked_revision,
        "types": types.collect::<Vec<_>>(),
    })
}

fn rejection(rejection: &xds::Rejection) -> Value {
    json!({
        "type": rejection.resource_type.to_string(),
        "name": &*rejection.name,
        "version": rejection.version.to_string(),
        "message": &*rejection.message,
    })
}

#[derive(Deserialize)]
struct OfFleet {
    fleet: Option<String>,
}

async fn config(State(pages): State<Pages>, Query(query): Query<OfFleet>) -> Response {
    let Some(fleet) = query.fleet else {
        let text =
            "which one? /config?fleet=NAMESPACE/NAME, with the name of a Gateway; see /fleets\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let fleet = fleet.parse::<FleetId>().ok();
    let look = move |core: &crate::core::Core| fleet.and_then(|fleet| core.resources(&fleet));
    let resources = match inspect(&pages.owner, look).await {
        Some(Some(resources)) => resources,
        Some(None) => {
            let text = "there is no such fleet; see /fleets\n";
            return (StatusCode::NOT_FOUND, text).into_response();
        }
        None => return unavailable("Sesame is about to end\n".to_owned()),
    };
    // A large table takes a while to serialize.
    let shown = tokio::task::spawn_blocking(move || Resources::of(&resources)).await;
    match shown {
        Ok(resources) => Json(resources).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn metrics(State(pages): State<Pages>) -> Response {
    match pages.outputs.metrics.text() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn engine(State(pages): State<Pages>) -> Response {
    let seen = inspect(&pages.owner, |core| {
        let (engine, footprint) = (core.engine(), core.engine().footprint());
        json!({
            "revision": engine.revision(),
            "rows": footprint.rows,
            "edges": footprint.edges,
            "subjects": footprint.subjects,
        })
    });
    match seen.await {
        Some(value) => Json(value).into_response(),
        None => unavailable("Sesame is about to end\n".to_owned()),
    }
}
