//! GatewayClasses: which are ours, and the features they support.

use sesame_api::features::{CORE, EXPERIMENTAL, STANDARD};
use std::sync::Arc;

use sesame_api::{
    GatewayClass, GatewayClassStatus, Kind, ObjectKey, Release, SupportedFeature, condition, reason,
};
use sesame_engine::Reader;

use super::unmanaged::Served;
use crate::configuration::FleetSettings;
use crate::configuration::references::{self, Parameters};
use crate::problem::{Problem, bounded};
use crate::settings::{Mode, Settings};

/// The key of a GatewayClass.
pub(crate) fn key(name: &Arc<str>) -> ObjectKey {
    ObjectKey::new(Kind::GatewayClass, "", Arc::clone(name))
}

/// Features that unmanaged Envoys lack: Sesame doesn't assign their addresses.
const ADDRESSES: &[&str] = &["GatewayAddressEmpty", "GatewayStaticAddresses"];

/// Address features whose fields exist only in the experimental channel.
const ROUTABILITY: &[&str] = &[
    "GatewayAddressRoutability",
    "GatewayAddressRoutabilityCluster",
];

/// The experimental feature that requires ClusterTrustBundles.
const CLUSTER_TRUST_BUNDLE: &str = "ClusterTrustBundle";

/// The feature whose fields exist only in the experimental channel.
const LISTENER_FILTERS: &str = "GatewayListenerFilters";

/// The feature that requires fleets created by Sesame.
const INFRASTRUCTURE: &str = "GatewayInfrastructure";

/// The Gateway API release that Sesame supports, as annotated on its CRDs.
const API_RELEASE: &str = "v1.7";

/// One of our GatewayClasses.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassState {
    /// Why it isn't accepted.
    pub refused: Option<Problem>,
    /// The settings for its Gateways' fleets; `None` if they are invalid.
    pub parameters: Option<FleetSettings>,
}

/// Reads a GatewayClass; `None` if it belongs to another controller.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    chosen: Parameters,
    settings: &Settings,
    served: Served,
    class: &GatewayClass,
) -> Option<ClassState> {
    if !settings.controls(class) {
        return None;
    }
    let (parameters, wrong) = match references::of_class(reader, chosen, class) {
        Ok(parameters) => (Some(parameters), None),
        Err(problem) => (None, Some(problem)),
    };
    let elsewhere = served.refusal_of_class(reader, &settings.mode, &class.meta.name);
    Some(ClassState {
        refused: elsewhere.or(wrong),
        parameters,
    })
}

/// The capabilities of the API server.
#[derive(Clone, Copy)]
pub(crate) struct Api<'a> {
    /// The release of the Gateway API, if known.
    pub(crate) release: Option<&'a Release>,
    /// Whether it serves ClusterTrustBundles.
    pub(crate) trust_bundles: bool,
}

/// The status of a class.
pub(crate) fn status(
    class: &GatewayClass,
    state: &ClassState,
    mode: &Mode,
    api: Api<'_>,
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
    let other = api.release;
    let other = other.filter(|release| !is_supported(&release.version));
    let other = other.map(|release| {
        let message = format!(
            "the cluster has Gateway API {}, but Sesame supports {API_RELEASE}; features that differ between \
             them may not work; install the {API_RELEASE} CRDs",
            release.version
        );
        Problem::new(reason::gateway_class::UNSUPPORTED_VERSION, bounded(message))
    });
    let version = Problem::or_true(
        other.as_ref(),
        condition::gateway_class::SUPPORTED_VERSION,
        (
            reason::gateway_class::SUPPORTED_VERSION,
            "Sesame supports Gateway API v1.7",
        ),
        generation,
    );
    GatewayClassStatus {
        conditions: vec![accepted, version],
        supported_features: features(mode, api)
            .into_iter()
            .map(|name| SupportedFeature { name: name.into() })
            .collect(),
    }
}

/// Whether a bundle version belongs to the supported release: `v1.7.1`, or a release candidate.
fn is_supported(version: &str) -> bool {
    let rest = version.strip_prefix(API_RELEASE);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
}

/// Whether addresses have a routability: only in managed mode, and if the installed CRDs have the field.
pub(crate) fn has_routability(mode: &Mode, release: Option<&Release>) -> bool {
    *mode == Mode::Managed && is_experimental(release)
}

fn is_experimental(release: Option<&Release>) -> bool {
    release.is_some_and(|release| release.experimental)
}

/// The features that are supported in a mode with this API server, sorted.
fn features(mode: &Mode, api: Api<'_>) -> Vec<&'static str> {
    let works = |feature: &str| match mode {
        _ if ROUTABILITY.contains(&feature) => has_routability(mode, api.release),
        _ if feature == CLUSTER_TRUST_BUNDLE => {
            *mode == Mode::Local || is_experimental(api.release) && api.trust_bundles
        }
        _ if feature == LISTENER_FILTERS => *mode == Mode::Local || is_experimental(api.release),
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

    const STANDARD_API: Api<'_> = Api {
        release: None,
        trust_bundles: true,
    };

    #[test]
    fn all_features_of_the_spec_are_supported() {
        let known = [CORE, STANDARD, EXPERIMENTAL].concat();
        for feature in [
            ADDRESSES,
            ROUTABILITY,
            &[CLUSTER_TRUST_BUNDLE, LISTENER_FILTERS, INFRASTRUCTURE],
        ]
        .concat()
        {
            assert!(known.contains(&feature), "{feature}");
        }
        let experimental = Release {
            version: "v1.7.0".to_owned(),
            experimental: true,
        };
        let api = Api {
            release: Some(&experimental),
            trust_bundles: true,
        };
        let all = features(&Mode::Managed, api);
        assert_eq!(all.len(), known.len());
    }

    #[test]
    fn each_mode_claims_only_supported_features() {
        let has = |mode: &Mode, feature: &str| features(mode, STANDARD_API).contains(&feature);
        let unmanaged = Mode::Unmanaged { gateway: None };
        assert!(has(&Mode::Managed, INFRASTRUCTURE));
        assert!(!has(&Mode::Local, INFRASTRUCTURE) && !has(&unmanaged, INFRASTRUCTURE));
        for feature in ADDRESSES {
            assert!(has(&Mode::Local, feature) && has(&Mode::Managed, feature));
            assert!(!has(&unmanaged, feature));
        }
        for feature in ROUTABILITY {
            assert!(!has(&Mode::Managed, feature) && !has(&Mode::Local, feature));
        }
        for feature in [CLUSTER_TRUST_BUNDLE, LISTENER_FILTERS] {
            assert!(has(&Mode::Local, feature) && !has(&Mode::Managed, feature));
        }
        assert!(has(&unmanaged, "HTTPRoute"));
    }

    #[test]
    fn patch_releases_and_candidates_belong_to_a_release() {
        for ours in ["v1.7", "v1.7.0", "v1.7.12", "v1.7.0-rc.1"] {
            assert!(is_supported(ours), "{ours}");
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
            assert!(!is_supported(other), "{other}");
        }
    }
}
