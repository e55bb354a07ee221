//! What one HTTPProxy contributes, wherever it is included.

use sesame_api::HTTPProxy;
use sesame_engine::Reader;
use sesame_model::{CertificateKey, ClusterKey};

use super::findings::{Finding, Findings};
use super::route::{self, OwnRoute};
use super::tcp::{self, TcpTargets};
use super::{host, includes};
use crate::inputs::Inputs;
use crate::settings::Settings;
use crate::shared::default_fleet::Sources;

/// The objects that an HTTPProxy refers to, permitted or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct References {
    /// The clusters of its Services.
    pub(super) clusters: Box<[ClusterKey]>,
    /// The certificate of its host.
    pub(super) certificate: Option<CertificateKey>,
}

/// Reads what an HTTPProxy refers to.
pub(super) fn references(
    reader: &mut Reader<'_>,
    inputs: Inputs,
    settings: &Settings,
    proxy: &HTTPProxy,
) -> References {
    // The fragment has the findings.
    let scratch = &mut Findings::default();
    let mut clusters = Vec::new();
    for (index, route) in proxy.spec.routes.iter().enumerate() {
        let field = route::field(index);
        let found = route::clusters(reader, inputs, proxy, (&field, route), scratch);
        clusters.extend(found.into_iter().flatten());
    }
    if let Some(tcp) = proxy.spec.tcp_proxy.as_deref() {
        let found = tcp::clusters(reader, inputs, proxy, tcp, scratch);
        for key in found.into_iter().flatten() {
            clusters.push(tcp::without_tls(&key));
            clusters.push(key);
        }
    }
    clusters.sort();
    clusters.dedup();
    References {
        clusters: clusters.into(),
        certificate: host::certificate(settings, proxy),
    }
}

/// What an HTTPProxy contributes, without its inclusions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fragment {
    /// Its routes, in order, except for those whose requests are unknown.
    pub(super) routes: Box<[OwnRoute]>,
    /// The backends of connections.
    pub(super) tcp: Option<TcpTargets>,
    /// What is wrong with its own fields, except for those of its host.
    pub(super) findings: Box<[Finding]>,
}

/// Reads a fragment.
pub(super) fn read(reader: &mut Reader<'_>, of: (Inputs, Sources), proxy: &HTTPProxy) -> Fragment {
    let mut findings = Findings::default();
    let routes = 0..proxy.spec.routes.len();
    let routes = routes
        .filter_map(|index| route::read(reader, of, proxy, index, &mut findings))
        .collect();
    includes::links(proxy, &mut findings);
    let tcp = tcp::read(reader, of, proxy, &mut findings);
    Fragment {
        routes,
        tcp,
        findings: findings.list.into(),
    }
}
