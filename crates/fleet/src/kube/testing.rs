//! What this room's tests begin with.

use std::collections::{BTreeMap, BTreeSet};

use sesame_api::NamespacedName;
use sesame_model::FleetParameters;

use super::spec::{Config, FleetSpec, Port};

pub(super) fn config() -> Config {
    Config::new("sesame-system", "envoy:1", "sesame:1")
}

/// A fleet with port 80, whose owner asks for nothing.
pub(super) fn spec(namespace: &str, name: &str) -> FleetSpec {
    FleetSpec {
        gateway: NamespacedName::new(namespace, name),
        gateway_uid: format!("uid-of-{name}"),
        gateway_class: "sesame".into(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        ports: BTreeSet::from([Port::tcp(80)]),
        addresses: Vec::new(),
        parameters: FleetParameters::default(),
        bootstrap: "{}".into(),
        module: true,
        files: BTreeMap::new(),
    }
}
