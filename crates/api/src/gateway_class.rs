//! GatewayClass: a class of Gateways that a controller offers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::condition::Condition;
use crate::meta::Meta;
use crate::named::Named;
use crate::object::resource;
use crate::reference::ObjectReference;

/// A GatewayClass; cluster-scoped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GatewayClass {
    /// The metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// The spec.
    pub spec: GatewayClassSpec,
    /// The status.
    #[serde(default, skip_serializing_if = "GatewayClassStatus::is_empty")]
    pub status: GatewayClassStatus,
}

resource! { GatewayClass {
    fn check(&self) -> Check {
        check::at("spec", check::gateway::class(&self.spec))
    }

    fn references(&self, named: &mut Named) {
        named.by_class(self);
    }
} }

/// The spec of a GatewayClass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassSpec {
    /// The controller's name, as `domain/path`.
    pub controller_name: Arc<str>,
    /// The object with the class's parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<ObjectReference>,
    /// A description for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The status of a GatewayClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassStatus {
    /// The conditions; see [`crate::condition::gateway_class`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The supported features, sorted by name; see [`crate::features`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supported_features: Vec<SupportedFeature>,
}

impl GatewayClassStatus {
    /// Whether every field is empty.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.supported_features.is_empty()
    }
}

/// A feature in a GatewayClass's status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "SupportedFeatureRepr")]
pub struct SupportedFeature {
    /// The feature's name.
    pub name: Arc<str>,
}

/// Early API releases used the bare name; such objects may still be stored.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a feature with a name")]
enum SupportedFeatureRepr {
    Named { name: Arc<str> },
    Bare(Arc<str>),
}

impl From<SupportedFeatureRepr> for SupportedFeature {
    fn from(repr: SupportedFeatureRepr) -> Self {
        match repr {
            SupportedFeatureRepr::Named { name } | SupportedFeatureRepr::Bare(name) => {
                SupportedFeature { name }
            }
        }
    }
}
