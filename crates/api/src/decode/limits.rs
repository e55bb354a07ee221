//! Limits on HTTPProxies and Ingresses: the size of their specs, since translation keeps several copies of their texts, and
//! the lengths of lists of Contour's HTTPProxies, whose CRD has no bounds.
//!
//! An object that an API server has admitted although it exceeds a limit is decoded without the actions of its routes. If
//! that isn't enough, its hosts remain, so that wider hosts don't serve their requests. An object from a file is refused.

use std::sync::Arc;

use serde_json::Value;

use super::{DecodeError, error, invalid};
use crate::check;
use crate::http_proxy::{HttpProxyRoute, HttpProxySpec, HttpProxyVirtualHost};
use crate::ingress::{IngressBackend, IngressSpec};
use crate::kind::{Kind, Object};

/// The maximum size of a spec, in bytes of JSON.
const MAX_SPEC: usize = 256 * 1024;

/// Decodes an object, without some of its parts if it exceeds a limit.
pub(super) fn decode(kind: Kind, value: Value) -> Result<Object, DecodeError> {
    let size = check_size(kind, &value);
    let mut object = Object::of_kind(kind, value)?;
    let Err(exceeded) = size.and_then(|()| check_lists(&object)) else {
        return Ok(object);
    };
    let exceeded = Arc::new(exceeded);
    for hosts_only in [false, true] {
        let spec = match &mut object {
            Object::HTTPProxy(proxy) | Object::ContourHTTPProxy(proxy) => {
                reduce_proxy(&mut proxy.spec, hosts_only);
                proxy.spec.exceeded = Some(Arc::clone(&exceeded));
                serde_json::to_value(&proxy.spec)
            }
            Object::Ingress(ingress) => {
                reduce_ingress(&mut ingress.spec, hosts_only);
                ingress.spec.exceeded = Some(Arc::clone(&exceeded));
                serde_json::to_value(&ingress.spec)
            }
            _ => break,
        };
        let spec = spec.expect("specs are JSON");
        if size_of(&spec) <= MAX_SPEC && check_lists(&object).is_ok() {
            return Ok(object);
        }
    }
    Err(DecodeError::clone(&exceeded))
}

fn reduce_proxy(spec: &mut HttpProxySpec, hosts_only: bool) {
    if hosts_only {
        let host = spec.virtual_host.take().map(|host| {
            Box::new(HttpProxyVirtualHost {
                fqdn: host.fqdn,
                tls: host.tls,
                ..HttpProxyVirtualHost::default()
            })
        });
        *spec = HttpProxySpec {
            virtual_host: host,
            ingress_class_name: spec.ingress_class_name.take(),
            ..HttpProxySpec::default()
        };
    }
    for route in &mut spec.routes {
        *route = HttpProxyRoute {
            conditions: std::mem::take(&mut route.conditions),
            ..HttpProxyRoute::default()
        };
    }
}

fn reduce_ingress(spec: &mut IngressSpec, hosts_only: bool) {
    if hosts_only {
        let backend = &mut spec.default_backend;
        *backend = backend.take().map(|_| IngressBackend::default());
    }
    for rule in &mut spec.rules {
        if hosts_only {
            rule.http = None;
        }
        for path in rule.http.iter_mut().flat_map(|http| &mut http.paths) {
            path.backend = IngressBackend::default();
        }
    }
}

/// Checks the size of a spec.
pub(super) fn check_size(kind: Kind, value: &Value) -> Result<(), DecodeError> {
    if kind != Kind::Ingress && !kind.is_http_proxy() {
        return Ok(());
    }
    let size = value.get("spec").map_or(0, size_of);
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

fn check_lists(object: &Object) -> Result<(), DecodeError> {
    match object {
        Object::ContourHTTPProxy(proxy) => {
            check::http_proxy::lists(&proxy.spec).map_err(|problem| invalid(&["spec"], problem))
        }
        _ => Ok(()),
    }
}

/// The approximate length of a value as JSON.
fn size_of(value: &Value) -> usize {
    match value {
        Value::Object(map) => {
            let entries = map.iter();
            let entries = entries.map(|(key, value)| key.len() + size_of(value) + 4);
            entries.sum::<usize>() + 2
        }
        Value::Array(list) => list.iter().map(|value| size_of(value) + 1).sum::<usize>() + 2,
        Value::String(text) => text.len() + 2,
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
    }
}
