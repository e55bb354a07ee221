//! Decides which kinds can be watched, and in which version. Pure.
//!
//! In: installed CRDs and discovery results. Out: the [`Availability`] of each kind. Both inputs are needed: a CRD is
//! served only some time after it is installed or the server starts, and only uninstalling a CRD removes its objects.

use std::collections::{BTreeMap, BTreeSet};

use sesame_api::{Kind, Serving};

use super::path;

/// Number of identical consecutive results after which discovery is trusted even if CRDs are unknown or disagree.
const STABLE: u32 = 4;

/// Whether a kind can be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// Unknown or about to change. Nothing is reported.
    Unknown,
    /// Served in this version.
    Served(&'static str),
    /// Its CRD is not installed, or its API is not in this Kubernetes release.
    NotInstalled,
    /// Its CRD serves only these versions, which are not supported.
    OtherVersion(Vec<String>),
}

/// Installed and served kinds.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    /// Names of the installed CRDs; `None` if unknown.
    crds: Option<BTreeSet<String>>,
    /// Versions by resource name, which includes the group; `None` if unknown.
    served: Option<BTreeMap<String, Vec<String>>>,
    /// Number of identical consecutive discovery results.
    equal: u32,
    /// Whether a CRD has changed, so discovery may be outdated.
    touched: bool,
}

impl Catalog {
    pub(super) fn set_crds(&mut self, crds: Option<BTreeSet<String>>) {
        if self.crds != crds {
            self.equal = 0;
            self.crds = crds;
        }
    }

    /// Records that a CRD has changed.
    pub(super) fn touch(&mut self) {
        self.touched = true;
        self.equal = 0;
    }

    /// Stores a discovery result: versions by resource name, which includes the group.
    pub(super) fn set_served(&mut self, served: BTreeMap<String, Vec<String>>) {
        let served = Some(served);
        self.equal = match self.served == served {
            true => self.equal.saturating_add(1),
            false => 1,
        };
        self.served = served;
        self.touched &= self.equal < STABLE;
    }

    pub(super) fn availability(&self, kind: Kind) -> Availability {
        let Some(served) = &self.served else {
            return Availability::Unknown;
        };
        let stable = self.is_stable();
        let resource = path::full_resource(kind);
        let by_crd = kind.info().serving == Serving::WithCrd;
        let crds = self.crds.as_ref();
        let installed = crds.map(|crds| by_crd && crds.contains(&resource));
        let versions = served.get(&resource).map_or(&[][..], Vec::as_slice);
        let supported = kind
            .versions()
            .iter()
            .find(|supported| versions.iter().any(|version| version == *supported));
        match (supported, installed) {
            (Some(version), _) => Availability::Served(version),
            (None, Some(false)) => Availability::NotInstalled,
            (None, None) if versions.is_empty() && stable => Availability::NotInstalled,
            (None, _) if !versions.is_empty() || stable => {
                Availability::OtherVersion(versions.to_vec())
            }
            (None, _) => Availability::Unknown,
        }
    }

    /// Whether discovery has yielded the same result for a while.
    pub(super) fn is_stable(&self) -> bool {
        self.equal >= STABLE
    }

    /// Whether to repeat discovery soon because it disagrees with the installed CRDs.
    pub(super) fn settling(&self, kinds: &[Kind]) -> bool {
        let Some(served) = &self.served else {
            return true;
        };
        if self.is_stable() {
            return false;
        }
        match &self.crds {
            None => true,
            Some(_) if self.touched => true,
            Some(crds) => with_crd(kinds).any(|kind| {
                let resource = path::full_resource(*kind);
                crds.contains(&resource) != served.contains_key(&resource)
            }),
        }
    }
}

fn with_crd(kinds: &[Kind]) -> impl Iterator<Item = &Kind> {
    let kinds = kinds.iter();
    kinds.filter(|kind| kind.info().serving == Serving::WithCrd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(resources: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
        let owned = |versions: &[&str]| versions.iter().map(|v| (*v).to_owned()).collect();
        resources
            .iter()
            .map(|(resource, versions)| (full(resource), owned(versions)))
            .collect()
    }

    fn crds(resources: &[&str]) -> Option<BTreeSet<String>> {
        Some(resources.iter().map(|resource| full(resource)).collect())
    }

    fn full(resource: &str) -> String {
        format!("{resource}.gateway.networking.k8s.io")
    }

    #[test]
    fn the_preferred_served_version_is_watched() {
        let mut catalog = Catalog::default();
        assert_eq!(catalog.availability(Kind::TLSRoute), Availability::Unknown);
        catalog.set_served(served(&[
            ("tlsroutes", &["v1alpha2", "v1alpha3"]),
            ("gateways", &["v1beta1"]),
        ]));
        assert_eq!(
            catalog.availability(Kind::TLSRoute),
            Availability::Served("v1alpha3")
        );
        assert_eq!(
            catalog.availability(Kind::Gateway),
            Availability::Served("v1beta1")
        );
    }

    #[test]
    fn only_an_uninstalled_crd_removes_its_objects() {
        let mut catalog = Catalog::default();
        catalog.set_crds(crds(&["gateways"]));
        catalog.set_served(served(&[]));
        // Not served yet, or the server is restarting.
        assert_eq!(catalog.availability(Kind::Gateway), Availability::Unknown);
        assert_eq!(
            catalog.availability(Kind::TLSRoute),
            Availability::NotInstalled
        );
        assert!(catalog.settling(&[Kind::Gateway]));
        for _ in 1..STABLE {
            catalog.set_served(served(&[]));
        }
        assert_eq!(
            catalog.availability(Kind::Gateway),
            Availability::OtherVersion(Vec::new())
        );
        assert!(!catalog.settling(&[Kind::Gateway]));
        catalog.set_crds(crds(&[]));
        assert_eq!(
            catalog.availability(Kind::Gateway),
            Availability::NotInstalled
        );
    }

    #[test]
    fn an_unsupported_version_is_not_a_missing_crd() {
        let mut catalog = Catalog::default();
        catalog.set_crds(crds(&["grpcroutes"]));
        catalog.set_served(served(&[("grpcroutes", &["v1alpha2"])]));
        assert_eq!(
            catalog.availability(Kind::GRPCRoute),
            Availability::OtherVersion(vec!["v1alpha2".to_owned()])
        );
    }

    #[test]
    fn without_crds_discovery_is_trusted_once_it_is_stable() {
        let mut catalog = Catalog::default();
        for round in 1..=STABLE {
            catalog.set_served(served(&[("gateways", &["v1"])]));
            let expected = match round < STABLE {
                true => Availability::Unknown,
                false => Availability::NotInstalled,
            };
            assert_eq!(catalog.availability(Kind::TLSRoute), expected);
            assert_eq!(
                catalog.availability(Kind::Gateway),
                Availability::Served("v1")
            );
            assert_eq!(catalog.settling(&[Kind::TLSRoute]), round < STABLE);
        }
        catalog.set_served(served(&[]));
        assert_eq!(catalog.availability(Kind::Gateway), Availability::Unknown);
    }
}
