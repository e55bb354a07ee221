//! Translates HTTPProxies into rules, hosts and listeners of the default fleet.

use sesame_api::{HTTPProxy, ObjectKey};
use sesame_engine::{Builder, Index};
use sesame_model::{CertificateKey, ClusterKey};

use crate::inputs::Inputs;
use crate::shared::default_fleet::{Contribution, Sources};

/// The objects that HTTPProxies refer to.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    /// The clusters of their backends.
    pub(crate) by_backend: Index<ObjectKey, HTTPProxy, ClusterKey>,
    /// Their certificates.
    pub(crate) by_secret: Index<ObjectKey, HTTPProxy, CertificateKey>,
    /// The Secrets with CA certificates that they refer to.
    pub(crate) by_authority: Index<ObjectKey, HTTPProxy, ObjectKey>,
}

/// Declares what HTTPProxies refer to.
pub(crate) fn read(b: &mut Builder, inputs: &Inputs) -> Read {
    Read {
        by_backend: b.index(inputs.http_proxies, "http_proxies by backend", |_, _| {
            Vec::new()
        }),
        by_secret: b.index(inputs.http_proxies, "http_proxies by secret", |_, _| {
            Vec::new()
        }),
        by_authority: b.index(inputs.http_proxies, "http_proxies by authority", |_, _| {
            Vec::new()
        }),
    }
}

/// Declares the stages.
pub(crate) fn stages(
    b: &mut Builder,
    inputs: &Inputs,
    _read: Read,
    _sources: Sources,
) -> Contribution {
    let source = inputs.http_proxies;
    Contribution {
        points: b.derive("http_proxy points", source, |_, _: &ObjectKey| None),
        terminations: b.derive("http_proxy terminations", source, |_, _: &ObjectKey| None),
        rules: b.derive("http_proxy rules", source, |_, _: &ObjectKey| None),
        attachments: b.derive("http_proxy attachments", source, |_, _: &ObjectKey| None),
        backends: b.derive("http_proxy connections", source, |_, _: &ObjectKey| None),
        statuses: b.derive("http_proxy status", source, |_, _: &ObjectKey| None),
    }
}
