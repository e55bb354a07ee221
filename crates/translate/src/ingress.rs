//! Translates Ingresses into rules, hosts and listeners for the default fleet.
//!
//! In: Ingresses, and the objects that they refer to. Out: a [`Contribution`], and notices, since an Ingress's status
//! has only addresses. For an Ingress of another class, only the class is checked.
//!
//! Each host of an Ingress has rows of its own for rules and attachments, so that changing one host doesn't affect the
//! others. Each host with TLS is a listener, regardless of which Ingress has its certificate; the routes of all
//! Ingresses attach to that listener.

mod annotations;
mod attachments;
mod backends;
mod class;
mod notices;
mod paths;
mod routes;
mod status;
mod tls;

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_api::{Ingress, LoadBalancerStatus, ObjectKey, ObjectStatus};
use sesame_engine::{Builder, Index, Table};
use sesame_model::{CertificateKey, ClusterKey};

use self::backends::Backend;
use self::tls::IngressTls;
use crate::inputs::Inputs;
use crate::problem::Notices;
use crate::shared::covering::PointsByDomain;
use crate::shared::default_fleet::{self, Contribution, Sources};
use crate::shared::host_findings::HostFindings;
use crate::shared::hostname;

/// The maximum number of an Ingress's hosts with rules, and of its hosts with TLS. Further hosts aren't served, or have no
/// TLS.
const MAX_HOSTS: usize = 256;

/// Our Ingresses, indexed by the objects that they refer to.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    /// Ingresses of our classes.
    ours: Table<ObjectKey, Ours>,
    /// The certificates of each Ingress's hosts; an Ingress without certificates has no row.
    tls: Table<ObjectKey, IngressTls>,
    /// Ingresses by the clusters of their backends.
    pub(crate) by_backend: Index<ObjectKey, Ours, ClusterKey>,
    /// Ingresses by their certificates.
    pub(crate) by_secret: Index<ObjectKey, IngressTls, CertificateKey>,
}

/// An Ingress of one of our classes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ours {
    /// The hosts that have rules, sorted; [`hostname::ANY`] includes the default backend.
    hosts: Box<[Arc<str>]>,
    /// The backends, in the order of [`backends::all`].
    backends: Box<[Backend]>,
}

/// The tables that are derived from Ingresses.
#[derive(Clone, Copy)]
pub(crate) struct Stages {
    pub(crate) contribution: Contribution,
    /// The statuses of Ingresses.
    pub(crate) statuses: Table<ObjectKey, ObjectStatus>,
    /// The tables that determine the notices about Ingresses.
    of_notices: notices::Sources,
}

/// Declares the Ingresses of our classes and their references.
pub(crate) fn read(b: &mut Builder, inputs: &Inputs) -> Read {
    let (ingresses, services) = (inputs.ingresses, inputs.services);
    let classes = class::stages(b, inputs);
    let ours = b.derive(
        "our ingresses",
        ingresses,
        move |reader, key: &ObjectKey| {
            let ingress = reader.get(ingresses, key)?;
            class::is_ours(reader, classes, &ingress).then(|| Ours {
                hosts: hosts(&ingress).into_iter().collect(),
                backends: backends::all(&ingress)
                    .map(|(place, backend)| backends::read(reader, services, key, place, backend))
                    .collect(),
            })
        },
    );
    let tls = b.derive("ingress tls", ours, move |reader, key| {
        tls::read(&*reader.get(ingresses, key)?)
    });
    Read {
        ours,
        tls,
        by_backend: b.index(ours, "ingresses by backend", |_, ours| {
            let backends = ours.backends.iter();
            backends
                .filter_map(|backend| backend.as_ref().ok().cloned())
                .collect()
        }),
        by_secret: b.index(tls, "ingresses by secret", |_, tls: &IngressTls| {
            tls.certificates()
        }),
    }
}

/// Declares the stages.
pub(crate) fn stages(
    b: &mut Builder,
    inputs: &Inputs,
    read: Read,
    sources: Sources,
    addresses: Table<(), LoadBalancerStatus>,
) -> Stages {
    let tls = tls::stages(b, inputs, read, sources);
    let of_routes = routes::Sources {
        ingresses: inputs.ingresses,
        ours: read.ours,
        backends: sources.backends,
        client_certificate: sources.client_certificate,
        tls: read.tls,
        settings: inputs.settings,
    };
    let contribution = Contribution {
        points: tls.points,
        terminations: tls.terminations,
        rules: b.derive_many("ingress rules", read.ours, move |reader, key| {
            routes::rules(reader, of_routes, key)
        }),
        attachments: attachments::stage(b, inputs, read, tls, sources),
        // Ingresses don't forward connections.
        backends: b.derive("ingress connections", tls.points, |_, _| None),
        users: default_fleet::users(b, "users by ingress", read.ours),
    };
    Stages {
        contribution,
        statuses: status::stages(b, read, addresses),
        of_notices: notices::Sources {
            read,
            routes: of_routes,
            tls,
            certificates: sources,
            delegations: inputs.delegations_by_namespace,
            settings: inputs.settings,
        },
    }
}

/// Declares the notices about Ingresses.
pub(crate) fn notices(
    b: &mut Builder,
    stages: Stages,
    hosts: HostFindings,
    points: PointsByDomain,
) -> Table<ObjectKey, Notices> {
    notices::stage(b, stages.of_notices, hosts, points)
}

/// The hosts that an Ingress has rules for, if they are valid; the first [`MAX_HOSTS`].
fn hosts(ingress: &Ingress) -> BTreeSet<Arc<str>> {
    let rules = ingress.spec.rules.iter();
    let of_rules = rules.filter_map(|rule| host(rule.host.as_ref()).ok());
    let default = ingress.spec.default_backend.as_ref();
    let mut hosts: BTreeSet<Arc<str>> = default.map(|_| hostname::ANY.into()).into_iter().collect();
    for host in of_rules {
        if hosts.len() == MAX_HOSTS {
            break;
        }
        hosts.insert(host);
    }
    hosts
}

/// The domain of a rule's host, or why the host is invalid.
fn host(host: Option<&Arc<str>>) -> Result<Arc<str>, &'static str> {
    match host.filter(|host| !host.is_empty()) {
        None => Ok(hostname::ANY.into()),
        Some(host) if sesame_api::is_hostname(host) => Ok(Arc::clone(host)),
        Some(_) => Err("expected a lowercase hostname such as example.com or *.example.com"),
    }
}
