//! The rules of an Ingress, by host. An invalid path doesn't affect other paths.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_api::{Ingress, ObjectKey};
use sesame_engine::{Reader, Table};
use sesame_model::{
    Action, ClusterKey, Forward, HeaderChanges, Redirect, Route, RouteMatch, Target, WeightedTarget,
};

use super::annotations::{self, PlainHttp, RouteOptions};
use super::backends;
use super::tls::IngressTls;
use super::{MAX_HOSTS, Ours, host, paths};
use crate::configuration::client_certificate;
use crate::http_proxy::default_headers::{self, DefaultChanges};
use crate::problem::{FieldError, Notices};
use crate::settings::Settings;
use crate::shared::hostname;
use crate::shared::hosts::{self, RankedMatch, RouteRules};
use crate::shared::precedence::{MatchRank, Seniority, Source};
use crate::shared::scans::{Meter, Scan};
use crate::shared::services::RoutedBackend;
use crate::shared::wildcards;

/// The status for requests without a backend.
const NO_BACKEND: u16 = 503;

/// The maximum number of routes for an Ingress's wildcard hosts with TLS.
const MAX_OF_WILDCARDS: usize = 512;

/// The maximum number of paths of an Ingress that are served, where a rule without paths counts as one. Requests for other
/// paths of their hosts get 503.
const MAX_PATHS: usize = 1_024;

/// The tables needed to build routes.
#[derive(Clone, Copy)]
pub(super) struct Sources {
    pub(super) ingresses: Table<ObjectKey, Ingress>,
    pub(super) ours: Table<ObjectKey, Ours>,
    pub(super) backends: Table<ClusterKey, RoutedBackend>,
    pub(super) client_certificate: Table<(), String>,
    pub(super) tls: Table<ObjectKey, IngressTls>,
    pub(super) settings: Table<(), Settings>,
}

/// The rules for each host, and for each wildcard host that needs a [`wildcard_key`].
pub(super) fn rules(
    reader: &mut Reader<'_>,
    sources: Sources,
    key: &ObjectKey,
) -> Vec<(ObjectKey, RouteRules)> {
    let Some(ingress) = reader.get(sources.ingresses, key) else {
        return Vec::new();
    };
    let mut notices = Notices::default();
    let hosts = translate(reader, sources, key, &ingress, &mut notices);
    let tls = reader.get(sources.tls, key);
    let names = tls.iter().flat_map(|tls| tls.hosts.keys());
    let wildcards = names.filter(|host| host.starts_with('*'));
    let of_default = hosts.get(hostname::ANY);
    let of_default =
        of_default.filter(|_| too_many_for_wildcards(&hosts, tls.as_deref()).is_none());
    let wildcards = wildcards.zip(std::iter::repeat(of_default));
    let wildcards = wildcards.filter_map(|(host, matches)| {
        let matches = matches?.iter().map(|entry| within(host, entry));
        Some((wildcard_key(key, host), matches.collect()))
    });
    let wildcards: Vec<_> = wildcards.collect();
    let hosts = hosts.into_iter();
    let hosts = hosts.map(|(host, matches)| (hosts::row_key(key, &host), matches));
    let rows = hosts.chain(wildcards).map(|(row, matches)| {
        let rules = RouteRules {
            seniority: Seniority::of(Source::Ingress, &ingress.meta),
            matches,
            jwt: None,
            rate: None,
            refused: None,
            partially_invalid: None,
            unresolved: None,
        };
        (row, rules)
    });
    rows.collect()
}

/// Why the rules for all hosts aren't applied to the Ingress's wildcard hosts: each of these hosts has a copy of them.
pub(super) fn too_many_for_wildcards(
    hosts: &BTreeMap<Arc<str>, Vec<Arc<RankedMatch>>>,
    tls: Option<&IngressTls>,
) -> Option<String> {
    let names = tls.into_iter().flat_map(|tls| tls.hosts.keys());
    let wildcards = names.filter(|host| host.starts_with('*')).count();
    let paths = hosts.get(hostname::ANY).map_or(0, Vec::len);
    (wildcards.saturating_mul(paths) > MAX_OF_WILDCARDS).then(|| {
        format!(
            "the {paths} paths without a host aren't served on the {wildcards} wildcard hosts, since that would take \
             more than {MAX_OF_WILDCARDS} routes; split the Ingress into several"
        )
    })
}

/// The key for the rows that apply an Ingress's rules for all hosts to one of its wildcard hosts with TLS.
pub(super) fn wildcard_key(ingress: &ObjectKey, host: &str) -> ObjectKey {
    hosts::row_key(ingress, &format!("{} {host}", hostname::ANY))
}

/// Limits a match for all hosts to a wildcard host.
fn within(host: &str, entry: &RankedMatch) -> Arc<RankedMatch> {
    let limited = |route: &Arc<Route>| {
        let mut route = Route::clone(route);
        route.matches.headers.extend(wildcards::one_label(host));
        Arc::new(route)
    };
    Arc::new(RankedMatch {
        routes: entry.routes.iter().map(limited).collect(),
        without_tls: entry.without_tls.as_ref().map(limited),
        ..entry.clone()
    })
}

/// The matches for each host.
pub(super) fn translate(
    reader: &mut Reader<'_>,
    sources: Sources,
    key: &ObjectKey,
    ingress: &Ingress,
    notices: &mut Notices,
) -> BTreeMap<Arc<str>, Vec<Arc<RankedMatch>>> {
    let Some(ours) = reader.get(sources.ours, key) else {
        return BTreeMap::new();
    };
    let options = annotations::route_options(ingress, notices);
    let defaults = default_changes(reader, sources, ingress);
    let redirected = annotations::plain_http(ingress) == PlainHttp::Redirected;
    let https = redirected.then(|| reader.get(sources.settings, &()));
    let https = https.flatten().map(|settings| settings.ingress.ports.https);
    // In the order of `backends::all`.
    let mut actions = Vec::with_capacity(ours.backends.len());
    for ((place, _), backend) in backends::all(ingress).zip(&ours.backends) {
        let resolved = backends::resolve(reader, sources.backends, place, backend);
        actions.push(match resolved {
            Ok((cluster, session)) => {
                let unusable = sources.client_certificate;
                if let Some(message) = client_certificate::problem(reader, unusable, &cluster) {
                    notices.error(format!("{place}.service"), message);
                }
                let target = WeightedTarget {
                    target: Target::Cluster(cluster),
                    weight: 1,
                    request_headers: HeaderChanges::default(),
                    response_headers: HeaderChanges::default(),
                    host_rewrite: None,
                    session,
                };
                forward(target, &options)
            }
            Err(error) => {
                if let Some(FieldError { field, message }) = error {
                    notices.error(field, message);
                }
                Action::Respond(NO_BACKEND)
            }
        });
    }
    let default = ingress.spec.default_backend.as_ref();
    let default = default.and_then(|_| actions.last().cloned());
    let mut actions = actions.into_iter();
    let mut hosts: BTreeMap<Arc<str>, Vec<Arc<RankedMatch>>> = BTreeMap::new();
    let mut meter = Meter::default();
    let mut count = 0;
    let mut exceeding = BTreeSet::new();
    for (index, rule) in ingress.spec.rules.iter().enumerate() {
        let sources = rule.http.iter().flat_map(|http| &http.paths);
        // Consumed before the host is checked, since invalid rules have actions too.
        let sources: Vec<_> = sources.zip(actions.by_ref()).collect();
        let domain = match host(rule.host.as_ref()) {
            Ok(domain) => domain,
            Err(message) => {
                notices.error(format!("spec.rules[{index}].host"), message);
                continue;
            }
        };
        if ours.hosts.binary_search(&domain).is_err() {
            let message = format!(
                "{domain} isn't served, since an Ingress can have rules for at most {MAX_HOSTS} hosts; divide the Ingress \
                 into several"
            );
            notices.error(format!("spec.rules[{index}].host"), message);
            continue;
        }
        if sources.is_empty() {
            count += 1;
            if count > MAX_PATHS {
                notices.error(format!("spec.rules[{index}]"), too_many_paths());
                exceeding.insert(domain);
                continue;
            }
            let action = default.clone().unwrap_or_else(|| {
                let message = "has neither paths nor a default backend; add one of them";
                notices.error(format!("spec.rules[{index}]"), message);
                Action::Respond(NO_BACKEND)
            });
            let requests = paths::requests(paths::all());
            let rank = MatchRank::of_default();
            let entry = entry(
                &domain,
                (rank, (index, 0), Box::default()),
                requests,
                action,
                (https, &defaults),
            );
            hosts.entry(domain).or_default().push(entry);
            continue;
        }
        for (position, (source, action)) in sources.into_iter().enumerate() {
            count += 1;
            if count > MAX_PATHS {
                let field = format!("spec.rules[{index}].http.paths[{position}]");
                notices.error(field, too_many_paths());
                exceeding.insert(Arc::clone(&domain));
                continue;
            }
            match paths::read(source) {
                Ok(path) => {
                    let requests = paths::requests(path);
                    let rank = MatchRank::of(&requests);
                    let found = (rank, (index, position), meter.scans(&requests));
                    let entry = entry(&domain, found, requests, action, (https, &defaults));
                    hosts.entry(Arc::clone(&domain)).or_default().push(entry);
                }
                Err(message) => {
                    let field = format!("spec.rules[{index}].http.paths[{position}].path");
                    notices.error(field, message);
                }
            }
        }
    }
    for domain in exceeding {
        let action = Action::Respond(NO_BACKEND);
        let requests = paths::requests(paths::all());
        let place = (ingress.spec.rules.len(), 0);
        let found = (MatchRank::of_default(), place, Box::default());
        let entry = entry(&domain, found, requests, action, (https, &defaults));
        hosts.entry(domain).or_default().push(entry);
    }
    if let Some(action) = default {
        let requests = paths::requests(paths::all());
        let place = (ingress.spec.rules.len(), 0);
        let found = (MatchRank::of_default(), place, Box::default());
        let entry = entry(hostname::ANY, found, requests, action, (https, &defaults));
        hosts.entry(hostname::ANY.into()).or_default().push(entry);
    }
    hosts.values_mut().for_each(Vec::shrink_to_fit);
    hosts
}

fn too_many_paths() -> String {
    format!(
        "isn't served, since an Ingress can have at most {MAX_PATHS} paths; divide the Ingress into several"
    )
}

fn entry(
    domain: &str,
    (rank, place, scans): (MatchRank, (usize, usize), Box<[Scan]>),
    mut requests: RouteMatch,
    action: Action,
    (https, defaults): (Option<u16>, &DefaultChanges),
) -> Arc<RankedMatch> {
    requests.headers.extend(wildcards::one_label(domain));
    let without_tls = https.map(|port| {
        let action = Action::Redirect(Arc::new(Redirect::to_https(port)));
        Arc::new(route(requests.clone(), action, defaults))
    });
    Arc::new(RankedMatch {
        rank,
        place,
        routes: [Arc::new(route(requests, action, defaults))].into(),
        without_tls,
        scans,
    })
}

/// The changes to headers on all routes.
fn default_changes(reader: &mut Reader<'_>, sources: Sources, ingress: &Ingress) -> DefaultChanges {
    let settings = reader.get(sources.settings, &());
    let defaults = settings.as_ref().map(|settings| &settings.ingress.headers);
    let defaults = defaults.filter(|defaults| defaults.ingresses);
    let namespace = &ingress.meta.namespace;
    defaults.map_or_else(DefaultChanges::default, |defaults| {
        default_headers::of_object(defaults, namespace)
    })
}

fn route(matches: RouteMatch, action: Action, defaults: &DefaultChanges) -> Route {
    let forwards = matches!(action, Action::Forward(_));
    let requests = forwards.then(|| defaults.requests.clone());
    Route {
        matches,
        action,
        request_headers: requests.unwrap_or_default(),
        response_headers: defaults.responses.clone(),
        cors: None,
        session: None,
        auth: None,
        policy: None,
    }
}

fn forward(target: WeightedTarget, options: &RouteOptions) -> Action {
    Action::Forward(Arc::new(Forward {
        targets: vec![target],
        refused_status: NO_BACKEND,
        path_rewrite: None,
        host_rewrite: None,
        mirrors: Vec::new(),
        timeout: options.timeout,
        try_timeout: options.try_timeout,
        retry: options.retry.clone().map(Box::new),
        options: None,
    }))
}
