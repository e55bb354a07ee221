//! What an API server would refuse: bounds, patterns and the rules between fields.
//!
//! Comes in: a decoded object. Goes out: nothing, or the first problem with its path. The sources
//! are the CRDs of Gateway API v1.7.0 (patterns, bounds and CEL rules, of both channels where they
//! agree) and the API server's own rules for Kubernetes' kinds; each rule names its field. Values
//! of enumerations are not checked: the translator judges those it does not know.

mod core;
mod filter;
mod gateway;
mod http_route;
mod policy;
mod reference;
mod route;
mod text;

use std::collections::HashSet;
use std::hash::Hash;

use crate::decode::PathSegment;
use crate::kind::Kind;
use crate::object::Object;

pub use text::{is_header_name, is_hostname, is_precise_hostname};

/// The first thing that is wrong.
pub(crate) struct Problem {
    /// Where, from the innermost field outwards.
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

/// A problem with the value at hand.
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

/// Places a check's problem under a field.
fn at(field: &str, check: Check) -> Check {
    check.map_err(|mut problem| {
        problem.path.push(PathSegment::Field(field.to_owned()));
        problem
    })
}

/// Checks a field that may be missing.
fn optional<T>(field: &str, value: Option<&T>, check: impl FnOnce(&T) -> Check) -> Check {
    value.map_or(Ok(()), |value| at(field, check(value)))
}

/// Checks every element of a list that has at most `max`.
fn each<T>(field: &str, list: &[T], max: usize, check: impl Fn(&T) -> Check) -> Check {
    let all = || {
        if list.len() > max {
            return fail(format!(
                "at most {max} entries are allowed, these are {}",
                list.len()
            ));
        }
        list.iter()
            .enumerate()
            .try_for_each(|(index, element)| at_index(index, check(element)))
    };
    at(field, all())
}

/// As [`each`], for a list that must have an element.
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

/// Fails at the first element whose key an earlier one has; elements without a key may repeat.
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

/// Checks a whole object; its metadata has been checked before.
pub(crate) fn object(object: &Object) -> Check {
    match object {
        Object::GatewayClass(class) => at("spec", gateway::class(&class.spec)),
        Object::Gateway(gateway) => at("spec", gateway::gateway(&gateway.spec)),
        Object::ListenerSet(set) => at("spec", gateway::listener_set(&set.spec)),
        Object::HTTPRoute(route) => at("spec", http_route::http_route(&route.spec)),
        Object::GRPCRoute(route) => at("spec", route::grpc_route(&route.spec)),
        Object::TLSRoute(route) => at("spec", route::tls_route(&route.spec)),
        Object::TCPRoute(route) => at("spec", route::l4_route(&route.spec)),
        Object::UDPRoute(route) => at("spec", route::l4_route(&route.spec)),
        Object::ReferenceGrant(grant) => at("spec", policy::reference_grant(&grant.spec)),
        Object::BackendTLSPolicy(policy) => at("spec", policy::backend_tls(&policy.spec)),
        Object::Service(service) => core::service(service),
        Object::EndpointSlice(slice) => core::endpoint_slice(slice),
        Object::Namespace(_) | Object::Secret(_) | Object::ConfigMap(_) => Ok(()),
    }
}

/// `metadata.name`: RFC 1123; a Namespace and a Service are one DNS label.
pub(crate) fn object_name(kind: Kind, name: &str) -> Check {
    match kind {
        Kind::Namespace | Kind::Service => text::label(name),
        _ => text::subdomain(name),
    }
}

/// `metadata.namespace`: RFC 1123, one DNS label.
pub(crate) fn namespace(name: &str) -> Check {
    text::label(name)
}

#[cfg(test)]
mod tests;
