//! Validation of objects from files: bounds, patterns and cross-field rules.
//!
//! In: a decoded object. Out: nothing, or the first problem and its path. The rules come from the
//! Gateway API v1.7.0 CRDs (patterns, bounds and CEL rules that both channels share), from the CRDs of
//! Sesame's own kinds, and from the API server's validation of built-in kinds. Enum values of the Gateway API
//! are not checked; translation reports unknown ones. Objects from an API server are not validated again.

pub(crate) mod configuration;
mod core;
pub(crate) mod extension_service;
mod filter;
pub(crate) mod gateway;
pub(crate) mod http_proxy;
pub(crate) mod http_route;
pub(crate) mod ingress;
mod instance;
mod listeners;
pub(crate) mod log_format;
pub(crate) mod policy;
mod publishing;
mod reference;
mod replica;
pub(crate) mod route;
mod text;
pub(crate) mod tls_certificate_delegation;
pub(crate) mod xbackend;

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use crate::decode::PathSegment;
use crate::kind::Kind;

pub(crate) use core::{endpoint_slice, service};
pub(crate) use text::is_label;
pub use text::{is_header_name, is_hostname, is_precise_hostname};

/// The first problem found in an object.
pub(crate) struct Problem {
    /// The path, innermost field first.
    path: Vec<PathSegment>,
    /// What is wrong and what is expected.
    message: String,
}

pub(crate) type Check = Result<(), Problem>;

impl Problem {
    /// The path from the object's root, and the message.
    pub(crate) fn into_parts(self) -> (Vec<PathSegment>, String) {
        (self.path.into_iter().rev().collect(), self.message)
    }
}

/// A problem with the checked value itself.
fn fail(message: impl Into<String>) -> Check {
    Err(Problem {
        path: Vec::new(),
        message: message.into(),
    })
}

/// Fails unless the condition holds.
fn ensure(holds: bool, message: &str) -> Check {
    if holds { Ok(()) } else { fail(message) }
}

/// Fails unless an optional field is missing or has a well-known value. Only for Sesame's own kinds and built-in kinds:
/// the Gateway API may add values, which translation reports.
fn known<T: fmt::Display>(field: &str, value: Option<&T>, words: &[&str]) -> Check {
    optional(field, value, |value| known_word(&value.to_string(), words))
}

/// Fails unless the text is one of the words.
fn known_word(text: &str, words: &[&str]) -> Check {
    ensure(
        words.contains(&text),
        &format!("expected one of {}", words.join(", ")),
    )
}

/// Prepends a field to the path of a check's problem.
pub(crate) fn at(field: &str, check: Check) -> Check {
    check.map_err(|mut problem| {
        problem.path.push(PathSegment::Field(field.to_owned()));
        problem
    })
}

/// Checks an optional field.
fn optional<T: ?Sized>(field: &str, value: Option<&T>, check: impl FnOnce(&T) -> Check) -> Check {
    value.map_or(Ok(()), |value| at(field, check(value)))
}

/// Checks every element of a list, and that there are at most `max`.
fn each<T>(field: &str, list: &[T], max: usize, check: impl Fn(&T) -> Check) -> Check {
    let all = || {
        if list.len() > max {
            return fail(format!(
                "at most {max} entries are allowed, found {}",
                list.len()
            ));
        }
        list.iter()
            .enumerate()
            .try_for_each(|(index, element)| at_index(index, check(element)))
    };
    at(field, all())
}

/// Like [`each`], for a list that must not be empty.
fn each_of_some<T>(field: &str, list: &[T], max: usize, check: impl Fn(&T) -> Check) -> Check {
    at(
        field,
        ensure(!list.is_empty(), "at least one entry is required"),
    )?;
    each(field, list, max, check)
}

fn at_index(index: usize, check: Check) -> Check {
    check.map_err(|mut problem| {
        problem.path.push(PathSegment::Index(index));
        problem
    })
}

/// Fails at the first element with a duplicate key; elements without a key may repeat.
fn unique<'a, T, K: Eq + Hash>(
    field: &str,
    list: &'a [T],
    message: &str,
    key: impl Fn(&'a T) -> Option<K>,
) -> Check {
    let mut seen = HashSet::with_capacity(list.len());
    let repeated = list
        .iter()
        .map(key)
        .position(|key| key.is_some_and(|key| !seen.insert(key)));
    repeated.map_or(Ok(()), |index| at(field, at_index(index, fail(message))))
}

/// `metadata.name`: an RFC 1123 subdomain; for a Namespace or Service, a single label; for a ClusterTrustBundle,
/// subdomains separated by colons.
pub(crate) fn object_name(kind: Kind, name: &str) -> Check {
    match kind {
        Kind::Namespace | Kind::Service => text::label(name),
        Kind::ClusterTrustBundle => text::subdomain(&name.replace(':', ".")),
        _ => text::subdomain(name),
    }
}

/// `metadata.namespace`: an RFC 1123 label.
pub(crate) fn namespace(name: &str) -> Check {
    text::label(name)
}

#[cfg(test)]
mod tests;
