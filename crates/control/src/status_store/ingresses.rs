//! Ingresses, HTTPProxies and ExtensionServices in an overview.
//!
//! In: entries of the status store. Out: views, the worst first.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use sesame_api::{
    Condition, HTTPProxy, HttpProxyState, HttpProxyStatus, Ingress, LoadBalancerStatus, ObjectKey,
    ObjectStatus,
};

use super::notices::{self, NoticeLevel};
use super::overview::worst;
use super::timed_status::Severity;
use super::{Entry, Inner, SpecSummary};

/// An Ingress, an HTTPProxy or an ExtensionService.
#[derive(Clone, Debug, PartialEq)]
pub struct IngressView {
    /// The object.
    pub key: ObjectKey,
    /// Its first hosts; empty for an HTTPProxy that others include, an Ingress without hosts, and an ExtensionService.
    pub hosts: Vec<String>,
    /// Number of omitted hosts.
    pub more_hosts: usize,
    /// The name of its ingress class, if it has one.
    pub class: Option<String>,
    /// Addresses that clients connect to.
    pub addresses: Vec<String>,
    /// Severity of its worst problem.
    pub severity: Severity,
    /// The problem, or a warning about an object without problems.
    pub message: Option<String>,
}

/// Maximum number of hosts that an overview shows per object.
const MAX_HOSTS: usize = 2;

/// The parts of a spec that an overview shows.
#[derive(Debug, Default)]
pub(super) struct IngressSummary {
    hosts: Vec<Arc<str>>,
    more_hosts: usize,
    class: Option<Arc<str>>,
}

impl IngressSummary {
    pub(super) fn of_ingress(ingress: &Ingress) -> Self {
        let hosts = ingress
            .spec
            .rules
            .iter()
            .filter_map(|rule| rule.host.as_ref());
        let mut seen = HashSet::new();
        let mut hosts = hosts.filter(|host| seen.insert(*host));
        let first = hosts.by_ref().take(MAX_HOSTS).cloned().collect();
        let more_hosts = hosts.count();
        let field = ingress.spec.ingress_class_name.as_ref();
        Self {
            hosts: first,
            more_hosts,
            class: ingress.meta.ingress_class(field),
        }
    }

    pub(super) fn of_http_proxy(proxy: &HTTPProxy) -> Self {
        let host = proxy.spec.virtual_host.as_ref();
        let field = proxy.spec.ingress_class_name.as_ref();
        Self {
            hosts: host
                .map(|host| Arc::clone(&host.fqdn))
                .into_iter()
                .collect(),
            more_hosts: 0,
            class: proxy.meta.ingress_class(field),
        }
    }
}

/// Views of the worst objects, at most `limit`, and the number of omitted objects.
pub(super) fn views(inner: &Inner, limit: usize) -> (Vec<IngressView>, usize) {
    let mut found = Vec::new();
    for (key, entry) in &inner.entries {
        if let SpecSummary::Ingress(summary) = &entry.summary
            && let Some((severity, message)) = state(key, entry)
        {
            found.push((severity, key, summary, entry, message));
        }
    }
    found.sort_by_key(|(severity, key, ..)| (Reverse(*severity), *key));
    let more = found.len().saturating_sub(limit);
    let views = found.into_iter().take(limit);
    let views = views.map(|(severity, key, summary, entry, message)| IngressView {
        key: key.clone(),
        hosts: summary.hosts.iter().map(ToString::to_string).collect(),
        more_hosts: summary.more_hosts,
        class: summary.class.as_ref().map(ToString::to_string),
        addresses: entry.status.as_ref().map_or_else(Vec::new, |status| {
            load_balancer(status.status()).map_or_else(Vec::new, addresses)
        }),
        severity,
        message,
    });
    (views.collect(), more)
}

fn load_balancer(status: &ObjectStatus) -> Option<&LoadBalancerStatus> {
    match status {
        ObjectStatus::Ingress(status) => Some(&status.load_balancer),
        ObjectStatus::HttpProxy(status) => status.load_balancer.as_ref(),
        _ => None,
    }
}

fn addresses(status: &LoadBalancerStatus) -> Vec<String> {
    let all = status.ingress.iter();
    all.filter_map(|address| address.ip.as_ref().or(address.hostname.as_ref()))
        .cloned()
        .collect()
}

/// The severity, and the message if there is one; `None` if the object isn't served by Sesame.
fn state(key: &ObjectKey, entry: &Entry) -> Option<(Severity, Option<String>)> {
    match entry.status.as_ref()?.status() {
        ObjectStatus::HttpProxy(status) => Some(of_http_proxy(status)),
        ObjectStatus::Conditions(status) => Some(match &status.conditions[..] {
            [] => (Severity::Waiting, None),
            conditions => (worst(conditions).0, first(conditions)),
        }),
        ObjectStatus::Ingress(status) => {
            let notices = entry.notices.as_deref();
            let notices = notices.map(|notices| notices::views(key, notices));
            let first = notices.into_iter().flatten().next();
            Some(match first {
                Some(first) if first.level == NoticeLevel::Error => {
                    (Severity::Error, Some(first.text()))
                }
                _ if status.load_balancer.ingress.is_empty() => {
                    (Severity::Waiting, Some("no address yet".to_owned()))
                }
                first => (Severity::Ok, first.map(|first| first.text())),
            })
        }
        _ => None,
    }
}

fn of_http_proxy(status: &HttpProxyStatus) -> (Severity, Option<String>) {
    let description = Some(status.description.clone()).filter(|text| !text.is_empty());
    match &status.current_status {
        Some(HttpProxyState::Valid) => (Severity::Ok, first(&status.conditions)),
        None | Some(HttpProxyState::NotReconciled) => (Severity::Waiting, description),
        Some(_) => {
            let message = first(&status.conditions);
            let message = message
                .or(description)
                .or_else(|| worst(&status.conditions).1);
            (Severity::Error, message)
        }
    }
}

/// The first error, or else the first warning.
fn first(conditions: &[Condition]) -> Option<String> {
    let errors = conditions.iter().flat_map(|c| c.errors.iter());
    let warnings = conditions.iter().flat_map(|c| c.warnings.iter());
    let first = errors.chain(warnings).next();
    first.map(|entry| entry.message.to_string())
}
