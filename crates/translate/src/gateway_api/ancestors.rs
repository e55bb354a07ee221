//! The Gateways whose routes, listeners or telemetry policies use a backend: the ancestors in the statuses of XBackends
//! and of policies for Services.

use std::collections::BTreeSet;

use sesame_api::{Kind, ObjectKey};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{BackendName, ClusterKey};

use crate::gateway_api::gateway::GatewayState;
use crate::gateway_api::listener_state::referenced_services;
use crate::gateway_api::route::{self, backends};
use crate::gateway_api::telemetry;
use crate::gateway_api::xbackend::XBackends;
use crate::inputs::Inputs;
use crate::shared::grants::Referrer;
use crate::shared::hosts::Attachments;
use crate::shared::listeners::AttachPoints;

/// A Gateway's use of a backend, by an accepted route, a listener, or an XTelemetryPolicy for the Gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BackendUse {
    /// The Service or XBackend.
    backend: ObjectKey,
    /// The port of the Service.
    pub(super) port: Option<u16>,
    /// The Gateway.
    pub(super) gateway: ObjectKey,
}

/// The uses of each Service or XBackend.
pub(crate) type Uses = Index<BackendUse, (), ObjectKey>;

/// Declares the uses of XBackends and of the policies' `targets`.
pub(crate) fn uses(
    b: &mut Builder,
    inputs: &Inputs,
    targets: Table<ObjectKey, ()>,
    xbackends: XBackends,
    attachments: Table<ObjectKey, Attachments>,
    checked: Index<ObjectKey, AttachPoints, ObjectKey>,
    gateways: Table<ObjectKey, GatewayState>,
) -> Uses {
    let inputs = *inputs;
    let with_status = move |reader: &mut Reader<'_>, backend: &ObjectKey| {
        reader.exists(targets, backend)
            || backend.kind == Kind::XBackend && reader.exists(xbackends.states, backend)
    };
    let of_routes: Table<ObjectKey, Vec<BackendUse>> =
        b.derive("backend uses", attachments, move |reader, key| {
            of_route(reader, &inputs, with_status, attachments, key)
        });
    let by_use = b.index(of_routes, "routes by backend use", |_, uses| uses.clone());
    let of_listeners: Table<ObjectKey, Vec<BackendUse>> =
        b.derive("backend uses of listeners", checked, move |reader, key| {
            of_owner(reader, &inputs, with_status, key)
        });
    let by_listener_use = b.index(of_listeners, "listeners by backend use", |_, uses| {
        uses.clone()
    });
    let of_policies: Table<ObjectKey, Vec<BackendUse>> = b.derive(
        "backend uses of telemetry policies",
        inputs.telemetry_policies,
        move |reader, key| of_telemetry_policy(reader, &inputs, with_status, gateways, key),
    );
    let by_policy_use = b.index(
        of_policies,
        "telemetry policies by backend use",
        |_, uses| uses.clone(),
    );
    let in_use = b.union_keys(
        "backends in use",
        [by_use.into(), by_listener_use.into(), by_policy_use.into()],
    );
    b.index(in_use, "uses by backend", |used: &BackendUse, ()| {
        vec![used.backend.clone()]
    })
}

/// The backends that an accepted route refers to and that `with_status` selects.
fn of_route(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    with_status: impl Fn(&mut Reader<'_>, &ObjectKey) -> bool,
    attachments: Table<ObjectKey, Attachments>,
    key: &ObjectKey,
) -> Option<Vec<BackendUse>> {
    let attachments = reader.get(attachments, key)?;
    let parents = attachments.parents.iter();
    let owners = parents.filter(|parent| parent.refused.is_none());
    let gateways: BTreeSet<ObjectKey> = owners
        .filter_map(|parent| gateway_of(reader, inputs, &parent.owner))
        .collect();
    let clusters = match key.kind {
        Kind::HTTPRoute => route::referenced(&*reader.get(inputs.http_routes, key)?),
        Kind::GRPCRoute => route::referenced(&*reader.get(inputs.grpc_routes, key)?),
        Kind::TLSRoute => route::referenced(&*reader.get(inputs.tls_routes, key)?),
        Kind::TCPRoute => route::referenced(&*reader.get(inputs.tcp_routes, key)?),
        _ => return None,
    };
    of_clusters(reader, inputs, with_status, key, clusters, &gateways)
}

/// The authorization services of an object's listeners that `with_status` selects.
fn of_owner(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    with_status: impl Fn(&mut Reader<'_>, &ObjectKey) -> bool,
    key: &ObjectKey,
) -> Option<Vec<BackendUse>> {
    let clusters = match key.kind {
        Kind::Gateway => {
            let listeners = &reader.get(inputs.gateways, key)?.spec.listeners;
            referenced_services(&key.namespace, listeners)
        }
        _ => {
            let listeners = &reader.get(inputs.listener_sets, key)?.spec.listeners;
            referenced_services(&key.namespace, listeners)
        }
    };
    if clusters.is_empty() {
        return None;
    }
    let gateways = BTreeSet::from_iter(gateway_of(reader, inputs, key));
    of_clusters(reader, inputs, with_status, key, clusters, &gateways)
}

/// The span collector of a policy, if `with_status` selects it.
fn of_telemetry_policy(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    with_status: impl Fn(&mut Reader<'_>, &ObjectKey) -> bool,
    gateways: Table<ObjectKey, GatewayState>,
    key: &ObjectKey,
) -> Option<Vec<BackendUse>> {
    let policy = reader.get(inputs.telemetry_policies, key)?;
    let targets = telemetry::targets(key, &policy).into_iter();
    let ours = targets.filter(|gateway| reader.exists(gateways, gateway));
    let ours: BTreeSet<ObjectKey> = ours.collect();
    let collector = telemetry::referenced(key, &policy);
    of_clusters(reader, inputs, with_status, key, collector, &ours)
}

/// The uses by `gateways` of the backends that the object `key` refers to. `clusters` contains the clusters of these
/// backends.
fn of_clusters(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    with_status: impl Fn(&mut Reader<'_>, &ObjectKey) -> bool,
    key: &ObjectKey,
    clusters: Vec<ClusterKey>,
    gateways: &BTreeSet<ObjectKey>,
) -> Option<Vec<BackendUse>> {
    let referrer = Referrer {
        kind: key.kind,
        namespace: &key.namespace,
    };
    let mut uses = Vec::new();
    for cluster in clusters {
        let backend = backends::backend_of(&cluster);
        let port = match cluster.backend {
            BackendName::ServicePort { port, .. } => Some(port),
            BackendName::XBackend { .. }
            | BackendName::ExtensionService { .. }
            | BackendName::Host(_) => None,
        };
        if with_status(reader, &backend)
            && backends::permitted(reader, inputs.grants_by_namespace, referrer, &backend)
        {
            uses.extend(gateways.iter().map(|gateway| BackendUse {
                backend: backend.clone(),
                port,
                gateway: gateway.clone(),
            }));
        }
    }
    (!uses.is_empty()).then_some(uses)
}

/// The Gateway of an object with listeners: the object itself, or a ListenerSet's parent.
fn gateway_of(reader: &mut Reader<'_>, inputs: &Inputs, owner: &ObjectKey) -> Option<ObjectKey> {
    if !owner.kind.is_listener_set() {
        return Some(owner.clone());
    }
    let set = reader.get(inputs.listener_sets, owner)?;
    let gateway = set.spec.parent_ref.resolve(&owner.namespace);
    Some(gateway.of_kind(Kind::Gateway))
}
