//! Conflicts between listeners of one Gateway, and overlapping TLS connections of one Gateway or ListenerSet.

use std::collections::BTreeMap;

use sesame_api::reason;
use sesame_engine::{Reader, Table};
use sesame_model::{CertificateKey, Port};

use super::listener_state::ListenerState;
use crate::problem::Problem;
use crate::shared::certificates::CertificateState;
use crate::shared::hostname;
use crate::shared::listeners::Protocol;

/// Marks all listeners that conflict: within one Gateway, none of them wins (GatewaySpec.listeners).
pub(super) fn mark(listeners: &mut [ListenerState]) {
    let mut by_port: BTreeMap<Port, Vec<usize>> = BTreeMap::new();
    for (index, listener) in listeners.iter().enumerate() {
        // A listener with an unknown protocol doesn't bind a port.
        if listener.protocol != Protocol::Unknown {
            by_port
                .entry(listener.bound_port())
                .or_default()
                .push(index);
        }
    }
    for members in by_port.into_values() {
        for &index in &members {
            let others = members
                .iter()
                .filter(|&&other| other != index)
                .map(|&other| &listeners[other]);
            let conflict = conflict(&listeners[index], others);
            listeners[index].conflicted = conflict;
        }
    }
}

fn conflict<'a>(
    listener: &ListenerState,
    others: impl Iterator<Item = &'a ListenerState> + Clone,
) -> Option<Problem> {
    if let Some(other) = others
        .clone()
        .find(|other| !listener.protocol.shares_port_with(other.protocol))
    {
        return Some(Problem::new(
            reason::listener::PROTOCOL_CONFLICT,
            format!(
                "listener {} uses port {} with a different protocol; change the port of one of them",
                other.name, listener.port
            ),
        ));
    }
    let same_host = |other: &&ListenerState| {
        !listener.protocol.has_hostname() || other.domain == listener.domain
    };
    others.clone().find(same_host).map(|other| {
        let host = if &*listener.domain == hostname::ANY {
            "without a hostname".to_owned()
        } else {
            format!("with hostname {}", listener.domain)
        };
        Problem::new(
            reason::listener::HOSTNAME_CONFLICT,
            format!(
                "listener {} also uses port {} {host}; change the port or hostname of one of them",
                other.name, listener.port
            ),
        )
    })
}

/// Marks TLS listeners on the same port whose hostnames or certificates overlap: a client may reuse one listener's
/// connection for requests to the other (Listener condition OverlappingTLSConfig).
pub(super) fn mark_overlaps(
    reader: &mut Reader<'_>,
    certificates: Table<CertificateKey, CertificateState>,
    listeners: &mut [ListenerState],
) {
    let domains: Vec<Vec<String>> = listeners
        .iter()
        .map(|listener| hostname::widening(&listener.domain).collect())
        .collect();
    // Listeners may share certificates, and a certificate may have thousands of names.
    let mut by_certificate: BTreeMap<&CertificateKey, Vec<bool>> = BTreeMap::new();
    for key in listeners.iter().flat_map(|listener| &listener.certificates) {
        by_certificate.entry(key).or_insert_with(|| {
            let state = reader.get(certificates, key);
            let names: &[String] = match state.as_deref() {
                Some(CertificateState::Valid { names, .. }) => names,
                _ => &[],
            };
            let domains = domains.iter();
            domains
                .map(|domain| hostname::any_intersects(names, domain))
                .collect()
        });
    }
    let valid_for: Vec<Vec<bool>> = listeners
        .iter()
        .map(|listener| {
            let certificates = listener.certificates.iter();
            let found: Vec<_> = certificates.map(|key| &by_certificate[key]).collect();
            (0..listeners.len())
                .map(|other| found.iter().any(|valid_for| valid_for[other]))
                .collect()
        })
        .collect();
    for index in 0..listeners.len() {
        listeners[index].overlapping = overlap(index, listeners, &valid_for);
    }
}

/// How a listener overlaps with others. `valid_for[a][b]`: whether a certificate of listener `a` is valid for a host of
/// listener `b`.
fn overlap(index: usize, listeners: &[ListenerState], valid_for: &[Vec<bool>]) -> Option<Problem> {
    let listener = &listeners[index];
    if !listener.protocol.is_tls() || listener.conflicted.is_some() {
        return None;
    }
    let others = listeners.iter().enumerate().filter(|(other, state)| {
        *other != index
            && state.protocol.is_tls()
            && state.port == listener.port
            && state.conflicted.is_none()
    });
    let advice = |other: &ListenerState| match (listener.protocol, other.protocol) {
        (Protocol::Https, Protocol::Https) => {
            "a request for one listener gets a 421 response if it arrives on a connection to the other"
        }
        _ => {
            "the server name of each connection selects one of the two listeners, which gets all requests on that connection"
        }
    };
    // If both overlap, the spec requires this reason.
    let shared = others
        .clone()
        .find(|(other, _)| valid_for[index][*other] || valid_for[*other][index]);
    if let Some((_, other)) = shared {
        return Some(Problem::new(
            reason::listener::OVERLAPPING_CERTIFICATES,
            format!(
                "a certificate is valid for both this listener and listener {}; {}",
                other.name,
                advice(other)
            ),
        ));
    }
    others
        .clone()
        .find(|(_, other)| hostname::intersection(&listener.domain, &other.domain).is_some())
        .map(|(_, other)| {
            Problem::new(
                reason::listener::OVERLAPPING_HOSTNAMES,
                format!(
                    "the hostname overlaps with the hostname of listener {}; {}",
                    other.name,
                    advice(other)
                ),
            )
        })
}
