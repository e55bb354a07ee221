//! Ingresses and IngressClasses, as the API server validates them.

use crate::ingress::{
    IngressBackend, IngressClassSpec, IngressPath, IngressPathType, IngressRule, IngressSpec,
};

use super::{Check, at, each, each_of_some, ensure, known, optional, text};

pub(crate) fn spec(spec: &IngressSpec) -> Check {
    ensure(
        spec.default_backend.is_some() || !spec.rules.is_empty(),
        "at least one of defaultBackend and rules is required",
    )?;
    optional(
        "ingressClassName",
        spec.ingress_class_name.as_deref(),
        text::subdomain,
    )?;
    optional("defaultBackend", spec.default_backend.as_ref(), backend)?;
    each("tls", &spec.tls, usize::MAX, |tls| {
        each("hosts", &tls.hosts, usize::MAX, |host| text::hostname(host))
    })?;
    each("rules", &spec.rules, usize::MAX, rule)
}

fn rule(rule: &IngressRule) -> Check {
    let host = rule.host.as_deref().filter(|host| !host.is_empty());
    optional("host", host, text::hostname)?;
    optional("http", rule.http.as_ref(), |http| {
        each_of_some("paths", &http.paths, usize::MAX, path)
    })
}

fn path(path: &IngressPath) -> Check {
    known("pathType", Some(&path.path_type), IngressPathType::KNOWN)?;
    let text = path.path.as_deref().unwrap_or_default();
    let absolute = text.starts_with('/');
    let valid = match path.path_type {
        IngressPathType::Exact | IngressPathType::Prefix => {
            let parts = ["//", "/./", "/../", "%2f", "%2F"];
            absolute
                && !parts.iter().any(|part| text.contains(part))
                && !text.ends_with("/.")
                && !text.ends_with("/..")
        }
        _ => absolute || text.is_empty(),
    };
    at(
        "path",
        ensure(
            valid,
            "expected an absolute path; with pathType Exact or Prefix, without //, /./, /../ and %2F",
        ),
    )?;
    at("backend", backend(&path.backend))
}

fn backend(backend: &IngressBackend) -> Check {
    ensure(
        backend.service.is_some() != backend.resource.is_some(),
        "exactly one of service and resource is required",
    )?;
    optional("service", backend.service.as_ref(), |service| {
        at("name", text::label(&service.name))?;
        let (number, name) = (service.port.number, service.port.name.as_deref());
        let (number, name) = (
            number.filter(|number| *number != 0),
            name.filter(|name| !name.is_empty()),
        );
        let exactly_one = number.is_some() != name.is_some();
        at(
            "port",
            ensure(exactly_one, "exactly one of number and name is required"),
        )?;
        let valid = number.is_none_or(|number| (1..=65535).contains(&number));
        let range = ensure(valid, "expected a port number from 1 to 65535");
        at("port", at("number", range))
    })
}

pub(crate) fn class(spec: &IngressClassSpec) -> Check {
    let controller = spec.controller.as_deref().filter(|name| !name.is_empty());
    optional("controller", controller, |name| text::length(name, 1, 250))
}
