//! References, parents and backends.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kind_name::{Group, KindName};
use crate::reference::{
    BackendObjectReference, LocalObjectReference, ObjectReference, ParentGatewayReference,
    ParentReference, SecretObjectReference,
};

use super::{Check, at, at_index, ensure, fail, optional, text};

/// The fields that nearly all references have.
pub(super) fn object(
    group: &Group,
    kind: &KindName,
    name: &str,
    namespace: Option<&Arc<str>>,
) -> Check {
    at("group", text::group(group.as_str()))?;
    at("kind", text::kind(kind.as_str()))?;
    at("name", text::length(name, 1, 253))?;
    optional("namespace", namespace, |namespace| text::label(namespace))
}

pub(super) fn local(r: &LocalObjectReference) -> Check {
    object(&r.group, &r.kind, &r.name, None)
}

pub(super) fn any(r: &ObjectReference) -> Check {
    object(&r.group, &r.kind, &r.name, r.namespace.as_ref())
}

pub(super) fn secret(r: &SecretObjectReference) -> Check {
    object(&r.group, &r.kind, &r.name, r.namespace.as_ref())
}

pub(super) fn parent_gateway(r: &ParentGatewayReference) -> Check {
    object(&r.group, &r.kind, &r.name, r.namespace.as_ref())
}

pub(super) fn backend(r: &BackendObjectReference) -> Check {
    object(&r.group, &r.kind, &r.name, r.namespace.as_ref())?;
    backend_port(&r.group, &r.kind, r.port)
}

/// The port is required for a Service and not allowed for an XBackend.
pub(super) fn backend_port(group: &Group, kind: &KindName, port: Option<u16>) -> Check {
    optional("port", port.as_ref(), text::port)?;
    if *group == Group::Core && *kind == "Service" && port.is_none() {
        return at("port", fail("is required for a Service"));
    }
    if *group == Group::GatewayX && *kind == "XBackend" && port.is_some() {
        return at("port", fail("is not allowed for an XBackend"));
    }
    Ok(())
}

/// `parentRefs`: at most 32. References to the same parent must set the same fields (sectionName,
/// port) and differ in at least one.
pub(super) fn parents(list: &[ParentReference]) -> Check {
    super::each("parentRefs", list, 32, |r| {
        object(&r.group, &r.kind, &r.name, r.namespace.as_ref())?;
        optional("sectionName", r.section_name.as_ref(), |name| {
            text::subdomain(name)
        })?;
        optional("port", r.port.as_ref(), text::port)
    })?;
    for (index, r) in list.iter().enumerate() {
        let same_parent = |o: &&ParentReference| {
            o.group == r.group && o.kind == r.kind && o.name == r.name && o.namespace == r.namespace
        };
        for other in list[..index].iter().filter(same_parent) {
            let same_fields = other.section_name.is_some() == r.section_name.is_some()
                && other.port.is_some() == r.port.is_some();
            let differs = other.section_name != r.section_name || other.port != r.port;
            let check = ensure(
                same_fields && differs,
                "another entry refers to the same parent; each needs a different sectionName or port",
            );
            at("parentRefs", at_index(index, check))?;
        }
    }
    Ok(())
}

/// A map of options or annotations.
pub(super) fn annotations(field: &str, map: &BTreeMap<String, String>, max: usize) -> Check {
    keyed(field, map, max, |value| text::length(value, 0, 4096))
}

/// A map of labels.
pub(super) fn labels(field: &str, map: &BTreeMap<String, String>, max: usize) -> Check {
    keyed(field, map, max, text::label_value)
}

fn keyed(
    field: &str,
    map: &BTreeMap<String, String>,
    max: usize,
    value: impl Fn(&str) -> Check,
) -> Check {
    if map.len() > max {
        let message = format!("at most {max} entries are allowed, found {}", map.len());
        return at(field, fail(message));
    }
    let check =
        |(key, v): (&String, &String)| at(key, text::qualified_key(key).and_then(|()| value(v)));
    at(field, map.iter().try_for_each(check))
}
