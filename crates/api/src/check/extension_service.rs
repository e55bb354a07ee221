//! ExtensionServices.

use crate::extension_service::{ExtensionProtocol, ExtensionProtocolVersion, ExtensionServiceSpec};

use super::{Check, at, each_of_some, http_proxy, known, optional, text};

pub(crate) fn spec(spec: &ExtensionServiceSpec) -> Check {
    each_of_some("services", &spec.services, 128, |service| {
        at("name", text::length(&service.name, 1, 253))?;
        at("port", text::port(&service.port))?;
        at("weight", http_proxy::weight(service.weight))
    })?;
    optional(
        "validation",
        spec.validation.as_deref(),
        http_proxy::validation,
    )?;
    known("protocol", spec.protocol.as_ref(), ExtensionProtocol::KNOWN)?;
    let limits = spec.circuit_breaker_policy.as_ref();
    optional("circuitBreakerPolicy", limits, |limits| {
        at(
            "maxConnections",
            http_proxy::unsigned(limits.max_connections),
        )?;
        at(
            "maxPendingRequests",
            http_proxy::unsigned(limits.max_pending_requests),
        )?;
        at("maxRequests", http_proxy::unsigned(limits.max_requests))?;
        at("maxRetries", http_proxy::unsigned(limits.max_retries))?;
        at(
            "perHostMaxConnections",
            http_proxy::unsigned(limits.per_host_max_connections),
        )
    })?;
    let policy = spec.load_balancer_policy.as_deref();
    optional("loadBalancerPolicy", policy, http_proxy::load_balancer)?;
    let version = spec.protocol_version.as_ref();
    known("protocolVersion", version, ExtensionProtocolVersion::KNOWN)
}
