//! XBackendTrafficPolicy: limits on retries (GEP-3388) and session persistence (GEP-1619) of backends.

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::duration::Duration;
use crate::meta::Meta;
use crate::object::resource;
use crate::policy_status::PolicyStatus;
use crate::reference::LocalObjectReference;
use crate::session::SessionPersistence;

/// An XBackendTrafficPolicy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct XBackendTrafficPolicy {
    /// The metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// The spec.
    pub spec: BackendTrafficPolicySpec,
    /// The status, by ancestor.
    #[serde(default, skip_serializing_if = "PolicyStatus::is_empty")]
    pub status: PolicyStatus,
}

resource! { XBackendTrafficPolicy {
    fn check(&self) -> Check {
        check::at("spec", check::policy::backend_traffic(&self.spec))
    }
} }

/// The spec of an XBackendTrafficPolicy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTrafficPolicySpec {
    /// The target backends, 1 to 16.
    pub target_refs: Vec<LocalObjectReference>,
    /// The limit on retries; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_constraint: Option<RetryConstraint>,
    /// Session persistence, for routes without their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<SessionPersistence>,
}

/// A limit on retries to a backend: the larger of `budget` and `min_retry_rate`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetryConstraint {
    /// The share of requests that may be retries.
    pub budget: RetryBudget,
    /// The rate of retries that is always permitted.
    pub min_retry_rate: RequestRate,
}

/// A share of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryBudget {
    /// The share in percent, 0 to 100; 20 by default.
    pub percent: u32,
    /// How long a request counts toward the budget, 1 second to 1 hour; 10 seconds by default.
    pub interval: Duration,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self {
            percent: 20,
            interval: Duration::parse("10s").expect("the text is a duration"),
        }
    }
}

/// A number of requests per interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestRate {
    /// The number, 1 to 1,000,000; 10 by default.
    pub count: u32,
    /// The interval, up to 1 hour and not zero; 1 second by default.
    pub interval: Duration,
}

impl Default for RequestRate {
    fn default() -> Self {
        Self {
            count: 10,
            interval: Duration::parse("1s").expect("the text is a duration"),
        }
    }
}
