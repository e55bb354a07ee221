//! Configuration of HTTP filters for a route or a host.

use serde_json::Value;

use super::{Constants, Fields};
use crate::yaml::Node;

/// The filters that are enabled only on hosts with checks.
const OF_CHECKED_HOSTS: [&str; 6] = [
    "auth.route",
    "cookies.changes",
    "envoy.filters.http.cors",
    "envoy.filters.http.stateful_session",
    "jwt.provider",
    "rate.global",
];

/// A route's filters by name.
pub(super) fn of_route(filters: Value, constants: &mut Constants) -> Vec<(String, Node)> {
    let filters = Fields::of(filters).0.into_iter();
    filters
        .map(|(name, config)| {
            let short = name.strip_prefix("envoy.filters.http.").unwrap_or(&name);
            (short.to_owned(), filter(config, constants))
        })
        .collect()
}

/// A host's filters by name.
pub(super) fn of_host(filters: Value, constants: &mut Constants) -> Vec<(String, Node)> {
    let mut fields = Fields::of(filters);
    let enabled = fields.take_all(&OF_CHECKED_HOSTS);
    let mut out = of_route(Value::Object(fields.0), constants);
    if !constants.is("filters of checked hosts", &enabled) {
        out.extend(of_route(enabled, constants));
    }
    out
}

/// A filter, or the list of filters that it runs.
fn filter(mut config: Value, constants: &mut Constants) -> Node {
    let chain = "/matcher/on_no_match/action/typed_config/filter_chain/typed_config";
    match config.pointer_mut(chain).map(Value::take) {
        Some(Value::Array(chain)) => {
            let runs = "filter that runs others";
            if !constants.is(runs, &config) {
                return Node::from(config);
            }
            Node::List(chain.into_iter().map(|each| run(each, constants)).collect())
        }
        _ => {
            untyped(&mut config);
            Node::from(config)
        }
    }
}

fn run(filter: Value, constants: &mut Constants) -> Node {
    let mut fields = Fields::of(filter);
    let name = fields.text("name");
    let mut out = Vec::new();
    if let Some(config) = fields.take("typed_config") {
        let mut config = Fields::of(config);
        if name == "envoy.filters.http.ext_authz" {
            for (constant, names) in [
                (
                    "changes by services",
                    &["decoder_header_mutation_rules"][..],
                ),
                (
                    "check",
                    &[
                        "disallowed_headers",
                        "status_on_error",
                        "transport_api_version",
                        "validate_mutations",
                    ],
                ),
            ] {
                let fields = config.take_all(names);
                if !constants.is(constant, &fields) {
                    Fields::of(fields).rest(&mut out);
                }
            }
        }
        config.rest(&mut out);
    }
    fields.rest(&mut out);
    let short = name.rsplit('.').next().unwrap_or(&name);
    Node::Map(vec![(short.to_owned(), Node::Map(out))])
}

/// Removes message types that field names make redundant.
fn untyped(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("@type");
            fields.values_mut().for_each(untyped);
        }
        Value::Array(items) => items.iter_mut().for_each(untyped),
        _ => {}
    }
}
