//! GatewayClasses: which are ours, and what we promise for them.

use sesame_api::features::{CORE, EXPERIMENTAL, STANDARD};
use sesame_api::{
    GatewayClass, GatewayClassStatus, NamespacedName, SupportedFeature, condition, reason,
};
use sesame_engine::{Reader, Table};
use sesame_model::FleetParameters;

use super::parameters::{self, Chosen};
use super::problem::{Problem, bounded};
use super::unmanaged::Served;
use crate::settings::Mode;

/// The name under which Sesame is asked for.
pub const CONTROLLER_NAME: &str = "projectsesame.io/gateway-controller";

/// The features of the Gateway API that Sesame does not have, sorted. All others are promised: a name goes from here only when
/// the translator does all of it and a test through Envoy shows it.
const MISSING: &[&str] = &[
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "ClusterTrustBundle",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "GRPCRouteRequestHeaderModifier",
    "GatewayAddressRoutability",
    "GatewayAddressRoutabilityCluster",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayListenerFilters",
    "ListenerSet",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// Features that somebody else's Envoys can't have: where they are is not ours to choose.
const ADDRESSES: &[&str] = &["GatewayAddressEmpty", "GatewayStaticAddresses"];

/// What works only where Sesame makes the infrastructure.
const INFRASTRUCTURE: &str = "GatewayInfrastructure";

/// The release of the Gateway API that we are made for, as in the annotation of its CRDs.
const API_RELEASE: &str = "v1.7";

/// A GatewayClass of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassState {
    /// Why it may not be used.
    pub refused: Option<Problem>,
    /// What it chooses for the fleets of its Gateways; `None`: that can't be read.
    pub parameters: Option<FleetParameters>,
}

/// Reads a GatewayClass; `None` if it is somebody else's.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    chosen: Table<NamespacedName, Chosen>,
    served: &Served,
    class: &GatewayClass,
) -> Option<ClassState> {
    if &*class.spec.controller_name != CONTROLLER_NAME {
        return None;
    }
    let (parameters, wrong) = match parameters::of_class(reader, chosen, class) {
        Ok(parameters) => (Some(parameters), None),
        Err(problem) => (None, Some(problem)),
    };
    let elsewhere = served.refusal_of_class(reader, &class.meta.name);
    Some(ClassState {
        refused: elsewhere.or(wrong),
        parameters,
    })
}

/// What the class's owner is told. `api` is the release of the API that the cluster has, if there is one.
pub(crate) fn status(
    class: &GatewayClass,
    state: &ClassState,
    mode: &Mode,
    api: Option<&str>,
) -> GatewayClassStatus {
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
    let other = api.filter(|api| !is_release(api)).map(|api| {
        let message = format!(
            "made for Gateway API {API_RELEASE}, and the cluster has {api}: what both know works, the rest may not; install {API_RELEASE}"
        );
        Problem::new(reason::gateway_class::UNSUPPORTED_VERSION, bounded(message))
    });
    let version = Problem::or_true(
        other.as_ref(),
        condition::gateway_class::SUPPORTED_VERSION,
        (
            reason::gateway_class::SUPPORTED_VERSION,
            "made for Gateway API v1.7",
        ),
        generation,
    );
    GatewayClassStatus {
        conditions: vec![accepted, version],
        supported_features: features(mode)
            .into_iter()
            .map(|name| SupportedFeature { name: name.into() })
            .collect(),
    }
}

/// Whether a bundle's version is of the release that we are made for: `v1.7.1`, or a candidate of it.
fn is_release(version: &str) -> bool {
    let rest = version.strip_prefix(API_RELEASE);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
}

/// The features that work in a mode, sorted.
fn features(mode: &Mode) -> Vec<&'static str> {
    let works = |feature: &str| match mode {
        _ if MISSING.contains(&feature) => false,
        Mode::Local => feature != INFRASTRUCTURE,
        Mode::Managed => true,
        Mode::Unmanaged { .. } => feature != INFRASTRUCTURE && !ADDRESSES.contains(&feature),
    };
    let mut features = [CORE, STANDARD, EXPERIMENTAL].concat();
    features.retain(|feature| works(feature));
    features.sort_unstable();
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name with a slip in it would promise what is meant to be missing.
    #[test]
    fn exceptions_are_sorted_and_the_specs() {
        let known = [CORE, STANDARD, EXPERIMENTAL].concat();
        assert!(MISSING.is_sorted());
        for feature in [MISSING, ADDRESSES, &[INFRASTRUCTURE]].concat() {
            assert!(known.contains(&feature), "{feature}");
        }
        assert_eq!(features(&Mode::Managed).len() + MISSING.len(), known.len());
    }

    /// Who asks for such a thing must not be told that it works.
    #[test]
    fn what_a_mode_can_not_do_is_not_claimed() {
        let has = |mode: &Mode, feature: &str| features(mode).contains(&feature);
        let unmanaged = Mode::Unmanaged { gateway: None };
        assert!(has(&Mode::Managed, INFRASTRUCTURE));
        assert!(!has(&Mode::Local, INFRASTRUCTURE) && !has(&unmanaged, INFRASTRUCTURE));
        for feature in ADDRESSES {
            assert!(has(&Mode::Local, feature) && has(&Mode::Managed, feature));
            assert!(!has(&unmanaged, feature));
        }
        assert!(has(&unmanaged, "HTTPRoute"));
    }

    #[test]
    fn a_release_has_patches_and_candidates() {
        for ours in ["v1.7", "v1.7.0", "v1.7.12", "v1.7.0-rc.1"] {
            assert!(is_release(ours), "{ours}");
        }
        for other in [
            "v1.6.1",
            "v1.70.0",
            "v1.8.0-rc.1",
            "1.7.0",
            "v2.0.0",
            "",
            "main",
        ] {
            assert!(!is_release(other), "{other}");
        }
    }
}
