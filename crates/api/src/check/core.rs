//! Built-in Kubernetes kinds: the fields that translation reads.

use std::net::{Ipv4Addr, Ipv6Addr};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::{Check, at, each, ensure, optional, text};

/// Ports are in range.
pub(crate) fn service(service: &Service) -> Check {
    let ports = service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_deref())
        .unwrap_or_default();
    at(
        "spec",
        each("ports", ports, usize::MAX, |entry| {
            at("port", port(&entry.port))
        }),
    )
}

/// At most 1000 endpoints, each with 1 to 100 addresses of the slice's type, and at most 100 ports.
pub(crate) fn endpoint_slice(slice: &EndpointSlice) -> Check {
    let address = |address: &String| match slice.address_type.as_str() {
        "IPv4" => ensure(
            address.parse::<Ipv4Addr>().is_ok(),
            "expected an IPv4 address",
        ),
        "IPv6" => ensure(
            address.parse::<Ipv6Addr>().is_ok(),
            "expected an IPv6 address",
        ),
        "FQDN" => text::subdomain(address),
        _ => Ok(()),
    };
    at(
        "addressType",
        ensure(!slice.address_type.is_empty(), "is required"),
    )?;
    let endpoints = slice.endpoints.as_deref().unwrap_or_default();
    each("endpoints", endpoints, 1000, |e| {
        super::each_of_some("addresses", &e.addresses, 100, address)
    })?;
    let ports = slice.ports.as_deref().unwrap_or_default();
    each("ports", ports, 100, |entry| {
        optional("port", entry.port.as_ref(), port)
    })
}

fn port(port: &i32) -> Check {
    ensure(
        (1..=65535).contains(port),
        "expected a port number from 1 to 65535",
    )
}
