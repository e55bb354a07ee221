//! Shards of large route tables.
//!
//! In: a host. Out: its shard number, and the extension with which Envoy writes it to the [`HEADER`] of each request.
//! It must not depend on the contents of a shard.
//!
//! Envoy rebuilds a whole route table on every change; with shards, it rebuilds only one of them. [`sesame_shard`]
//! computes a host's number, both here and in Envoys that have its module. Other Envoys compute it with regular
//! expressions, which adds about ten microseconds per request.
//!
//! Wildcards are in every shard, so the number matters only for hosts with their own virtual host. If they are large, a
//! table has fewer shards, each for several numbers.

use std::fmt::Write;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::dynamic_modules::v3::DynamicModuleConfig;
use envoy_types::pb::envoy::extensions::http::early_header_mutation::dynamic_modules::v3::DynamicModuleEarlyHeaderMutation;
use envoy_types::pb::google::protobuf::StringValue;
use envoy_types::util::pack_any;
use sesame_model::RouteTableKey;
use sesame_shard::{BITS, Bit, is_of_hosts};

use crate::{names, wire};

pub(crate) use sesame_shard::SHARDS;

/// The header that names a request's shard. Envoy overwrites any value from a client, and removes the header before
/// forwarding.
pub(crate) const HEADER: &str = "x-sesame-shard";

/// The extension that loads the module.
pub(crate) const MODULE_EXTENSION: &str = "envoy.http.early_header_mutation.dynamic_modules";

/// How an Envoy computes a request's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardLookup {
    /// With regular expressions, which all Envoys support.
    Expressions,
    /// With [`sesame_shard::MODULE`].
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

/// The extension that writes the name of a request's scope to [`HEADER`] before routing.
pub(crate) fn extension(
    table: &RouteTableKey,
    shards: u32,
    lookup: ShardLookup,
) -> core::TypedExtensionConfig {
    let name = |number: &str| names::shard(table, shards, number);
    match lookup {
        ShardLookup::Expressions => wire::early_header(HEADER, name(&expression())),
        ShardLookup::Module => by_module(name("")),
    }
}

fn by_module(prefix: String) -> core::TypedExtensionConfig {
    wire::extension(
        MODULE_EXTENSION,
        DynamicModuleEarlyHeaderMutation {
            dynamic_module_config: Some(DynamicModuleConfig {
                name: sesame_shard::MODULE_NAME.to_owned(),
                ..Default::default()
            }),
            early_header_mutation_name: "shard".to_owned(),
            early_header_mutation_config: Some(pack_any(StringValue { value: prefix })),
        },
    )
}

/// A request's shard number, as a CEL expression.
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

/// One bit of the number: a regular expression that matches if the bit is set.
fn parity(bit: &Bit) -> String {
    let counted = |byte| bit.counted.contains(&byte);
    let escapes = |byte| bit.escapes.contains(&byte);
    let counted_escaped = |byte| bit.counted_escaped.contains(&byte);
    let escape = class(escapes);
    let even = format!(
        "{}|{escape}{}",
        class(|byte| !counted(byte) && !escapes(byte)),
        class(|byte| !counted_escaped(byte))
    );
    let odd = format!("{}|{escape}{}", class(counted), class(counted_escaped));
    format!("^(?:{even}|(?:{odd})(?:{even})*(?:{odd}))*{escape}?(?::|$)")
}

/// A character class for the host characters that satisfy `holds`: ranges, in upper and lower case. A negated class
/// would make the expression large.
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
        fn expressions_compute_the_same_number(host in "[a-zA-Z0-9.:*_\\[\\]-]{0,40}") {
            prop_assert_eq!(by_expressions(&host), shard(&host));
        }
    }

    #[test]
    fn names_of_shards_contain_the_version() {
        let key = crate::testing::table_key();
        assert_eq!(names::shard(&key, SHARDS, 17), "8080#3.17");
        assert_eq!(names::shard(&key, 16, 1), "8080#3-16.1");
    }

    /// The number of ranges in the character classes, which RE2 compiles to an instruction each. It adds the upper case
    /// itself.
    fn ranges(expression: &str) -> usize {
        let classes = expression.split('[').skip(1);
        let classes = classes.filter_map(|rest| Some(rest.split_once(']')?.0.replace("\\-", "_")));
        let ranges = classes.map(|class| {
            let starts = class.split('-').enumerate();
            // After a dash, the first character ends a range.
            let starts = starts.flat_map(|(index, part)| part.chars().skip(index.min(1)));
            starts.filter(|start| !start.is_ascii_uppercase()).count()
        });
        ranges.sum()
    }

    #[test]
    fn expressions_fit_envoys_limits() {
        /// RE2 compiles expressions with this many ranges to about 90 instructions. Envoy allows 100.
        const RANGES: usize = 83;
        for bit in &BITS {
            let expression = parity(bit);
            let ranges = ranges(&expression);
            assert!(ranges <= RANGES, "{ranges} ranges in {expression}");
        }
        // Envoy's limit on a header value in this extension.
        assert!(expression().len() < 16_384);
    }
}
