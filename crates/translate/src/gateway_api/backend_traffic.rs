//! XBackendTrafficPolicies: a backend's retry limit and session persistence. `status` has the statuses.
//!
//! The oldest policy for a backend applies, with all its settings. A policy never affects whether requests are served:
//! without a valid policy, only the limits and sessions of routes apply.

mod status;

use std::sync::Arc;

use sesame_api::{
    Kind, LocalObjectReference, ObjectKey, RetryConstraint, SessionPersistence,
    XBackendTrafficPolicy, reason,
};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{BackendName, ClusterKey, Protocol, RetryLimit, Session};

pub(crate) use self::status::statuses;
use super::route::{backends, session};
use super::xbackend::{self, XBackends};
use crate::inputs::Inputs;
use crate::problem::{FieldError, Problem};
use crate::shared::precedence::{Seniority, Source};

/// The field with the session persistence.
const SESSION: &str = "spec.sessionPersistence";

/// A policy's settings and problems.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PolicyState {
    /// The order among policies with the same target.
    seniority: Seniority,
    targets: Vec<LocalObjectReference>,
    /// The settings, or why the policy is invalid.
    settings: Result<Settings, Problem>,
}

/// The settings of a valid policy.
#[derive(Clone, Debug, PartialEq)]
struct Settings {
    retries: Option<RetryLimit>,
    session: Option<SessionPersistence>,
}

/// The tables of policies.
#[derive(Clone, Copy)]
pub(crate) struct Policies {
    states: Table<ObjectKey, PolicyState>,
    /// By the Services and XBackends that they target.
    pub(crate) by_target: Index<ObjectKey, PolicyState, ObjectKey>,
}

/// Declares the tables of policies.
pub(crate) fn policies(b: &mut Builder, inputs: &Inputs) -> Policies {
    let policies = inputs.backend_traffic_policies;
    let states: Table<ObjectKey, PolicyState> = b.derive(
        "backend_traffic_policy state",
        policies,
        move |reader, key| Some(read(&*reader.get(policies, key)?)),
    );
    let by_target = b.index(
        states,
        "backend_traffic_policies by target",
        |key: &ObjectKey, state| {
            let targets = state.targets.iter();
            targets.filter_map(|found| target(key, found)).collect()
        },
    );
    Policies { states, by_target }
}

/// The backend that a policy targets.
fn target(policy: &ObjectKey, reference: &LocalObjectReference) -> Option<ObjectKey> {
    let kind @ (Kind::Service | Kind::XBackend) = reference.known_kind()? else {
        return None;
    };
    let namespace = Arc::clone(&policy.namespace);
    Some(ObjectKey::new(kind, namespace, Arc::clone(&reference.name)))
}

fn read(policy: &XBackendTrafficPolicy) -> PolicyState {
    let spec = &policy.spec;
    let settings = match &spec.session_persistence {
        None => Ok(()),
        // The name can't be invalid.
        Some(persistence) => session::read(SESSION, persistence, String::new).map(drop),
    };
    let settings = settings.map(|()| Settings {
        retries: spec.retry_constraint.as_ref().map(limit),
        session: spec.session_persistence.clone(),
    });
    PolicyState {
        seniority: Seniority::of(Source::GatewayApi, &policy.meta),
        targets: spec.target_refs.clone(),
        settings: settings
            .map_err(|error: FieldError| Problem::new(reason::policy::INVALID, error.to_string())),
    }
}

/// Approximates a retry budget over an interval by a limit on concurrent retries: the same percentage of requests, and
/// at least as many concurrent retries as may start within a second, which is enough if each takes a second.
fn limit(constraint: &RetryConstraint) -> RetryLimit {
    let rate = &constraint.min_retry_rate;
    let millis = rate.interval.as_millis().max(1);
    let per_second = (u64::from(rate.count) * 1_000).div_ceil(millis);
    RetryLimit {
        percent: constraint.budget.percent.min(100) as u8,
        always: u32::try_from(per_second).unwrap_or(u32::MAX),
    }
}

/// The policy that applies to a backend.
fn oldest(
    reader: &mut Reader<'_>,
    policies: Policies,
    target: &ObjectKey,
) -> Option<Arc<PolicyState>> {
    let all = reader.by(policies.by_target, target).into_iter();
    let states = all.map(|(_, state)| state);
    states.min_by(|a, b| a.seniority.cmp(&b.seniority))
}

/// The retry limit for a cluster's backend.
pub(crate) fn retries(
    reader: &mut Reader<'_>,
    policies: Policies,
    cluster: &ClusterKey,
) -> Option<RetryLimit> {
    let state = oldest(reader, policies, &backends::backend_of(cluster))?;
    state.settings.as_ref().ok()?.retries
}

/// Session persistence for requests to a Service's port or an XBackend.
pub(crate) fn session(
    reader: &mut Reader<'_>,
    policies: Policies,
    xbackends: XBackends,
    cluster: &ClusterKey,
) -> Option<Arc<Session>> {
    let protocol = cluster.policy.as_ref().and_then(|policy| policy.protocol);
    if !protocol.is_none_or(Protocol::is_http) {
        return None;
    }
    let backend = backends::backend_of(cluster);
    if backend.kind == Kind::XBackend && !xbackend::selects_pods(reader, xbackends, &backend) {
        return None;
    }
    let state = oldest(reader, policies, &backend)?;
    let persistence = state.settings.as_ref().ok()?.session.as_ref()?;
    let namespace = &cluster.namespace;
    let cookie = || match &cluster.backend {
        // Ports have different endpoints, so each needs its own cookie, which also differs from a rule's
        // (sesame-session-…).
        BackendName::ServicePort { service, port } => {
            format!("sesame-session.{namespace}.{service}.{port}")
        }
        BackendName::XBackend { name } | BackendName::ExtensionService { name } => {
            session::xbackend_cookie(namespace, name)
        }
        BackendName::Host(host) => format!("sesame-session.{namespace}.{host}"),
    };
    session::read(SESSION, persistence, cookie).ok()
}
