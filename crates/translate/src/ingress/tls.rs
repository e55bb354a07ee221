//! Hosts with TLS. Each is a listener, with the certificate of the oldest Ingress that has a usable one for the host.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use sesame_api::{Ingress, Kind, ObjectKey};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{CertificateKey, Termination, TlsVersions};

use super::{MAX_HOSTS, Ours, Read, annotations};
use crate::inputs::Inputs;
use crate::problem::Notices;
use crate::settings::Settings;
use crate::shared::certificates::CertificateState;
use crate::shared::default_fleet::{self, Sources};
use crate::shared::delegation::{self, Delegations};
use crate::shared::hostname;
use crate::shared::listeners::{AttachPoints, ListenerPoint, Protocol};
use crate::shared::ports::Terminations;
use crate::shared::precedence::{Seniority, Source};

/// The maximum size of the certificates of an Ingress's hosts, in bytes: on a port with many hosts, each has a copy.
const MAX_CERTIFICATES: usize = 24 * 1024 * 1024;

/// The maximum number of an Ingress's wildcard hosts with TLS: their filter chains are always in the listener, while those
/// of many other hosts are loaded on demand.
pub(super) const MAX_WILDCARDS: usize = 64;

/// The certificates of an Ingress's hosts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IngressTls {
    /// The order among Ingresses with a certificate for a host.
    seniority: Seniority,
    /// The TLS versions; `None` for the default.
    versions: Option<TlsVersions>,
    /// Whether the Ingress has rules for all hosts; these rules also serve all of its hosts with TLS.
    pub(super) any_host: bool,
    /// The certificate of each host, up to [`MAX_HOSTS`] and [`MAX_WILDCARDS`]. Never empty.
    pub(super) hosts: BTreeMap<Arc<str>, TlsHost>,
    /// Whether there are more hosts.
    pub(super) exceeding: bool,
}

/// The certificate of a host.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TlsHost {
    pub(super) certificate: CertificateKey,
    /// The index in `spec.tls`.
    pub(super) index: usize,
}

impl IngressTls {
    /// The certificates, whether or not the Ingress may use them.
    pub(super) fn certificates(&self) -> Vec<CertificateKey> {
        let hosts = self.hosts.values();
        hosts.map(|host| host.certificate.clone()).collect()
    }
}

/// The Ingress that terminates a host's TLS connections, and its TLS settings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TlsOwner {
    pub(super) ingress: ObjectKey,
    pub(super) termination: Arc<Termination>,
}

/// The tables for hosts with TLS.
#[derive(Clone, Copy)]
pub(super) struct TlsStages {
    /// The owner of each host.
    pub(super) owners: Table<Arc<str>, TlsOwner>,
    /// Ingresses by the hosts that they have rules for.
    pub(super) by_host: Index<ObjectKey, Ours, Arc<str>>,
    /// The listeners, keyed by [`listener_owner`].
    pub(super) points: Table<ObjectKey, AttachPoints>,
    /// How the listeners terminate TLS.
    pub(super) terminations: Table<ObjectKey, Terminations>,
}

/// Reads the certificates of an Ingress; `None` if the Ingress doesn't have any.
pub(super) fn read(ingress: &Ingress) -> Option<IngressTls> {
    let mut hosts = BTreeMap::new();
    let (mut wildcards, mut exceeding) = (0, false);
    for (index, tls) in ingress.spec.tls.iter().enumerate() {
        let name = tls.secret_name.as_deref();
        let Some(secret) = name.and_then(|name| ingress.tls_secret(name)) else {
            continue;
        };
        let valid = tls
            .hosts
            .iter()
            .filter(|host| sesame_api::is_hostname(host));
        for host in valid {
            let wildcard = host.starts_with('*');
            let full = hosts.len() == MAX_HOSTS || (wildcard && wildcards == MAX_WILDCARDS);
            let Entry::Vacant(entry) = hosts.entry(Arc::clone(host)) else {
                continue;
            };
            if full {
                exceeding = true;
                continue;
            }
            wildcards += usize::from(wildcard);
            entry.insert(TlsHost {
                certificate: CertificateKey {
                    namespace: Arc::clone(&secret.namespace),
                    name: Arc::clone(&secret.name),
                },
                index,
            });
        }
    }
    (!hosts.is_empty()).then(|| IngressTls {
        seniority: Seniority::of(Source::Ingress, &ingress.meta),
        versions: annotations::versions(ingress, &mut Notices::default()),
        any_host: super::hosts(ingress).contains(hostname::ANY),
        hosts,
        exceeding,
    })
}

/// Declares the listeners of hosts with TLS.
pub(super) fn stages(b: &mut Builder, inputs: &Inputs, read: Read, sources: Sources) -> TlsStages {
    let settings = inputs.settings;
    let delegations = inputs.delegations_by_namespace;
    let by_host = b.index(read.ours, "ingresses by host", |_, ours| {
        ours.hosts.to_vec()
    });
    let by_tls_host = b.index(read.tls, "ingresses by tls host", |_, tls| {
        tls.hosts.keys().cloned().collect()
    });
    let owners = b.derive(
        "ingress tls host",
        by_tls_host,
        move |reader, host: &Arc<str>| {
            let mut candidates = reader.by(by_tls_host, host);
            candidates.sort_by(|(_, a), (_, b)| a.seniority.cmp(&b.seniority));
            let has_rules = reader.count(by_host, host) > 0;
            candidates.into_iter().find_map(|(ingress, tls)| {
                // A listener without routes would take requests away from a wildcard host.
                let serves = has_rules || tls.any_host;
                let certificate = &tls.hosts.get(host)?.certificate;
                let of = (&ingress, &*tls);
                let usable = serves && check(reader, sources, delegations, certificate, of).is_ok();
                usable.then(|| TlsOwner {
                    termination: Arc::new(Termination {
                        certificates: vec![certificate.clone()],
                        clients: None,
                        versions: tls.versions,
                    }),
                    ingress,
                })
            })
        },
    );
    let points = b.derive_many("ingress points", owners, move |reader, host: &Arc<str>| {
        let settings = reader.get(settings, &());
        let exists = reader.exists(owners, host);
        let point = settings.filter(|_| exists).map(|settings| {
            let listeners = vec![listener(&settings, host)];
            let points = default_fleet::attach_points(&settings, listeners);
            (listener_owner(host), points)
        });
        Vec::from_iter(point)
    });
    let terminations = b.derive_many("ingress terminations", owners, move |reader, host| {
        let owner = reader.get(owners, host);
        let row = owner.map(|owner| {
            let termination = Arc::clone(&owner.termination);
            let terminations = Terminations::from([(Arc::clone(host), termination)]);
            (listener_owner(host), terminations)
        });
        Vec::from_iter(row)
    });
    TlsStages {
        owners,
        by_host,
        points,
        terminations,
    }
}

/// The owner of a host's listener. It doesn't depend on which Ingress has the certificate, so routes don't either.
fn listener_owner(host: &Arc<str>) -> ObjectKey {
    ObjectKey::new(Kind::Ingress, "", Arc::clone(host))
}

/// The listener of a host with TLS.
pub(super) fn listener(settings: &Settings, host: &Arc<str>) -> ListenerPoint {
    default_fleet::tls_listener(
        settings,
        &listener_owner(host),
        host,
        Protocol::Https,
        false,
    )
}

/// Checks that an Ingress may use a certificate, and that the certificate is valid.
///
/// # Errors
/// Why the certificate can't be used, and how to fix that.
pub(super) fn check(
    reader: &mut Reader<'_>,
    sources: Sources,
    delegations: Delegations,
    certificate: &CertificateKey,
    (ingress, tls): (&ObjectKey, &IngressTls),
) -> Result<(), String> {
    let own = &ingress.namespace;
    if !delegation::permitted(reader, delegations, certificate, own) {
        let CertificateKey { namespace, name } = certificate;
        return Err(format!(
            "no TLSCertificateDelegation in namespace {namespace} lets namespace {own} use Secret {name}"
        ));
    }
    match reader.get(sources.certificates, certificate).as_deref() {
        Some(CertificateState::Valid {
            certificate: own, ..
        }) => {
            let (bytes, hosts) = (own.chain.len() + own.private_key.len(), tls.hosts.len());
            match bytes * hosts > MAX_CERTIFICATES {
                true => Err(format!(
                    "Secret {certificate} takes {} KiB for each of the {hosts} hosts with TLS; the limit is {} MiB for all of \
                     them; use a shorter chain, or divide the Ingress into several",
                    bytes.div_ceil(1024),
                    MAX_CERTIFICATES >> 20
                )),
                false => Ok(()),
            }
        }
        Some(CertificateState::Invalid(reason)) => Err(format!("Secret {certificate} {reason}")),
        Some(CertificateState::Missing) | None => {
            Err(format!("Secret {certificate} does not exist"))
        }
    }
}
