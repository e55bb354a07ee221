//! Listeners of one Gateway that can't be told apart, or that share more than their owners may think.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_api::reason;
use sesame_engine::{Reader, Table};
use sesame_model::CertificateKey;

use super::gateway::{ListenerState, Protocol};
use super::problem::Problem;
use crate::shared::certificates::CertificateState;
use crate::shared::hostname;

/// Marks every listener that collides with another: there is no winner inside one Gateway (GatewaySpec.listeners).
pub(super) fn mark(listeners: &mut [ListenerState]) {
    let mut by_port: BTreeMap<(bool, u16), Vec<usize>> = BTreeMap::new();
    for (index, listener) in listeners.iter().enumerate() {
        // What nobody knows takes no port. UDP's ports are not TCP's.
        if listener.protocol != Protocol::Unknown {
            by_port
                .entry((listener.protocol == Protocol::Udp, listener.port))
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
        .find(|other| !compatible(listener.protocol, other.protocol))
    {
        return Some(Problem::new(
            reason::listener::PROTOCOL_CONFLICT,
            format!(
                "listener {} has port {} with another protocol; move one of the two to another port",
                other.name, listener.port
            ),
        ));
    }
    let same_host = |other: &&ListenerState| {
        !has_hostname(listener.protocol) || other.domain == listener.domain
    };
    others.clone().find(same_host).map(|other| {
        let host = if &*listener.domain == hostname::ANY {
            "no hostname"
        } else {
            &*listener.domain
        };
        Problem::new(
            reason::listener::HOSTNAME_CONFLICT,
            format!(
                "listener {} has port {} and {host} too; change one of the two",
                other.name, listener.port
            ),
        )
    })
}

/// Protocols that can share a port, told apart by hostname.
fn compatible(a: Protocol, b: Protocol) -> bool {
    a == b
        || matches!(
            (a, b),
            (Protocol::Https, Protocol::Tls) | (Protocol::Tls, Protocol::Https)
        )
}

fn has_hostname(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Http | Protocol::Https | Protocol::Tls)
}

/// Marks HTTPS listeners of one port whose hostnames, or whose certificates, overlap: a client may send requests for the one
/// on a connection to the other, and gets 421 (Listener condition OverlappingTLSConfig).
pub(super) fn mark_overlaps(
    reader: &mut Reader<'_>,
    certificates: Table<CertificateKey, CertificateState>,
    listeners: &mut [ListenerState],
) {
    let names: Vec<Vec<Arc<[String]>>> = listeners
        .iter()
        .map(|listener| {
            let states = listener
                .certificates
                .iter()
                .filter_map(|key| reader.get(certificates, key));
            states
                .filter_map(|state| match &*state {
                    CertificateState::Valid { names, .. } => Some(Arc::clone(names)),
                    _ => None,
                })
                .collect()
        })
        .collect();
    for index in 0..listeners.len() {
        listeners[index].overlapping = overlap(index, listeners, &names);
    }
}

fn overlap(
    index: usize,
    listeners: &[ListenerState],
    names: &[Vec<Arc<[String]>>],
) -> Option<Problem> {
    let listener = &listeners[index];
    if listener.protocol != Protocol::Https || listener.conflicted.is_some() {
        return None;
    }
    let others = listeners.iter().enumerate().filter(|(other, state)| {
        *other != index
            && state.protocol == Protocol::Https
            && state.port == listener.port
            && state.conflicted.is_none()
    });
    let advice = "requests for the one that arrive on a connection to the other are answered 421";
    let valid_for = |names: &[Arc<[String]>], domain: &str| {
        names
            .iter()
            .flat_map(|names| names.iter())
            .any(|name| hostname::intersection(name, domain).is_some())
    };
    // Where both is so, this is the reason that the spec asks for.
    let shared = others.clone().find(|(other, state)| {
        valid_for(&names[index], &state.domain) || valid_for(&names[*other], &listener.domain)
    });
    if let Some((_, other)) = shared {
        return Some(Problem::new(
            reason::listener::OVERLAPPING_CERTIFICATES,
            format!(
                "a certificate is good for this listener and for listener {}: {advice}",
                other.name
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
                    "the hostname overlaps that of listener {}: {advice}",
                    other.name
                ),
            )
        })
}
