//! XTelemetryPolicies: how each Gateway's requests are traced. `settings` reads a policy, `status` has the statuses.
//!
//! The oldest policy for a Gateway applies, with all its settings. A policy never affects whether requests are served:
//! without a valid policy, the instance's configuration decides whether they are traced, and without a collector, their
//! spans are dropped.

mod settings;
mod status;

use std::sync::Arc;

use sesame_api::{Kind, ObjectKey, ObjectStatus, XTelemetryPolicy};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{ClusterKey, ClusterPolicy, FleetId, Protocol, Tracing};

use self::settings::Settings;
use super::gateway::GatewayState;
use super::route::backends;
use crate::inputs::Inputs;
use crate::problem::Problem;
use crate::shared::client_certificates::{self, ClientCertificates};
use crate::shared::precedence::{Seniority, Source};

/// A policy's settings and problems.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PolicyState {
    /// The order among policies for a Gateway.
    seniority: Seniority,
    /// How requests are traced, or why the policy is invalid.
    settings: Result<Settings, Problem>,
    /// Its unresolved reference.
    unresolved: Option<Problem>,
}

/// The tables that policies depend on.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    /// Our Gateways.
    pub(crate) gateways: Table<ObjectKey, GatewayState>,
    /// The backends of references.
    pub(crate) backends: backends::Sources,
    /// The client certificates of fleets.
    pub(crate) client_certificates: ClientCertificates,
}

/// How a Gateway's valid policy traces requests; `None` if it turns tracing off.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnTracing(pub(crate) Option<Tracing>);

/// The tables of policies.
#[derive(Clone, Copy)]
pub(crate) struct Stages {
    /// How fleets of Gateways with a valid policy trace requests.
    pub(crate) own: Table<FleetId, OwnTracing>,
    /// The statuses.
    pub(crate) statuses: Table<ObjectKey, ObjectStatus>,
}

/// Policies by target.
type ByGateway = Index<ObjectKey, XTelemetryPolicy, ObjectKey>;

/// Declares the tables of policies.
pub(crate) fn stages(b: &mut Builder, inputs: &Inputs, sources: Sources) -> Stages {
    let inputs = *inputs;
    let policies = inputs.telemetry_policies;
    let by_gateway = b.index(policies, "telemetry_policies by gateway", targets);
    let states: Table<ObjectKey, PolicyState> =
        b.derive("telemetry_policy state", policies, move |reader, key| {
            let policy = reader.get(policies, key)?;
            let (settings, unresolved) = settings::read(reader, sources.backends, key, &policy);
            Some(PolicyState {
                seniority: seniority(&policy),
                settings,
                unresolved,
            })
        });
    let own = b.derive_many(
        "own tracing",
        by_gateway,
        move |reader, gateway: &ObjectKey| {
            let Some(settings) = reader.get(inputs.settings, &()) else {
                return Vec::new();
            };
            let fleet = settings.fleet_of(&gateway.namespaced_name());
            let own = own(reader, sources, by_gateway, states, gateway, &fleet);
            Vec::from_iter(own.map(|own| (fleet, own)))
        },
    );
    Stages {
        own,
        statuses: status::statuses(b, &inputs, sources.gateways, by_gateway, states),
    }
}

/// The clusters that a policy refers to, permitted or not.
pub(crate) fn referenced(key: &ObjectKey, policy: &XTelemetryPolicy) -> Vec<ClusterKey> {
    let provider = policy.spec.tracing.iter().flat_map(|all| &all.provider);
    let keys = provider.filter_map(|provider| {
        backends::cluster_key(
            &provider.backend_ref,
            &key.namespace,
            Some(&cluster_policy()),
        )
    });
    keys.collect()
}

/// OTLP/gRPC needs HTTP/2, with or without TLS, whatever the Service's appProtocol.
fn cluster_policy() -> Arc<ClusterPolicy> {
    Arc::new(ClusterPolicy {
        protocol: Some(Protocol::Http2),
        best_effort: true,
        ..ClusterPolicy::default()
    })
}

/// The Gateways that a policy targets.
pub(crate) fn targets(key: &ObjectKey, policy: &XTelemetryPolicy) -> Vec<ObjectKey> {
    let targets = policy.spec.target_refs.iter();
    let gateways = targets.filter(|target| target.known_kind() == Some(Kind::Gateway));
    let name = |name: &Arc<str>| {
        ObjectKey::new(Kind::Gateway, Arc::clone(&key.namespace), Arc::clone(name))
    };
    let mut gateways: Vec<ObjectKey> = gateways.map(|target| name(&target.name)).collect();
    gateways.sort();
    gateways.dedup();
    gateways
}

fn seniority(policy: &XTelemetryPolicy) -> Seniority {
    Seniority::of(Source::GatewayApi, &policy.meta)
}

/// The policy that applies to a Gateway.
fn oldest(
    reader: &mut Reader<'_>,
    by_gateway: ByGateway,
    gateway: &ObjectKey,
) -> Option<(ObjectKey, Seniority)> {
    let policies = reader.by(by_gateway, gateway).into_iter();
    let policies = policies.map(|(key, policy)| (key, seniority(&policy)));
    policies.min_by(|(_, a), (_, b)| a.cmp(b))
}

/// How the Gateway's oldest policy traces requests; `None` if the policy is invalid or leaves it to the instance's
/// configuration, or if the Gateway isn't served.
fn own(
    reader: &mut Reader<'_>,
    sources: Sources,
    by_gateway: ByGateway,
    states: Table<ObjectKey, PolicyState>,
    gateway: &ObjectKey,
    fleet: &FleetId,
) -> Option<OwnTracing> {
    let served = reader.get(sources.gateways, gateway)?.refused.is_none();
    let (policy, _) = oldest(reader, by_gateway, gateway).filter(|_| served)?;
    let state = reader.get(states, &policy)?;
    let own = state.settings.as_ref().ok()?.tracing(gateway)?;
    let certificates = sources.client_certificates;
    Some(OwnTracing(own.0.map(|tracing| Tracing {
        collector: client_certificates::of_target(reader, certificates, fleet, tracing.collector),
        ..tracing
    })))
}
