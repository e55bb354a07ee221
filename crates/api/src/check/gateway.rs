//! GatewayClass, Gateway and ListenerSet.

use crate::gateway::{AddressType, GatewaySpec, GatewaySpecAddress, GatewayTls, Routability};
use crate::gateway_class::GatewayClassSpec;
use crate::kind_name::Group;
use crate::listener::{
    FrontendTlsConfig, FrontendTlsValidation, Listener, ListenerTls, ProtocolType, TlsMode,
};
use crate::listener_set::ListenerSetSpec;

use super::{
    Check, at, each, each_of_some, ensure, fail, filter, optional, reference, text, unique,
};

pub(crate) fn class(spec: &GatewayClassSpec) -> Check {
    at("controllerName", text::domain_path(&spec.controller_name))?;
    optional(
        "parametersRef",
        spec.parameters_ref.as_ref(),
        reference::any,
    )?;
    optional("description", spec.description.as_ref(), |d| {
        text::length(d, 0, 64)
    })
}

pub(crate) fn gateway(spec: &GatewaySpec) -> Check {
    at(
        "gatewayClassName",
        text::length(&spec.gateway_class_name, 1, 253),
    )?;
    listeners(&spec.listeners)?;
    ports(&spec.listeners)?;
    each("addresses", &spec.addresses, 16, address)?;
    let message = "another entry requests the same address";
    unique("addresses", &spec.addresses, message, |a| {
        let checked = matches!(a.type_, AddressType::IpAddress | AddressType::Hostname);
        (checked && !a.value.is_empty()).then_some((&a.type_, &a.value))
    })?;
    if let Some(infrastructure) = &spec.infrastructure {
        at("infrastructure", {
            reference::labels("labels", &infrastructure.labels, 8)
                .and_then(|()| {
                    reference::annotations("annotations", &infrastructure.annotations, 16)
                })
                .and_then(|()| {
                    let parameters = infrastructure.parameters_ref.as_ref();
                    optional("parametersRef", parameters, reference::local)
                })
        })?;
    }
    optional("tls", spec.tls.as_deref(), tls)
}

pub(crate) fn listener_set(spec: &ListenerSetSpec) -> Check {
    early_listener_set(spec)?;
    ports(&spec.listeners)
}

/// An XListenerSet: a port of 0 is valid.
pub(crate) fn early_listener_set(spec: &ListenerSetSpec) -> Check {
    at("parentRef", reference::parent_gateway(&spec.parent_ref))?;
    listeners(&spec.listeners)
}

fn ports(list: &[Listener]) -> Check {
    each("listeners", list, 64, |l| at("port", text::port(&l.port)))
}

/// `listeners`: 1 to 64, unique by name and by port, protocol and hostname.
fn listeners(list: &[Listener]) -> Check {
    each_of_some("listeners", list, 64, listener)?;
    let message = "another listener has the same name";
    unique("listeners", list, message, |l| Some(&l.name))?;
    let message = "another listener has the same port, protocol and hostname";
    unique("listeners", list, message, |l| {
        Some((l.port, &l.protocol, &l.hostname))
    })
}

fn listener(l: &Listener) -> Check {
    at("name", text::subdomain(&l.name))?;
    optional("hostname", l.hostname.as_ref(), |hostname| {
        text::hostname(hostname)
    })?;
    at("protocol", text::length(l.protocol.as_str(), 1, 255))?;
    if matches!(l.protocol, ProtocolType::Tcp | ProtocolType::Udp) && l.hostname.is_some() {
        return at(
            "hostname",
            fail(format!("is not allowed with protocol {}", l.protocol)),
        );
    }
    listener_protocol_tls(l)?;
    each_kind(l)?;
    at(
        "filters",
        each("requests", &l.filters.requests, 16, filter::listener),
    )?;
    let http = matches!(l.protocol, ProtocolType::Http | ProtocolType::Https);
    at(
        "filters",
        ensure(
            l.filters.is_empty() || http,
            "are allowed only with protocol HTTP or HTTPS",
        ),
    )
}

/// `tls` must be valid for `protocol`.
fn listener_protocol_tls(l: &Listener) -> Check {
    optional("tls", l.tls.as_ref(), listener_tls)?;
    match (&l.protocol, &l.tls) {
        (ProtocolType::Http | ProtocolType::Tcp | ProtocolType::Udp, Some(_)) => at(
            "tls",
            fail(format!("is not allowed with protocol {}", l.protocol)),
        ),
        (ProtocolType::Https, Some(tls)) if tls.mode != TlsMode::Terminate => at(
            "tls",
            at("mode", fail("must be Terminate with protocol HTTPS")),
        ),
        (ProtocolType::Tls, None) => at("tls", fail("is required with protocol TLS")),
        _ => Ok(()),
    }
}

fn listener_tls(tls: &ListenerTls) -> Check {
    each(
        "certificateRefs",
        &tls.certificate_refs,
        64,
        reference::secret,
    )?;
    reference::annotations("options", &tls.options, 16)?;
    let certified = !tls.certificate_refs.is_empty() || !tls.options.is_empty();
    ensure(
        tls.mode != TlsMode::Terminate || certified,
        "certificateRefs or options are required with mode Terminate",
    )
}

/// `allowedRoutes.kinds`: at most 8.
fn each_kind(l: &Listener) -> Check {
    at(
        "allowedRoutes",
        each("kinds", &l.allowed_routes.kinds, 8, |kind| {
            at("group", text::group(kind.group.as_str()))?;
            at("kind", text::kind(kind.kind.as_str()))
        }),
    )
}

/// `addresses[]`: hostnames must be valid; routability is empty, `Cluster` or `domain/path` outside
/// k8s.io.
fn address(address: &GatewaySpecAddress) -> Check {
    at("type", text::length(address.type_.as_str(), 1, 253))?;
    at("value", text::length(&address.value, 0, 253))?;
    if address.type_ == AddressType::Hostname && !address.value.is_empty() {
        at("value", text::hostname(&address.value))?;
    }
    let Some(Routability::Other(routability)) = &address.routability else {
        return Ok(());
    };
    let domain = routability
        .split_once('/')
        .filter(|(_, path)| !path.is_empty());
    let good = domain.is_some_and(|(domain, _)| {
        text::is_precise_hostname(domain) && domain != "k8s.io" && !domain.ends_with(".k8s.io")
    });
    at(
        "routability",
        ensure(
            good && routability.len() <= 253,
            "expected an empty string, Cluster or a domain-prefixed name outside k8s.io, \
             such as example.com/internal",
        ),
    )
}

fn tls(tls: &GatewayTls) -> Check {
    let certificate = tls
        .backend
        .as_ref()
        .and_then(|b| b.client_certificate_ref.as_ref());
    at(
        "backend",
        optional("clientCertificateRef", certificate, reference::secret),
    )?;
    optional("frontend", tls.frontend.as_ref(), |frontend| {
        at("default", frontend_config(&frontend.default))?;
        each("perPort", &frontend.per_port, 64, |entry| {
            at("port", text::port(&entry.port))?;
            at("tls", frontend_config(&entry.tls))
        })?;
        unique(
            "perPort",
            &frontend.per_port,
            "another entry has the same port",
            |e| Some(e.port),
        )
    })
}

fn frontend_config(config: &FrontendTlsConfig) -> Check {
    optional(
        "validation",
        config.validation.as_ref(),
        |validation: &FrontendTlsValidation| {
            each_of_some(
                "caCertificateRefs",
                &validation.ca_certificate_refs,
                16,
                |r| {
                    reference::any(r)?;
                    let bundle = r.group == Group::Certificates && r.kind == "ClusterTrustBundle";
                    let check = ensure(
                        !(bundle && r.namespace.is_some()),
                        "is not allowed for a ClusterTrustBundle, which is cluster-scoped",
                    );
                    at("namespace", check)
                },
            )
        },
    )
}
