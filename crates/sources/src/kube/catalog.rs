//! Which kinds of the Gateway API there are, and in which version they are read.
//!
//! In: the CRDs that a watch shows, and what discovery says is served. Out: for each kind whether it can be watched. Pure.
//! Both are needed: a CRD is there before it is served, and a server that has just started serves what it will have in a moment; only
//! a CRD that is gone takes its objects along.

use std::collections::{BTreeMap, BTreeSet};

use sesame_api::Kind;

use super::path;

/// After so many looks in a row that agree, discovery alone is believed, or a CRD that is there but not served is told of.
const LOOKS: u32 = 4;

/// Whether a kind can be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// Not known, or about to change: what was read before counts, and nothing is told.
    Unknown,
    /// In this version.
    Served(&'static str),
    /// Its CRD is not installed.
    NotInstalled,
    /// Its CRD serves these versions alone.
    OtherVersion(Vec<String>),
}

/// What is known of the kinds.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    /// The CRDs there are; `None`: not known, or not to be known.
    crds: Option<BTreeSet<String>>,
    /// Versions by resource; `None`: not known.
    served: Option<BTreeMap<String, Vec<String>>>,
    /// So many looks in a row found the same.
    looks: u32,
    /// Something happened that discovery may not know yet.
    touched: bool,
}

impl Catalog {
    /// The CRDs there are.
    pub(super) fn set_crds(&mut self, crds: Option<BTreeSet<String>>) {
        if self.crds != crds {
            self.looks = 0;
            self.crds = crds;
        }
    }

    /// Something happened to a CRD.
    pub(super) fn touch(&mut self) {
        self.touched = true;
        self.looks = 0;
    }

    /// What discovery says: versions by resource.
    pub(super) fn set_served(&mut self, served: BTreeMap<String, Vec<String>>) {
        let served = Some(served);
        self.looks = match self.served == served {
            true => self.looks.saturating_add(1),
            false => 1,
        };
        self.served = served;
        self.touched &= self.looks < LOOKS;
    }

    /// Whether a kind of the Gateway API can be watched.
    pub(super) fn availability(&self, kind: Kind) -> Availability {
        let Some(served) = &self.served else {
            return Availability::Unknown;
        };
        let certain = self.looks >= LOOKS;
        let installed = self
            .crds
            .as_ref()
            .map(|crds| crds.contains(&path::full_resource(kind)));
        let versions = served.get(kind.plural()).map_or(&[][..], Vec::as_slice);
        let ours = kind
            .versions()
            .iter()
            .find(|ours| versions.iter().any(|version| version == *ours));
        match (ours, installed) {
            (Some(version), _) => Availability::Served(version),
            (None, Some(false)) => Availability::NotInstalled,
            (None, None) if versions.is_empty() && certain => Availability::NotInstalled,
            (None, _) if !versions.is_empty() || certain => {
                Availability::OtherVersion(versions.to_vec())
            }
            (None, _) => Availability::Unknown,
        }
    }

    /// Whether to look again soon: what CRDs and discovery say does not fit together yet.
    pub(super) fn settling(&self, kinds: &[Kind]) -> bool {
        let Some(served) = &self.served else {
            return true;
        };
        if self.looks >= LOOKS {
            return false;
        }
        match &self.crds {
            None => true,
            Some(_) if self.touched => true,
            Some(crds) => kinds.iter().any(|kind| {
                crds.contains(&path::full_resource(*kind)) != served.contains_key(kind.plural())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(resources: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
        let owned = |versions: &[&str]| versions.iter().map(|v| (*v).to_owned()).collect();
        resources
            .iter()
            .map(|(resource, versions)| ((*resource).to_owned(), owned(versions)))
            .collect()
    }

    fn crds(resources: &[&str]) -> Option<BTreeSet<String>> {
        let full = |resource: &&str| format!("{resource}.gateway.networking.k8s.io");
        Some(resources.iter().map(full).collect())
    }

    #[test]
    fn the_best_version_that_is_served_is_read() {
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
    fn only_a_crd_that_is_gone_takes_its_objects_along() {
        let mut catalog = Catalog::default();
        catalog.set_crds(crds(&["gateways"]));
        catalog.set_served(served(&[]));
        // Not served yet, or not any more for a moment.
        assert_eq!(catalog.availability(Kind::Gateway), Availability::Unknown);
        assert_eq!(
            catalog.availability(Kind::TLSRoute),
            Availability::NotInstalled
        );
        assert!(catalog.settling(&[Kind::Gateway]));
        for _ in 1..LOOKS {
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
    fn another_version_is_not_a_missing_crd() {
        let mut catalog = Catalog::default();
        catalog.set_crds(crds(&["grpcroutes"]));
        catalog.set_served(served(&[("grpcroutes", &["v1alpha2"])]));
        assert_eq!(
            catalog.availability(Kind::GRPCRoute),
            Availability::OtherVersion(vec!["v1alpha2".to_owned()])
        );
    }

    #[test]
    fn without_a_watch_of_crds_discovery_is_believed_after_some_looks() {
        let mut catalog = Catalog::default();
        for look in 1..=LOOKS {
            catalog.set_served(served(&[("gateways", &["v1"])]));
            let expected = match look < LOOKS {
                true => Availability::Unknown,
                false => Availability::NotInstalled,
            };
            assert_eq!(catalog.availability(Kind::TLSRoute), expected);
            assert_eq!(
                catalog.availability(Kind::Gateway),
                Availability::Served("v1")
            );
            assert_eq!(catalog.settling(&[Kind::TLSRoute]), look < LOOKS);
        }
        catalog.set_served(served(&[]));
        assert_eq!(catalog.availability(Kind::Gateway), Availability::Unknown);
    }
}
