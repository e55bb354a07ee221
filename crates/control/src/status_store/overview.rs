//! A short overview of a run.
//!
//! In: the status store. Out: Gateways, listeners, routes, Ingresses, HTTPProxies and problems, the worst first, as plain
//! data. It must not depend on how it is displayed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sesame_api::{Condition, ListenerStatus, NamespacedName, ObjectKey, ObjectStatus, RouteStatus};
use sesame_model::{FleetRequest, FleetState, Port};
use sesame_sources::files::FileError;

use super::ingresses::{self, IngressView};
use super::notices::{self, NoticeView};
use super::timed_status::Severity;
use super::{Entry, Inner, ListenerSummary, SpecSummary, StatusStore, is_shown};

/// The name of the fleet that serves objects without a Gateway.
pub const DEFAULT_FLEET: &str = "default fleet";

/// All Gateways, some routes, Ingresses and HTTPProxies, all problems.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// Sesame's Gateways, sorted by name, then the default fleet, if it exists.
    pub gateways: Vec<GatewayView>,
    /// Routes, the worst first, then sorted by name.
    pub routes: Vec<RouteView>,
    /// Number of omitted routes.
    pub more_routes: usize,
    /// Ingresses and HTTPProxies, the worst first, then sorted by name.
    pub ingresses: Vec<IngressView>,
    /// Number of omitted Ingresses and HTTPProxies.
    pub more_ingresses: usize,
    /// Problems with files.
    pub problems: Vec<FileError>,
    /// Notices about objects that are not listed above.
    pub notices: Vec<NoticeView>,
}

/// A Gateway, or the default fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayView {
    /// Its name: `namespace/name`, or [`DEFAULT_FLEET`].
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Severity of its worst condition.
    pub severity: Severity,
    /// The message of that condition, if there is a problem.
    pub message: Option<String>,
    /// Its listeners, in the order of the object, then those of its ListenerSets.
    pub listeners: Vec<ListenerView>,
}

/// A listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerView {
    /// Its name; `namespace/set/name` for a listener of a ListenerSet.
    pub name: String,
    /// Its port; 0 if none is assigned.
    pub port: u16,
    /// Its protocol.
    pub protocol: String,
    /// Its hostname, if it has one.
    pub hostname: Option<String>,
    /// Number of attached routes; `None` for the default fleet, which has none.
    pub attached_routes: Option<i32>,
    /// Its URL.
    pub url: Option<String>,
    /// Severity of its worst condition.
    pub severity: Severity,
    /// The message of that condition, if there is a problem.
    pub message: Option<String>,
}

/// A route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteView {
    /// The route.
    pub key: ObjectKey,
    /// Its hostnames; if empty, its listeners' hostnames apply.
    pub hostnames: Vec<String>,
    /// Its parents that belong to Sesame.
    pub parents: Vec<ParentView>,
    /// Severity of its worst parent.
    pub severity: Severity,
}

/// A route's attachment to a parent.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentView {
    /// The parent: `namespace/name`, and the listener if the route names one.
    pub name: String,
    /// Severity of the worst condition for this parent.
    pub severity: Severity,
    /// The message of that condition, if there is a problem.
    pub message: Option<String>,
}

impl StatusStore {
    /// An overview with at most `routes` routes, and as many Ingresses and HTTPProxies. `port_offset` is added to ports
    /// in URLs. The cost is linear in the number of routes.
    pub fn overview(&self, routes: usize, port_offset: u16) -> Overview {
        self.read(|inner| {
            let mut gateways = gateways(inner, port_offset);
            let default_fleet = inner.default_fleet.as_ref();
            gateways
                .extend(default_fleet.map(|(request, state)| default_fleet_view(request, state)));
            let (ingresses, more_ingresses) = ingresses::views(inner, routes);
            Overview {
                gateways,
                ingresses,
                more_ingresses,
                problems: inner.problems.clone(),
                notices: other_notices(inner),
                ..some_routes(inner, routes)
            }
        })
    }
}

/// The worst condition: its severity, and its message if there is a problem.
pub(super) fn worst<'a>(
    conditions: impl IntoIterator<Item = &'a Condition>,
) -> (Severity, Option<String>) {
    let mut worst = (Severity::Ok, None);
    for condition in conditions {
        let severity = Severity::of(condition);
        if severity > worst.0 {
            worst = (severity, Some(condition.message.to_string()));
        }
    }
    worst
}

fn gateways(inner: &Inner, port_offset: u16) -> Vec<GatewayView> {
    let mut views = BTreeMap::new();
    for (key, entry) in &inner.entries {
        if let (SpecSummary::Gateway(listeners), Some(status)) = (&entry.summary, &entry.status)
            && let ObjectStatus::Gateway(status) = status.status()
        {
            let (severity, message) = worst(&status.conditions);
            let addresses: Vec<String> = status.addresses.iter().map(|a| a.value.clone()).collect();
            let view = |summary| {
                let address = addresses.first();
                listener(summary, &status.listeners, address, port_offset)
            };
            let name = key.namespaced_name();
            let view = GatewayView {
                name: name.to_string(),
                severity,
                message,
                listeners: listeners.iter().map(view).collect(),
                addresses,
            };
            views.insert(name, view);
        }
    }
    for (key, entry) in &inner.entries {
        if let (SpecSummary::ListenerSet(set), Some(status)) = (&entry.summary, &entry.status)
            && let ObjectStatus::ListenerSet(status) = status.status()
            && let Some(gateway) = views.get_mut(&set.gateway)
        {
            let of_set = worst(&status.conditions);
            for summary in &set.listeners {
                let address = gateway.addresses.first();
                let mut view = listener(summary, &status.listeners, address, port_offset);
                view.name = format!("{}/{}", key.namespaced_name(), view.name);
                if of_set.0 > view.severity {
                    (view.severity, view.message) = of_set.clone();
                }
                gateway.listeners.push(view);
            }
        }
    }
    views.into_values().collect()
}

fn listener(
    summary: &ListenerSummary,
    statuses: &[ListenerStatus],
    address: Option<&String>,
    port_offset: u16,
) -> ListenerView {
    let status = statuses.iter().find(|l| l.name == summary.name);
    let (severity, message) = match status {
        Some(status) => worst(&status.conditions),
        None => (Severity::Waiting, None),
    };
    let assigned = status.and_then(|status| status.port);
    let port = assigned.unwrap_or(summary.port);
    ListenerView {
        name: summary.name.to_string(),
        port,
        protocol: summary.protocol.clone(),
        hostname: summary.hostname.as_ref().map(ToString::to_string),
        attached_routes: Some(status.map_or(0, |status| status.attached_routes)),
        url: address.and_then(|address| url(&summary.protocol, address, port, port_offset)),
        severity,
        message,
    }
}

/// The default fleet: a listener for each port. No object's status reports it.
fn default_fleet_view(request: &FleetRequest, state: &FleetState) -> GatewayView {
    let addresses: Vec<String> = state.addresses.iter().map(ToString::to_string).collect();
    let (severity, message) = match &state.problem {
        Some(problem) => (Severity::Error, Some(problem.message().to_owned())),
        None if state.ready => (Severity::Ok, None),
        None => (Severity::Waiting, Some("no Envoy is ready yet".to_owned())),
    };
    let listener = |port: &Port| {
        let (name, protocol) = match port.number {
            443 => ("https", "HTTPS"),
            _ => ("http", "HTTP"),
        };
        let message = state.ports.get(port).cloned();
        let address = addresses.first();
        ListenerView {
            name: name.to_owned(),
            port: port.number,
            protocol: protocol.to_owned(),
            hostname: None,
            attached_routes: None,
            url: address.and_then(|address| url(protocol, address, port.number, state.port_offset)),
            severity: match message {
                Some(_) => Severity::Error,
                None => Severity::Ok,
            },
            message,
        }
    };
    GatewayView {
        name: DEFAULT_FLEET.to_owned(),
        severity,
        message,
        listeners: request.ports.iter().map(listener).collect(),
        addresses,
    }
}

/// The notices of objects of kinds that aren't shown.
fn other_notices(inner: &Inner) -> Vec<NoticeView> {
    let entries = inner.entries.iter();
    let others = entries.filter(|(key, _)| !is_shown(key.kind));
    others
        .filter_map(|(key, entry)| Some((key, entry.notices.as_deref()?)))
        .flat_map(|(key, notices)| notices::views(key, notices))
        .collect()
}

fn url(protocol: &str, address: &str, port: u16, port_offset: u16) -> Option<String> {
    let (scheme, default_port) = match protocol {
        "HTTP" => ("http", 80),
        "HTTPS" => ("https", 443),
        _ => return None,
    };
    let port = port.checked_add(port_offset)?;
    let host = match address.parse() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => address.to_owned(),
    };
    Some(match port == default_port {
        true => format!("{scheme}://{host}"),
        false => format!("{scheme}://{host}:{port}"),
    })
}

fn some_routes(inner: &Inner, limit: usize) -> Overview {
    let mut found = Vec::new();
    for (key, entry) in &inner.entries {
        if let Some(status) = &entry.status
            && let ObjectStatus::Route(status) = status.status()
        {
            let conditions = status.parents.iter().flat_map(|parent| &parent.conditions);
            let severity = conditions
                .map(Severity::of)
                .max()
                .unwrap_or(Severity::Waiting);
            found.push((severity, key, entry, status));
        }
    }
    found.sort_by_key(|(severity, key, ..)| (std::cmp::Reverse(*severity), *key));
    Overview {
        more_routes: found.len().saturating_sub(limit),
        routes: found
            .into_iter()
            .take(limit)
            .map(|(severity, key, entry, status)| route(severity, key, entry, status))
            .collect(),
        ..Overview::default()
    }
}

fn route(severity: Severity, key: &ObjectKey, entry: &Entry, status: &RouteStatus) -> RouteView {
    let hostnames = match &entry.summary {
        SpecSummary::Route(hostnames) => hostnames.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    let parents = status.parents.iter().map(|parent| {
        let reference = &parent.parent_ref;
        let namespace = reference.namespace.as_ref().unwrap_or(&key.namespace);
        let mut name = NamespacedName::new(namespace.clone(), reference.name.clone()).to_string();
        if let Some(section) = &reference.section_name {
            name = format!("{name} {section}");
        }
        let (severity, message) = worst(&parent.conditions);
        ParentView {
            name,
            severity,
            message,
        }
    });
    RouteView {
        key: key.clone(),
        hostnames,
        parents: parents.collect(),
        severity,
    }
}
