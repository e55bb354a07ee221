//! An Envoy's identity and capabilities.
//!
//! In: bootstrap options, or the node that an Envoy sends. Out: the node for the bootstrap, or whether the Envoy can
//! load the module.

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::r#type::v3::SemanticVersion;
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind};

use super::BootstrapOptions;
use crate::shard::MODULE_EXTENSION;

/// Metadata key for the name of the module installed with the Envoy.
const MODULE: &str = "sesame.module";

pub(super) fn node(options: &BootstrapOptions) -> core::Node {
    let name = Value {
        kind: Some(Kind::StringValue(sesame_shard::MODULE_NAME.to_owned())),
    };
    core::Node {
        id: options.node_id.clone(),
        cluster: options.fleet.to_string(),
        metadata: options.module.then(|| Struct {
            fields: [(MODULE.to_owned(), name)].into(),
        }),
        ..Default::default()
    }
}

/// Whether an Envoy can load [`sesame_shard::MODULE`]: its metadata names the module, it has the version that the
/// module is built for, and it has the dynamic modules extension.
pub fn has_module(node: &core::Node) -> bool {
    use core::node::UserAgentVersionType::UserAgentBuildVersion;
    let fields = node.metadata.as_ref().map(|metadata| &metadata.fields);
    let named = fields.and_then(|fields| fields.get(MODULE)?.kind.as_ref());
    let version = match &node.user_agent_version_type {
        Some(UserAgentBuildVersion(build)) => build.version.as_ref(),
        _ => None,
    };
    let extends = |extension: &core::Extension| extension.name == MODULE_EXTENSION;
    matches!(named, Some(Kind::StringValue(name)) if name == sesame_shard::MODULE_NAME)
        && version.is_some_and(|version| of(version) == sesame_shard::MODULE_ENVOY)
        && node.extensions.iter().any(extends)
}

fn of(version: &SemanticVersion) -> (u32, u32) {
    (version.major_number, version.minor_number)
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;

    use super::*;
    use crate::bootstrap::{Admin, MAX_CONNECTIONS, XdsAddress};

    /// The node sent by an Envoy with that version.
    fn sent_node(module: bool, minor: u32, extension: &str) -> core::Node {
        let options = BootstrapOptions {
            fleet: sesame_model::FleetId::of_gateway("ns", "gw"),
            node_id: "pod-1".to_owned(),
            xds: XdsAddress::Unix("/run/xds.sock".into()),
            admin: Admin::None,
            readiness: None,
            max_connections: MAX_CONNECTIONS,
            heap_limit: None,
            module,
        };
        let version = SemanticVersion {
            major_number: 1,
            minor_number: minor,
            patch: 7,
        };
        core::Node {
            extensions: vec![core::Extension {
                name: extension.to_owned(),
                ..Default::default()
            }],
            user_agent_version_type: Some(UserAgentVersionType::UserAgentBuildVersion(
                core::BuildVersion {
                    version: Some(version),
                    ..Default::default()
                },
            )),
            ..node(&options)
        }
    }

    #[test]
    fn an_envoy_has_the_module_only_if_it_can_load_it() {
        assert!(has_module(&sent_node(true, 40, MODULE_EXTENSION)));
        assert!(!has_module(&sent_node(false, 40, MODULE_EXTENSION)));
        assert!(!has_module(&sent_node(true, 41, MODULE_EXTENSION)));
        assert!(!has_module(&sent_node(true, 40, "another")));
        assert!(!has_module(&core::Node::default()));
    }

    #[test]
    fn a_module_that_computes_other_numbers_does_not_count() {
        let mut sent = sent_node(true, 40, MODULE_EXTENSION);
        let fields = &mut sent.metadata.as_mut().unwrap().fields;
        let name = fields.get_mut(MODULE).unwrap();
        name.kind = Some(Kind::StringValue("sesame_shard_1".to_owned()));
        assert!(!has_module(&sent));
    }
}
