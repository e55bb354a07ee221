//! Verification of JSON Web Tokens.
//!
//! Envoy's JWT filter lists all providers in the listener, and routes refer to them. To add providers without changing
//! a listener, a composite filter contains the JWT filters and is configured per host, and a route selects a provider
//! with a filter that sets the provider's name. Remote JWKS are cached until Envoy gets another version of the route
//! table.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::filters::common::set_filter_state::v3::FilterStateValue;
use envoy_types::pb::envoy::extensions::filters::http::composite::v3 as composite;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3 as pb;
use envoy_types::pb::envoy::extensions::filters::http::set_filter_state::v3 as state;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use pb::jwt_provider::JwksSourceSpecifier;
use pb::jwt_requirement::RequiresType;
use sesame_model::{JwtKeys, JwtProvider};

use super::auth;
use crate::{names, wire};

/// The filter state key for the provider's name.
const PROVIDER: &str = "sesame.jwt";

/// Configuration of [`JWT`](crate::hcm::JWT) for a host.
pub(super) fn of_host<'a>(providers: impl Iterator<Item = &'a JwtProvider>) -> Any {
    // One filter for each provider: a filter with several providers would have maps, which are encoded in random order.
    // Only the required provider's filter may wait for a response; the composite filter skips the filters after it.
    let filters =
        providers.map(|provider| wire::extension("envoy.filters.http.jwt_authn", filter(provider)));
    auth::execute(Some(composite::ExecuteFilterAction {
        filter_chain: Some(composite::FilterChainConfiguration {
            typed_config: filters.collect(),
        }),
        ..Default::default()
    }))
}

/// Configuration of [`JWT_PROVIDER`](crate::hcm::JWT_PROVIDER) for a route that requires tokens from a provider.
pub(super) fn of_route(provider: &str) -> Any {
    let value = FilterStateValue {
        factory_key: "envoy.string".to_owned(),
        ..wire::filter_state(PROVIDER, provider.replace('%', "%%"))
    };
    pack_any(state::Config {
        on_request_headers: vec![value],
        ..Default::default()
    })
}

/// Configuration of [`JWT_PROVIDER`](crate::hcm::JWT_PROVIDER) for a host.
pub(super) fn of_no_route() -> Any {
    pack_any(state::Config::default())
}

fn filter(provider: &JwtProvider) -> pb::JwtAuthentication {
    let name = provider.name.to_string();
    let requirement = pb::JwtRequirement {
        requires_type: Some(RequiresType::ProviderName(name.clone())),
    };
    pb::JwtAuthentication {
        providers: HashMap::from([(name.clone(), self::provider(provider))]),
        filter_state_rules: Some(pb::FilterStateRule {
            name: PROVIDER.to_owned(),
            requires: HashMap::from([(name, requirement)]),
        }),
        ..Default::default()
    }
}

fn provider(provider: &JwtProvider) -> pb::JwtProvider {
    let audiences = provider.audiences.iter().map(ToString::to_string);
    pb::JwtProvider {
        issuer: provider.issuer.as_deref().unwrap_or_default().to_owned(),
        audiences: audiences.collect(),
        forward: provider.forward,
        jwks_source_specifier: Some(match &provider.keys {
            JwtKeys::Inline(keys) => JwksSourceSpecifier::LocalJwks(core::DataSource {
                specifier: Some(core::data_source::Specifier::InlineString(keys.to_string())),
                ..Default::default()
            }),
            JwtKeys::Remote(remote) => JwksSourceSpecifier::RemoteJwks(pb::RemoteJwks {
                http_uri: Some(core::HttpUri {
                    uri: remote.uri.to_string(),
                    timeout: Some(wire::duration(remote.timeout)),
                    http_upstream_type: Some(core::http_uri::HttpUpstreamType::Cluster(
                        names::cluster(&remote.cluster),
                    )),
                }),
                cache_duration: Some(wire::duration(remote.cache)),
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}
