//! Changes to cookies that backends set.
//!
//! A response has a header for each cookie, and among Envoy's filters, only those that run code can change one of
//! several headers with the same name. So a script changes the cookies. It is always the same and contains nothing from
//! objects; each target's changes are in the filter state. Each configuration with a script costs a Lua interpreter in
//! each of Envoy's threads, so the script is set on route tables or shards, and only if one of their hosts needs it.

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::filters::common::set_filter_state::v3::FilterStateValue;
use envoy_types::pb::envoy::extensions::filters::http::lua::v3 as pb;
use envoy_types::pb::envoy::extensions::filters::http::set_filter_state::v3 as state;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use pb::lua_per_route::Override;
use sesame_model::{Action, CookieChange, VirtualHost};

use crate::wire;

/// The script, which reads [`CHANGES`].
const SCRIPT: &str = include_str!("cookies.lua");

/// The filter state key for the changes.
const CHANGES: &str = "sesame.cookies";

/// Whether a host changes cookies.
pub(crate) fn changes_cookies(host: &VirtualHost) -> bool {
    host.routes.iter().any(|route| match &route.action {
        Action::Forward(forward) => {
            let options = forward.options.as_deref();
            options.is_some_and(|options| !options.cookies.is_empty())
        }
        Action::Redirect(_) | Action::Respond(_) | Action::RespondWith(_) => false,
    })
}

/// Configuration of [`COOKIES`](crate::hcm::COOKIES) for a table.
pub(super) fn script() -> Any {
    let script = core::DataSource {
        specifier: Some(core::data_source::Specifier::InlineString(
            SCRIPT.to_owned(),
        )),
        ..Default::default()
    };
    pack_any(pb::LuaPerRoute {
        r#override: Some(Override::SourceCode(script)),
        ..Default::default()
    })
}

/// Configuration of [`COOKIE_CHANGES`](crate::hcm::COOKIE_CHANGES) for a target.
pub(super) fn of_target(changes: &[CookieChange]) -> Any {
    let lines: Vec<String> = changes.iter().map(line).collect();
    let value = FilterStateValue {
        factory_key: "envoy.string".to_owned(),
        ..wire::filter_state(CHANGES, lines.join("\n").replace('%', "%%"))
    };
    pack_any(state::Config {
        on_request_headers: vec![value],
        ..Default::default()
    })
}

/// Configuration of [`COOKIE_CHANGES`](crate::hcm::COOKIE_CHANGES) for a host.
pub(super) fn of_no_target() -> Any {
    pack_any(state::Config::default())
}

/// `name;+Path=/;-Secure`.
fn line(change: &CookieChange) -> String {
    let mut line = change.name.to_string();
    let values = [
        ("Path", change.path.as_deref()),
        ("Domain", change.domain.as_deref()),
        ("SameSite", change.same_site),
    ];
    for (name, value) in values {
        if let Some(value) = value {
            line.push_str(&format!(";+{name}={value}"));
        }
    }
    match change.secure {
        Some(true) => line.push_str(";+Secure"),
        Some(false) => line.push_str(";-Secure"),
        None => {}
    }
    line
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use sesame_model::{ForwardOptions, RouteTable, VirtualHostKey};

    use crate::route::{route_table, virtual_host};
    use crate::testing::*;

    use super::*;

    /// A table whose only host has these changes.
    fn table(cookies: Box<[Arc<[CookieChange]>]>) -> Value {
        let mut forward = forward(vec![target("a", 1), target("b", 1), target("c", 0)]);
        forward.options = Some(Box::new(ForwardOptions {
            cookies,
            ..Default::default()
        }));
        let route = route(prefix("/"), Action::Forward(Arc::new(forward)));
        let host = VirtualHost {
            routes: vec![Arc::new(route)],
            ..VirtualHost::default()
        };
        let key = VirtualHostKey {
            table: table_key(),
            domain: "example.com".into(),
        };
        let table = RouteTable {
            reserved: Vec::new(),
            secure: false,
        };
        let hosts = [virtual_host(&key, &host, &mut |port| port)];
        let scripted = changes_cookies(&host);
        crate::to_json(&route_table(&key.table, &table, hosts, scripted)).expect("JSON")
    }

    #[test]
    fn tables_have_the_script_and_targets_their_changes() {
        let other = CookieChange {
            name: "id".into(),
            path: None,
            domain: Some("example.com".into()),
            secure: Some(true),
            same_site: None,
        };
        let table = table(Box::new([
            Arc::new([cookie_change(), other]),
            Arc::new([]),
            Arc::new([cookie_change()]),
        ]));
        let script = &table["typed_per_filter_config"]["cookies"]["source_code"]["inline_string"];
        assert_eq!(*script, SCRIPT);
        let clusters =
            &table["virtual_hosts"][0]["routes"][0]["route"]["weighted_clusters"]["clusters"];
        let value =
            &clusters[0]["typed_per_filter_config"]["cookies.changes"]["on_request_headers"];
        assert_eq!(
            *value,
            json!([{
                "object_key": "sesame.cookies",
                "factory_key": "envoy.string",
                "format_string": {"text_format_source": {
                    "inline_string": "session;+Path=/a%%b;+SameSite=Lax;-Secure\nid;+Domain=example.com;+Secure",
                }},
            }])
        );
        assert_eq!(clusters[1], json!({"name": "ns/b:80", "weight": 1}));
    }

    #[test]
    fn tables_without_changes_have_no_script() {
        assert_eq!(
            table(Box::default())["typed_per_filter_config"],
            Value::Null
        );
        assert!(SCRIPT.contains(&format!("get(\"{CHANGES}\")")));
    }
}
