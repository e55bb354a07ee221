//! GatewayClasses: which are ours, and what we promise for them.

use sesame_api::{
    Condition, GatewayClass, GatewayClassStatus, SupportedFeature, condition, reason,
};

use super::problem::Problem;

/// The name under which Sesame is asked for.
pub const CONTROLLER_NAME: &str = "projectsesame.io/gateway-controller";

/// The features of Gateway API v1.7 that work, by the names of its conformance suite. Sorted.
///
/// A name stands here only if the translator does all of it and a test through Envoy shows it.
const FEATURES: &[&str] = &[
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "GatewayRouteHostnameIntersectionPrecedence",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetryCodes",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ReferenceGrant",
];

/// A GatewayClass of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassState {
    /// Why it may not be used.
    pub refused: Option<Problem>,
}

/// Reads a GatewayClass; `None` if it is somebody else's.
pub(crate) fn read(class: &GatewayClass) -> Option<ClassState> {
    if &*class.spec.controller_name != CONTROLLER_NAME {
        return None;
    }
    let refused = class.spec.parameters_ref.as_ref().map(|parameters| {
        Problem::new(
            reason::gateway_class::INVALID_PARAMETERS,
            format!(
                "spec.parametersRef: no kind of parameters is supported, and {} {} is one; remove it",
                parameters.kind, parameters.name
            ),
        )
    });
    Some(ClassState { refused })
}

/// What the class's owner is told.
pub(crate) fn status(class: &GatewayClass, state: &ClassState) -> GatewayClassStatus {
    let generation = class.meta.generation;
    let accepted = Problem::or_true(
        state.refused.as_ref(),
        condition::gateway_class::ACCEPTED,
        (
            reason::gateway_class::ACCEPTED,
            "Sesame serves the Gateways of this class",
        ),
        generation,
    );
    let version = Condition::new(
        condition::gateway_class::SUPPORTED_VERSION,
        true,
        reason::gateway_class::SUPPORTED_VERSION,
        "made for Gateway API v1.7",
        generation,
    );
    GatewayClassStatus {
        conditions: vec![accepted, version],
        supported_features: FEATURES
            .iter()
            .map(|&name| SupportedFeature { name: name.into() })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::FEATURES;

    #[test]
    fn features_are_sorted_and_the_specs() {
        assert!(FEATURES.is_sorted());
        let known = [
            sesame_api::features::CORE,
            sesame_api::features::STANDARD,
            sesame_api::features::EXPERIMENTAL,
        ]
        .concat();
        for feature in FEATURES {
            assert!(known.contains(feature), "{feature}");
        }
    }
}
