//! Admin pages: health, state and metrics of Sesame.
//!
//! In: HTTP requests, on an address that the user chose. Out: JSON, and text for Prometheus. The pages are read-only,
//! don't show private keys, and ignore request bodies.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::{Value, json};
use sesame_http::{Limits, MAX_CONNECTIONS};
use sesame_model::FleetId;
use sesame_xds as xds;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::TcpListenerStream;

use crate::liveness::Liveness;
use crate::serve::health::Health;
use crate::translate::Resources;
use crate::translator::{Message, TranslatorOutputs, inspect, xds_fleet};

/// Limits for each listener.
const LIMITS: Limits = Limits {
    connections: MAX_CONNECTIONS,
    // Enough for the configuration of a large fleet, over a slow link.
    duration: Duration::from_secs(60),
};

/// Sources for the pages.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) outputs: TranslatorOutputs,
    pub(crate) translator: mpsc::WeakSender<Message>,
    pub(crate) liveness: Liveness,
    pub(crate) readiness: Readiness,
}

/// Source for the readiness page.
#[derive(Clone)]
pub(crate) enum Readiness {
    /// A local run: the fleets whose Envoys should run.
    Local(watch::Receiver<BTreeSet<FleetId>>),
    /// A replica in a cluster.
    Serve(Arc<Health>),
}

/// All pages. They show all configuration, so only requests for a loopback address are served.
pub(crate) fn pages(pages: Pages) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/status", get(status))
        .route("/problems", get(problems))
        .route("/fleets", get(fleets))
        .route("/config", get(config))
        .route("/debug/engine", get(engine))
        .with_state(pages.clone())
        .merge(probes(pages.clone()))
        .merge(metrics_page(pages))
        .layer(middleware::from_fn(only_loopback_hosts))
}

/// The pages for probes. They don't show configuration.
pub(crate) fn probes(pages: Pages) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(pages)
}

/// The page for Prometheus.
pub(crate) fn metrics_page(pages: Pages) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(pages)
}

/// The pages of a replica that waits for its configuration.
pub(crate) fn waiting(reason: String) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(|| async { unavailable(reason) }))
}

/// The pages of the operator, whose replicas are ready whether or not they lead.
pub(crate) fn operator() -> Router {
    let ok = || get(|| async { "ok\n" });
    Router::new().route("/healthz", ok()).route("/readyz", ok())
}

/// Serves until dropped.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    let incoming = TcpListenerStream::new(listener);
    sesame_http::serve(incoming, LIMITS, TowerToHyperService::new(router)).await;
}

/// Rejects requests whose Host isn't local, to prevent DNS rebinding: a web page could resolve its own name to a
/// loopback address and make the user's browser send requests to it.
async fn only_loopback_hosts(request: Request, next: Next) -> Response {
    if has_loopback_host(request.headers()) {
        return next.run(request).await;
    }
    let text = "these pages are served only on this machine: the Host header must be localhost or a loopback address, \
                such as 127.0.0.1\n";
    (StatusCode::FORBIDDEN, text).into_response()
}

fn has_loopback_host(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    authority.is_some_and(|authority| {
        let host = authority.host();
        let ip = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost")
            || ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

async fn index() -> &'static str {
    "Sesame\n\n\
     /healthz       liveness\n\
     /readyz        readiness; if not ready, the reason\n\
     /status        statuses of objects\n\
     /problems      errors in files, or a replica's failures\n\
     /fleets        connected Envoys and their resources\n\
     /config?fleet= resources of a fleet, by the namespace/name of its Gateway\n\
     /metrics       metrics for Prometheus\n\
     /debug/engine  sizes of the engine's tables\n"
}

/// 200 while the translator thread handles messages, otherwise 503. Never waits for it.
async fn healthz(State(pages): State<Pages>) -> Response {
    match pages.liveness.failure() {
        None => "ok\n".into_response(),
        Some(failure) => unavailable(format!("{failure}\n")),
    }
}

async fn readyz(State(pages): State<Pages>) -> Response {
    match &pages.readiness {
        Readiness::Local(running) => local_readiness(&pages, running).await,
        Readiness::Serve(health) => replica_readiness(&pages, health),
    }
}

/// 200 once every desired fleet has an Envoy that has ACKed its resources, otherwise 503. Lists what Envoys reject.
async fn local_readiness(pages: &Pages, running: &watch::Receiver<BTreeSet<FleetId>>) -> Response {
    let desired = running.borrow().clone();
    let waiting: Vec<String> = desired
        .iter()
        .filter(|fleet| !is_served(&pages.outputs.registry, fleet))
        .map(ToString::to_string)
        .collect();
    let synced = inspect(&pages.translator, |core| core.engine().revision() > 0).await;
    let not_ready = match (synced, waiting.is_empty()) {
        (Some(true), true) => None,
        (Some(true), false) => Some(format!("waiting for {}", waiting.join(", "))),
        _ => Some("waiting for the initial sync of objects".to_owned()),
    };
    readiness(
        not_ready.as_deref(),
        &pages.outputs.status_store.rejections(),
    )
}

/// 200 once connecting Envoys are served, otherwise 503. Lists all failures, and what Envoys reject.
fn replica_readiness(pages: &Pages, health: &Health) -> Response {
    readiness(health.not_ready_reason(), &failures(pages, health))
}

/// The response: a line with the reason or `ok`, and a line for each failure.
fn readiness(not_ready: Option<&str>, failures: &[String]) -> Response {
    let mut text = format!("{}\n", not_ready.unwrap_or("ok"));
    for failure in failures {
        text.push_str(failure);
        text.push('\n');
    }
    match not_ready {
        None => text.into_response(),
        Some(_) => unavailable(text),
    }
}

fn is_served(registry: &xds::Registry, fleet: &FleetId) -> bool {
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
        Readiness::Serve(health) => Json(failures(&pages, health)).into_response(),
    }
}

/// A replica's failures, and what Envoys reject.
fn failures(pages: &Pages, health: &Health) -> Vec<String> {
    let rejections = pages.outputs.status_store.rejections();
    health.failures().into_iter().chain(rejections).collect()
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
    let types = client.types.iter().map(|state| {
        json!({
            "type": state.resource_type.to_string(),
            "wildcard": state.wildcard,
            "subscribed": state.subscribed,
            "sent": state.sent,
            "acked": state.acked,
            "pending": state.pending,
            "nacks": state.nacks,
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
struct ConfigQuery {
    fleet: Option<String>,
}

async fn config(State(pages): State<Pages>, Query(query): Query<ConfigQuery>) -> Response {
    let Some(fleet) = query.fleet else {
        let text = "missing parameter: /config?fleet=NAMESPACE/NAME, with the name of a Gateway; see /fleets\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let fleet = fleet.parse::<FleetId>().ok();
    let resources_of =
        move |core: &crate::core::Core| fleet.and_then(|fleet| core.resources(&fleet));
    let resources = match inspect(&pages.translator, resources_of).await {
        Some(Some(resources)) => resources,
        Some(None) => {
            let text = "no such fleet; see /fleets\n";
            return (StatusCode::NOT_FOUND, text).into_response();
        }
        None => return unavailable("Sesame is shutting down\n".to_owned()),
    };
    // A large table takes a while to serialize.
    let json = tokio::task::spawn_blocking(move || Resources::of(&resources)).await;
    match json {
        Ok(resources) => Json(resources).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn metrics(State(pages): State<Pages>) -> Response {
    match pages.outputs.metrics.text() {
        Ok(text) => {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, content_type)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn engine(State(pages): State<Pages>) -> Response {
    let sizes = inspect(&pages.translator, |core| {
        let (engine, footprint) = (core.engine(), core.engine().footprint());
        json!({
            "revision": engine.revision(),
            "rows": footprint.rows,
            "edges": footprint.edges,
            "subjects": footprint.subjects,
        })
    });
    match sizes.await {
        Some(value) => Json(value).into_response(),
        None => unavailable("Sesame is shutting down\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_are_served() {
        let served = |host: &str| {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            has_loopback_host(&headers)
        };
        for host in [
            "localhost",
            "LocalHost:8081",
            "127.0.0.1",
            "127.7.0.1:8081",
            "[::1]",
            "[::1]:8081",
        ] {
            assert!(served(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8081",
            "localhost@evil.example",
            "10.0.0.1:8081",
            "0.0.0.0",
            "[::]:8081",
            "a b",
        ] {
            assert!(!served(host), "{host}");
        }
        assert!(!has_loopback_host(&HeaderMap::new()));
    }
}
