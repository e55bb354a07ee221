//! One filter chain for many HTTPS listeners, whose certificates Envoy requests on demand.
//!
//! In: a [`Listener`]. Out: the chains that one chain can replace, the shared chain's transport socket, and a matcher
//! that selects a connection's chain. It must not depend on the contents of certificates.
//!
//! Envoy compares all chains of a listener whenever one is added, about 0.25 ms each. Chains for exact server names
//! that differ only in their certificate can be merged: on the first handshake with a server name, Envoy requests the
//! secret with that name, so adding a name doesn't change a listener. The price is that TLS sessions can't be resumed.
//!
//! **Clients choose the names that Envoy requests.** The chain accepts only connections whose server name consists of
//! hostname characters: other secrets' names contain a slash or a colon, and a name that isn't valid UTF-8 would end
//! the xDS stream.

use std::collections::HashSet;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::ServerNameInput;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::cert_mappers::sni::v3::Sni;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::cert_selectors::on_demand_secret::v3 as selector;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::google::protobuf::StringValue;
use envoy_types::pb::xds;
use envoy_types::util::pack_any;
use sesame_model::{CertificateKey, Chain, ChainTarget, Listener, RouteTableKey, TlsMode};
use tls::downstream_tls_context::SessionTicketKeysType;
use xds::r#type::matcher::v3 as pb;
use xds::r#type::matcher::v3::matcher::matcher_list::FieldMatcher;
use xds::r#type::matcher::v3::matcher::matcher_list::predicate::{
    MatchType, SinglePredicate, single_predicate,
};
use xds::r#type::matcher::v3::matcher::{self, MatcherType, matcher_list};
use xds::r#type::matcher::v3::string_matcher::MatchPattern;

use crate::wire::{self, xds_extension};

/// The name of the shared chain. Other chains are named after their server name, which can't contain a space.
pub(crate) const CHAIN: &str = "on demand";

/// The chains of a listener, some of which can be merged.
pub(crate) struct Shared<'a> {
    /// The server names of the chains that can be merged, sorted, with their certificates.
    pub(crate) certificates: Vec<(&'a str, &'a CertificateKey)>,
    /// The route table that the merged chains serve.
    pub(crate) table: &'a RouteTableKey,
    /// The other chains.
    pub(crate) others: Vec<&'a Chain>,
}

/// Maximum number of other chains on the port. Each connection's server name is compared with all of them.
const MAX_OTHERS: usize = 64;

/// Finds the chains that one chain can replace. They serve HTTP for an exact server name that isn't covered by the
/// port's wildcards, with one certificate and the default TLS versions, and don't request a client certificate. `None`
/// if there are no such chains, if one of the port's chains handles any server name, or if too many chains differ.
pub(crate) fn shared(listener: &Listener) -> Option<Shared<'_>> {
    let wildcards = listener.chains.iter().filter_map(Chain::server_name);
    let wildcards: HashSet<&str> = wildcards
        .filter_map(|name| name.strip_prefix("*."))
        .collect();
    let (mut certificates, mut others) = (Vec::new(), Vec::new());
    let mut served = None;
    for chain in &listener.chains {
        chain.server_name()?;
        match shareable(chain, &wildcards) {
            Some((name, certificate, table)) if *served.get_or_insert(table) == table => {
                certificates.push((name, certificate));
            }
            _ if others.len() == MAX_OTHERS => return None,
            _ => others.push(chain),
        }
    }
    Some(Shared {
        certificates,
        table: served?,
        others,
    })
}

fn shareable<'a>(
    chain: &'a Chain,
    wildcards: &HashSet<&str>,
) -> Option<(&'a str, &'a CertificateKey, &'a RouteTableKey)> {
    let ChainTarget::Http(table) = &chain.target else {
        return None;
    };
    let tls = chain.tls.as_ref()?;
    let name = tls.server_name.as_deref()?;
    let TlsMode::Terminate(termination) = &tls.mode else {
        return None;
    };
    let [certificate] = &termination.certificates[..] else {
        return None;
    };
    if termination.clients.is_some() || termination.versions.is_some() {
        return None;
    }
    let mut parents = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
    let covered = name.starts_with("*.")
        || (!wildcards.is_empty() && parents.any(|parent| wildcards.contains(parent)));
    (!covered).then_some((name, certificate, table))
}

/// The TLS settings of the shared chain.
pub(crate) fn context(
    alpn: &[&str],
    parameters: Option<tls::TlsParameters>,
) -> tls::DownstreamTlsContext {
    let selector = selector::Config {
        config_source: Some(core::ConfigSource {
            // Envoy's default of 15 s, after which a handshake fails.
            initial_fetch_timeout: None,
            ..wire::ads()
        }),
        certificate_mapper: Some(wire::extension(
            "envoy.tls.certificate_mappers.sni",
            Sni {
                // Required, but connections without a server name don't reach this chain. Not a hostname, so no secret
                // has this name.
                default_value: "-".to_owned(),
            },
        )),
        ..Default::default()
    };
    tls::DownstreamTlsContext {
        common_tls_context: Some(tls::CommonTlsContext {
            tls_params: parameters,
            alpn_protocols: alpn.iter().map(|&protocol| protocol.to_owned()).collect(),
            custom_tls_certificate_selector: Some(wire::extension(
                "envoy.tls.certificate_selectors.on_demand_secret",
                selector,
            )),
            ..Default::default()
        }),
        // Envoy requires both, since session IDs don't depend on the requested certificate.
        session_ticket_keys_type: Some(SessionTicketKeysType::DisableStatelessSessionResumption(
            true,
        )),
        disable_stateful_session_resumption: true,
        ..Default::default()
    }
}

/// Selects a connection's chain: one of `others` by its server name, otherwise the shared chain.
pub(crate) fn matcher<'a>(others: impl Iterator<Item = &'a str>) -> pb::Matcher {
    let mut others: Vec<&str> = others.collect();
    // Exact names before wildcards, and long wildcards before short ones.
    others.sort_by_key(|name| (name.starts_with('*'), std::cmp::Reverse(name.len()), *name));
    let others = others.iter().map(|&name| {
        let pattern = match name.strip_prefix('*') {
            Some(suffix) => MatchPattern::Suffix(suffix.to_owned()),
            None => MatchPattern::Exact(name.to_owned()),
        };
        field_matcher(pattern, name)
    });
    let hostname = MatchPattern::SafeRegex(pb::RegexMatcher {
        regex: "[a-z0-9.-]{1,253}".to_owned(),
        engine_type: Some(pb::regex_matcher::EngineType::GoogleRe2(
            pb::regex_matcher::GoogleRe2 {},
        )),
    });
    let matchers = others.chain([field_matcher(hostname, CHAIN)]);
    pb::Matcher {
        on_no_match: None,
        matcher_type: Some(MatcherType::MatcherList(matcher::MatcherList {
            matchers: matchers.collect(),
        })),
    }
}

fn field_matcher(server_name: MatchPattern, chain: &str) -> FieldMatcher {
    let chain = StringValue {
        value: chain.to_owned(),
    };
    let predicate = SinglePredicate {
        input: Some(xds_extension("server name", pack_any(ServerNameInput {}))),
        matcher: Some(single_predicate::Matcher::ValueMatch(pb::StringMatcher {
            match_pattern: Some(server_name),
            ..Default::default()
        })),
    };
    FieldMatcher {
        predicate: Some(matcher_list::Predicate {
            match_type: Some(MatchType::SinglePredicate(predicate)),
        }),
        on_match: Some(matcher::OnMatch {
            on_match: Some(matcher::on_match::OnMatch::Action(xds_extension(
                "chain",
                pack_any(chain),
            ))),
            ..Default::default()
        }),
    }
}
