//! In which shard of a large route table a host is, and how an Envoy comes to know.
//!
//! In: a host. Out: the number of its shard, and what has an Envoy note it in the header [`HEADER`] of each request. It must
//! not know what is in a shard.
//!
//! An Envoy digests a route table as a whole at every change. A table in shards costs what one shard costs. Which number a
//! host has is told by [`sesame_shard`], and so it is in Envoys that have its module. Others compute the same with regular
//! expressions, which costs a request some ten microseconds.
//!
//! Only a host's own virtual host has to be in the right shard: wildcards are in all of them, so for any other host every
//! number is right.

use std::fmt::Write;

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{HeaderMutation, header_mutation};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::dynamic_modules::v3::DynamicModuleConfig;
use envoy_types::pb::envoy::extensions::http::early_header_mutation::dynamic_modules::v3::DynamicModuleEarlyHeaderMutation;
use envoy_types::pb::envoy::extensions::http::early_header_mutation::header_mutation::v3::HeaderMutation as EarlyHeaderMutation;
use envoy_types::pb::google::protobuf::StringValue;
use envoy_types::util::pack_any;
use sesame_model::RouteTableKey;
use sesame_shard::{BITS, Bit, is_of_hosts};

use crate::{names, wire};

pub(crate) use sesame_shard::SHARDS;

/// The header in which an Envoy notes for itself in which shard a request's host is. What a client sends by that name
/// doesn't count, and no backend gets to see it.
pub(crate) const HEADER: &str = "x-sesame-shard";

/// The extension by which the module is loaded.
pub(crate) const MODULE_EXTENSION: &str = "envoy.http.early_header_mutation.dynamic_modules";

/// By which means an Envoy finds the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Expressions, which any Envoy has.
    Expressions,
    /// The module that lies beside some.
    Module,
}

/// The shard of a host, below [`SHARDS`].
pub(crate) fn shard(host: &str) -> u32 {
    sesame_shard::number(host.as_bytes()).into()
}

/// Whether a domain is in every shard.
pub(crate) fn is_everywhere(domain: &str) -> bool {
    domain.starts_with('*')
}

/// Writes [`HEADER`] before anybody looks for a route: the name of the request's shard.
pub(crate) fn note(table: &RouteTableKey, means: Means) -> core::TypedExtensionConfig {
    match means {
        Means::Expressions => by_expressions(table),
        Means::Module => by_module(table),
    }
}

fn by_module(table: &RouteTableKey) -> core::TypedExtensionConfig {
    wire::extension(
        MODULE_EXTENSION,
        DynamicModuleEarlyHeaderMutation {
            dynamic_module_config: Some(DynamicModuleConfig {
                name: sesame_shard::MODULE_NAME.to_owned(),
                ..Default::default()
            }),
            early_header_mutation_name: "shard".to_owned(),
            early_header_mutation_config: Some(pack_any(StringValue {
                value: names::shard(table, ""),
            })),
        },
    )
}

fn by_expressions(table: &RouteTableKey) -> core::TypedExtensionConfig {
    let append = core::HeaderValueOption {
        header: Some(core::HeaderValue {
            key: HEADER.to_owned(),
            value: names::shard(table, expression()),
            ..Default::default()
        }),
        append_action: core::header_value_option::HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..Default::default()
    };
    wire::extension(
        "envoy.http.early_header_mutation.header_mutation",
        EarlyHeaderMutation {
            mutations: vec![HeaderMutation {
                action: Some(header_mutation::Action::Append(append)),
            }],
        },
    )
}

/// The number of a request's shard, by the Common Expression Language.
fn expression() -> String {
    let mut sum = String::new();
    for (place, bit) in BITS.iter().enumerate() {
        let plus = if place == 0 { "" } else { " + " };
        let (expression, value) = (parity(bit), 1_u32 << place);
        // Writing to a string can't fail.
        let _ = write!(
            sum,
            "{plus}(request.host.matches(r'{expression}') ? {value} : 0)"
        );
    }
    format!("%CEL({sum})%")
}

/// One bit of the number, as a regular expression that finds a match or none.
fn parity(bit: &Bit) -> String {
    let switch = class(|byte| bit.switch.contains(&byte));
    let count = class(|byte| bit.count.contains(&byte));
    let uncounted = class(|byte| !bit.switch.contains(&byte));
    let rest = class(|byte| !bit.switch.contains(&byte) && !bit.count.contains(&byte));
    let off = format!("{switch}{uncounted}*");
    let even = format!("{rest}|{off}{switch}");
    format!("^(?:{even}|{count}(?:{even})*{count})*(?:{off})?(?::|$)")
}

/// A class of those characters of hosts, in both cases, as ranges: what is not listed would make the expression large.
fn class(holds: impl Fn(u8) -> bool) -> String {
    let wanted = |byte: u8| {
        let lower = byte.to_ascii_lowercase();
        is_of_hosts(lower) && holds(lower)
    };
    let mut out = "[".to_owned();
    let push = |out: &mut String, byte: u8| {
        if byte == b'-' {
            out.push('\\');
        }
        out.push(char::from(byte));
    };
    let mut byte = 0_u8;
    while byte < 128 {
        if wanted(byte) {
            push(&mut out, byte);
            let first = byte;
            while wanted(byte + 1) {
                byte += 1;
            }
            if byte > first {
                out.push('-');
                push(&mut out, byte);
            }
        }
        byte += 1;
    }
    out.push(']');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    fn by_expressions(host: &str) -> u32 {
        let bits = BITS.iter().enumerate();
        bits.map(|(place, bit)| {
            let regex = Regex::new(&parity(bit)).unwrap();
            u32::from(regex.is_match(host)) << place
        })
        .sum()
    }

    proptest! {
        #[test]
        fn expressions_find_the_same_number(host in "[a-zA-Z0-9.:*_\\[\\]-]{0,40}") {
            prop_assert_eq!(by_expressions(&host), shard(&host));
        }
    }

    #[test]
    fn expressions_are_small_enough_for_envoys() {
        for bit in &BITS {
            let expression = parity(bit);
            assert!(
                expression.is_ascii() && expression.len() < 250,
                "{expression}"
            );
        }
        // What the value of a header may be there.
        assert!(expression().len() < 16_384);
    }
}
