//! Forwarding of connections.
//!
//! In: the `tcpproxy` of an HTTPProxy, and the Services that it refers to. Out: the backends for connections.

use std::sync::Arc;

use sesame_api::{HTTPProxy, ObjectKey, TcpProxy, TcpProxyInclude};
use sesame_engine::Reader;
use sesame_model::{ClusterKey, ClusterPolicy, Target, WeightedBackend};

use super::findings::{About, Findings};
use super::services::{self, Common};
use super::{balancing, health, includes};
use crate::inputs::Inputs;
use crate::shared::default_fleet::Sources;
use crate::shared::services::Backend;

/// The field path of `tcpproxy`.
const FIELD: &str = "spec.tcpproxy";

/// The backends for connections.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TcpTargets {
    /// The backends for all other connections. Never empty.
    pub(super) targets: Vec<WeightedBackend>,
    /// The backends for TLS connections that a listener doesn't terminate. Never empty.
    pub(super) passthrough: Vec<WeightedBackend>,
}

impl TcpTargets {
    /// Closes all connections.
    pub(super) fn closed() -> Self {
        Self {
            targets: vec![WeightedBackend::CLOSED],
            passthrough: vec![WeightedBackend::CLOSED],
        }
    }
}

/// Where an HTTPProxy's connections go.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TcpLink {
    /// To its own Services.
    Own,
    /// To the Services of another HTTPProxy; the text is the path of the field that includes it.
    Include(ObjectKey, String),
    /// Nowhere: the field is invalid.
    Invalid,
}

/// Reads where connections go; `None` if the HTTPProxy doesn't forward connections.
pub(super) fn link(proxy: &HTTPProxy, findings: &mut Findings) -> Option<TcpLink> {
    let tcp = proxy.spec.tcp_proxy.as_deref()?;
    Some(match (include(tcp), tcp.services.is_empty()) {
        (None, false) => TcpLink::Own,
        (Some((part, include)), true) => {
            let namespace = include.namespace.as_ref();
            let target = includes::target(proxy, namespace, &include.name);
            TcpLink::Include(target, format!("{FIELD}.{part}"))
        }
        (include, _) => {
            let message = match include {
                Some(_) => "include and services are mutually exclusive; remove one of them",
                None => "one of include and services is required",
            };
            findings.refuse(About::TCP, FIELD, message);
            TcpLink::Invalid
        }
    })
}

fn include(tcp: &TcpProxy) -> Option<(&'static str, &TcpProxyInclude)> {
    let old = tcp.includes.as_deref().map(|include| ("includes", include));
    let include = tcp.include.as_deref();
    include.map(|include| ("include", include)).or(old)
}

/// The clusters of the Services, whether or not these exist; `None` for each invalid Service.
pub(super) fn clusters(
    reader: &mut Reader<'_>,
    inputs: Inputs,
    proxy: &HTTPProxy,
    tcp: &TcpProxy,
    findings: &mut Findings,
) -> Vec<Option<ClusterKey>> {
    let policy = tcp.load_balancer_policy.as_deref();
    let place = (FIELD, About::TCP_BALANCING, "a tcpproxy");
    let balancing = balancing::unhashed(place, policy, findings);
    let health = tcp.health_check_policy.as_deref();
    let common = Common {
        balancing: balancing.balancing,
        health: health.map(|policy| health::by_connection(FIELD, policy, findings)),
        idle_timeout: None,
        opaque: true,
    };
    let services = tcp.services.iter().enumerate();
    services
        .map(|(index, service)| {
            let field = format!("{FIELD}.services[{index}]");
            let place = (field.as_str(), service);
            let namespace = &proxy.meta.namespace;
            services::cluster(reader, inputs.services, namespace, place, &common, findings)
        })
        .collect()
}

/// The same cluster without TLS, for connections that are already encrypted.
pub(super) fn without_tls(key: &ClusterKey) -> ClusterKey {
    let mut key = key.clone();
    if key.tls().is_some() {
        let policy = key.policy.as_deref().cloned().unwrap_or_default();
        key.policy = Some(Arc::new(ClusterPolicy {
            tls: None,
            ..policy
        }));
    }
    key
}

/// Reads the backends; `None` if there are no Services.
pub(super) fn read(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    proxy: &HTTPProxy,
    findings: &mut Findings,
) -> Option<TcpTargets> {
    let tcp = proxy.spec.tcp_proxy.as_deref()?;
    if tcp.services.is_empty() {
        return None;
    }
    let before = findings.refusals();
    let clusters = clusters(reader, of.0, proxy, tcp, findings);
    let (mut targets, mut passthrough) = (Vec::new(), Vec::new());
    for (index, (service, cluster)) in tcp.services.iter().zip(clusters).enumerate() {
        let field = format!("{FIELD}.services[{index}]");
        if service.mirror {
            let message = "connections can't be mirrored; remove this Service";
            findings.refuse(About::TCP, &format!("{field}.mirror"), message);
        }
        let Some(key) = cluster else {
            continue;
        };
        let weight = findings.count(About::TCP, &format!("{field}.weight"), service.weight);
        let add = |list: &mut Vec<WeightedBackend>, target| {
            list.push(WeightedBackend { target, weight });
        };
        if let Some((target, _)) = services::target(reader, of, &field, &key, findings) {
            add(&mut targets, target);
        }
        let plain = without_tls(&key);
        let found = reader.get(of.1.backends, &plain);
        if let Some(Backend::Serves(_) | Backend::Secured(_) | Backend::Refused(_)) =
            found.as_deref().map(|found| &found.backend)
        {
            add(&mut passthrough, Target::Cluster(plain));
        }
    }
    if findings.refusals() > before {
        return Some(TcpTargets::closed());
    }
    for list in [&mut targets, &mut passthrough] {
        if list.iter().all(|backend| backend.weight == 0) {
            list.iter_mut().for_each(|backend| backend.weight = 1);
        }
        list.retain(|backend| backend.weight > 0);
        if list.is_empty() {
            list.push(WeightedBackend::CLOSED);
        }
    }
    Some(TcpTargets {
        targets,
        passthrough,
    })
}
