//! Conditions in statuses, and the condition types of every kind.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::meta::is_zero;
use crate::open_enum::open_enum;

// The status writer sets the transition time; `crate::reason` has the reasons.
/// A condition (meta/v1 Condition).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The condition type, such as `Accepted`; unique in its list.
    #[serde(rename = "type")]
    pub type_: Cow<'static, str>,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// The object's generation when the condition was set; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<i64>"))]
    pub observed_generation: i64,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", extend("format" = "date-time")))]
    pub last_transition_time: Option<Timestamp>,
    /// The reason, in CamelCase.
    #[serde(default)]
    pub reason: Cow<'static, str>,
    /// The reason as a sentence.
    #[serde(default)]
    pub message: Cow<'static, str>,
    /// Errors that prevent all or part of the object from taking effect. Only in Sesame's own kinds.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub errors: Box<[SubCondition]>,
    /// Warnings about parts that are in effect, but probably not as intended. Only in Sesame's own kinds.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub warnings: Box<[SubCondition]>,
}

/// An error or a warning in a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SubCondition {
    /// The affected part, such as `RouteError`; unique in its list.
    #[serde(rename = "type")]
    pub type_: Cow<'static, str>,
    /// Always `True`.
    pub status: ConditionStatus,
    /// The reason, in CamelCase.
    #[serde(default)]
    pub reason: Cow<'static, str>,
    /// The reason as a sentence, or several sentences separated by commas.
    #[serde(default)]
    pub message: Cow<'static, str>,
}

/// A status that consists of conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConditionsStatus {
    /// The conditions, with all errors and warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<Condition>,
}

impl ConditionsStatus {
    /// Whether every field is empty.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }
}

open_enum! {
    /// Whether a condition holds.
    pub enum ConditionStatus {
        /// The condition holds.
        True = "True",
        /// The condition does not hold.
        False = "False",
        /// Not decided yet.
        Unknown = "Unknown",
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        }
    }
}

impl Condition {
    /// A condition without a transition time.
    pub fn new(
        type_: &'static str,
        status: impl Into<ConditionStatus>,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
        observed_generation: i64,
    ) -> Self {
        Condition {
            type_: Cow::Borrowed(type_),
            status: status.into(),
            observed_generation,
            last_transition_time: None,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            errors: Box::default(),
            warnings: Box::default(),
        }
    }

    /// Whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

/// Condition types of a GatewayClass.
pub mod gateway_class {
    /// The controller accepts the class, and its parameters are valid.
    pub const ACCEPTED: &str = "Accepted";
    /// The installed CRDs have a supported version.
    pub const SUPPORTED_VERSION: &str = "SupportedVersion";
    /// All types.
    pub const ALL: [&str; 2] = [ACCEPTED, SUPPORTED_VERSION];
}

/// Condition types of a Gateway.
pub mod gateway {
    /// The Gateway is valid enough to produce some configuration.
    pub const ACCEPTED: &str = "Accepted";
    /// The data plane has the configuration, or will have it soon.
    pub const PROGRAMMED: &str = "Programmed";
    /// The Gateway's own references are resolved.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// Every requested address is assigned.
    pub const ADDRESSES_ASSIGNED: &str = "AddressesAssigned";
    /// At least one listener does not enforce client certificates.
    pub const INSECURE_FRONTEND_VALIDATION_MODE: &str = "InsecureFrontendValidationMode";
    /// The Gateway is a default Gateway (GEP-3793).
    pub const DEFAULT_GATEWAY: &str = "DefaultGateway";
    /// The Gateway has ListenerSets attached.
    pub const ATTACHED_LISTENER_SETS: &str = "AttachedListenerSets";
    /// All types.
    pub const ALL: [&str; 7] = [
        ACCEPTED,
        PROGRAMMED,
        RESOLVED_REFS,
        ADDRESSES_ASSIGNED,
        INSECURE_FRONTEND_VALIDATION_MODE,
        DEFAULT_GATEWAY,
        ATTACHED_LISTENER_SETS,
    ];
}

/// Condition types of a listener, in a Gateway or a ListenerSet.
pub mod listener {
    /// The listener is valid and served.
    pub const ACCEPTED: &str = "Accepted";
    /// The data plane has the listener, or will have it soon.
    pub const PROGRAMMED: &str = "Programmed";
    /// The listener's references are resolved.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// The listener conflicts with another listener.
    pub const CONFLICTED: &str = "Conflicted";
    /// The listener shares a hostname or certificate with another listener on its port.
    pub const OVERLAPPING_TLS_CONFIG: &str = "OverlappingTLSConfig";
    /// All types.
    pub const ALL: [&str; 5] = [
        ACCEPTED,
        PROGRAMMED,
        RESOLVED_REFS,
        CONFLICTED,
        OVERLAPPING_TLS_CONFIG,
    ];
}

/// Condition types of a ListenerSet.
pub mod listener_set {
    /// The Gateway accepts the set, and at least one of its listeners is valid.
    pub const ACCEPTED: &str = "Accepted";
    /// The data plane has the set's listeners, or will have them soon.
    pub const PROGRAMMED: &str = "Programmed";
    /// All types.
    pub const ALL: [&str; 2] = [ACCEPTED, PROGRAMMED];
}

/// Condition types of a route, one list per parent.
pub mod route {
    /// The parent accepts the route.
    pub const ACCEPTED: &str = "Accepted";
    /// The route's references are resolved.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// Some of the route's rules were dropped.
    pub const PARTIALLY_INVALID: &str = "PartiallyInvalid";
    /// All types.
    pub const ALL: [&str; 3] = [ACCEPTED, RESOLVED_REFS, PARTIALLY_INVALID];
}

/// Condition types of a policy, one list per ancestor.
pub mod policy {
    /// The policy is in force.
    pub const ACCEPTED: &str = "Accepted";
    /// The policy's references are resolved.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// All types.
    pub const ALL: [&str; 2] = [ACCEPTED, RESOLVED_REFS];
}

/// Condition types of a SesameConfiguration.
pub mod configuration {
    /// The spec is valid.
    pub const ACCEPTED: &str = "Accepted";
    /// The whole spec is in effect.
    pub const PROGRAMMED: &str = "Programmed";
    /// All Envoys that Sesame manages run its current release. Only on an instance's own configuration.
    pub const ENVOYS_UPGRADED: &str = "EnvoysUpgraded";
    /// The types that an instance writes.
    pub const ALL: [&str; 3] = [ACCEPTED, PROGRAMMED, ENVOYS_UPGRADED];
    /// The instance runs. Written by the operator.
    pub const AVAILABLE: &str = "Available";
}

/// Condition types of Sesame's own kinds.
pub mod own {
    /// The whole object is in effect.
    pub const VALID: &str = "Valid";
    /// All types.
    pub const ALL: [&str; 1] = [VALID];
}
