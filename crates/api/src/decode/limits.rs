//! Limits on the HTTPProxies and Ingresses that an API server has admitted: the size of their specs, since translation keeps
//! several copies of their texts, and the lengths of lists of Contour's HTTPProxies, whose CRD has no bounds.
//!
//! An object that exceeds a limit is decoded without its routes. Its hosts remain, so that wider hosts don't serve their
//! requests.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{DecodeError, error, invalid};
use crate::check;
use crate::kind::{Kind, Object};

/// The maximum size of a spec, in bytes of JSON.
const MAX_SPEC: usize = 256 * 1024;

/// Decodes an object without its routes if it exceeds a limit.
pub(super) fn decode(kind: Kind, mut value: Value) -> Result<Object, DecodeError> {
    let exceeded = match check_size(kind, &value) {
        Err(error) => error,
        Ok(()) if kind == Kind::ContourHTTPProxy => {
            let object = Object::of_kind(kind, value.clone())?;
            match lists(&object) {
                Err(error) => error,
                Ok(()) => return Ok(object),
            }
        }
        Ok(()) => return Object::of_kind(kind, value),
    };
    remove_routes(&mut value);
    check_size(kind, &value)?;
    let mut object = Object::of_kind(kind, value)?;
    match &mut object {
        Object::HTTPProxy(proxy) | Object::ContourHTTPProxy(proxy) => {
            proxy.spec.exceeded = Some(Arc::new(exceeded));
        }
        Object::Ingress(ingress) => ingress.spec.exceeded = Some(Arc::new(exceeded)),
        _ => {}
    }
    Ok(object)
}

/// Checks the size of a spec.
pub(super) fn check_size(kind: Kind, value: &Value) -> Result<(), DecodeError> {
    if kind != Kind::Ingress && !kind.is_http_proxy() {
        return Ok(());
    }
    let size = value.get("spec").map_or(0, size);
    match size > MAX_SPEC {
        true => {
            let message = format!(
                "takes {} KiB; the limit is {} KiB; divide the object into several",
                size.div_ceil(1024),
                MAX_SPEC / 1024
            );
            Err(error(None, &["spec"], &message))
        }
        false => Ok(()),
    }
}

fn lists(object: &Object) -> Result<(), DecodeError> {
    match object {
        Object::ContourHTTPProxy(proxy) => {
            check::http_proxy::lists(&proxy.spec).map_err(|problem| invalid(&["spec"], problem))
        }
        _ => Ok(()),
    }
}

/// Removes everything except the class, the hosts and their TLS settings. A default backend remains, without a Service.
fn remove_routes(value: &mut Value) {
    let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    retain(
        spec,
        &[
            "ingressClassName",
            "virtualhost",
            "tls",
            "rules",
            "defaultBackend",
        ],
    );
    if let Some(Value::Object(host)) = spec.get_mut("virtualhost") {
        retain(host, &["fqdn", "tls"]);
    }
    if let Some(Value::Array(rules)) = spec.get_mut("rules") {
        let rules = rules.iter_mut().filter_map(Value::as_object_mut);
        rules.for_each(|rule| retain(rule, &["host"]));
    }
    if let Some(backend) = spec.get_mut("defaultBackend") {
        *backend = json!({});
    }
}

fn retain(map: &mut Map<String, Value>, fields: &[&str]) {
    map.retain(|field, _| fields.contains(&field.as_str()));
}

/// The approximate length of a value as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Object(map) => {
            let entries = map.iter();
            let entries = entries.map(|(key, value)| key.len() + size(value) + 4);
            entries.sum::<usize>() + 2
        }
        Value::Array(list) => list.iter().map(|value| size(value) + 1).sum::<usize>() + 2,
        Value::String(text) => text.len() + 2,
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
    }
}
