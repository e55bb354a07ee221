//! Fixtures for this module's tests.

use std::collections::BTreeMap;

use sesame_model::{FleetParameters, FleetRequest, GatewayOwner, Port};

use super::spec::{FleetSpec, FleetsConfig};

pub(super) fn config() -> FleetsConfig {
    FleetsConfig {
        release: "1".to_owned(),
        ..FleetsConfig::new("sesame-system", "envoy:1", "sesame:1")
    }
}

/// A fleet with port 80 and no parameters.
pub(super) fn spec(name: &str) -> FleetSpec {
    FleetSpec {
        request: FleetRequest {
            owner: Some(GatewayOwner {
                name: name.into(),
                uid: format!("uid-of-{name}"),
                class: "sesame".into(),
            }),
            ports: [Port::tcp(80)].into(),
            ..FleetRequest::new()
        },
        parameters: FleetParameters::default(),
        bootstrap: "{}".into(),
        module: true,
        files: BTreeMap::new(),
    }
}
