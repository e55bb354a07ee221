//! Changes to headers.

use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};
use sesame_model::HeaderChanges;

/// Changes in Envoy's shape: what is removed goes first, then the others in their order.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) add: Vec<HeaderValueOption>,
    pub(super) remove: Vec<String>,
}

/// Values are taken literally: Envoy's `%…%` substitution is switched off by doubling the sign. The Host and pseudo
/// headers are left out, since Envoy refuses a table that names them here: see [`host_set`].
pub(super) fn changes(changes: &HeaderChanges) -> Changes {
    let option = |name: &str, value: &str, action: HeaderAppendAction| HeaderValueOption {
        keep_empty_value: value.is_empty(),
        header: Some(HeaderValue {
            key: name.to_owned(),
            value: value.replace('%', "%%"),
            ..Default::default()
        }),
        append_action: action.into(),
        ..Default::default()
    };
    let set = changes
        .set
        .iter()
        .filter(|(name, _)| !is_reserved(name))
        .map(|(name, value)| option(name, value, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let add = changes
        .add
        .iter()
        .filter(|(name, _)| !is_reserved(name))
        .map(|(name, value)| option(name, value, HeaderAppendAction::AppendIfExistsOrAdd));
    Changes {
        add: set.chain(add).collect(),
        remove: changes
            .remove
            .iter()
            .filter(|name| !is_reserved(name))
            .cloned()
            .collect(),
    }
}

/// The Host that the changes set, if they do.
pub(super) fn host_set(changes: &HeaderChanges) -> Option<&str> {
    changes
        .set
        .iter()
        .find(|(name, value)| is_host(name) && !value.is_empty())
        .map(|(_, value)| value.as_str())
}

fn is_host(name: &str) -> bool {
    name.eq_ignore_ascii_case("host") || name.eq_ignore_ascii_case(":authority")
}

fn is_reserved(name: &str) -> bool {
    name.is_empty() || name.starts_with(':') || is_host(name)
}
