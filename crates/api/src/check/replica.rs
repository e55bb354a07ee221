//! The sections of SesameConfigurations for Sesame's own processes. Translation checks addresses and durations.

use crate::configuration::{
    ConfigurationSpec, ContourCompatMode, LoggingFormat, LoggingLevel, MetricsConfiguration,
    XdsConfiguration,
};

use super::configuration::{namespace, object_name};
use super::{Check, at, each_of_some, known, optional, text};

pub(super) fn sections(spec: &ConfigurationSpec) -> Check {
    if let Some(namespaces) = spec.watch_namespaces.as_deref() {
        each_of_some("watchNamespaces", namespaces, 256, |name| namespace(name))?;
    }
    let mode = spec.contour_compat.as_ref();
    known("contourCompat", mode, ContourCompatMode::KNOWN)?;
    optional("xds", spec.xds.as_ref(), xds)?;
    optional("metrics", spec.metrics.as_ref(), metrics)?;
    optional("logging", spec.logging.as_ref(), |logging| {
        known("format", logging.format.as_ref(), LoggingFormat::KNOWN)?;
        known("level", logging.level.as_ref(), LoggingLevel::KNOWN)
    })
}

fn xds(xds: &XdsConfiguration) -> Check {
    optional("address", xds.address.as_deref(), object_name)?;
    optional("port", xds.port.as_ref(), text::port)?;
    optional(
        "advertisedHost",
        xds.advertised_host.as_deref(),
        object_name,
    )?;
    optional("advertisedPort", xds.advertised_port.as_ref(), text::port)
}

fn metrics(metrics: &MetricsConfiguration) -> Check {
    optional("address", metrics.address.as_deref(), object_name)?;
    at("port", text::port(&metrics.port))
}
