//! Errors and warnings about Ingresses.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_api::{Ingress, Kind, ObjectKey};
use sesame_engine::{Builder, Reader, Table};

use super::annotations::{self, PlainHttp};
use super::tls::{self, TlsStages};
use super::{MAX_HOSTS, Read, routes};
use crate::configuration::listeners;
use crate::problem::Notices;
use crate::settings::Settings;
use crate::shared::covering::PointsByDomain;
use crate::shared::default_fleet;
use crate::shared::delegation::Delegations;
use crate::shared::held;
use crate::shared::host_findings::HostFindings;
use crate::shared::hostname;
use crate::shared::overlaps;
use crate::shared::scans;
use crate::shared::wildcard_budget;

/// The tables that determine notices.
#[derive(Clone, Copy)]
pub(super) struct Sources {
    pub(super) read: Read,
    pub(super) routes: routes::Sources,
    pub(super) tls: TlsStages,
    pub(super) certificates: default_fleet::Sources,
    pub(super) delegations: Delegations,
    pub(super) settings: Table<(), Settings>,
}

/// Declares the notices about Ingresses. This translates each Ingress again instead of storing notices with its rules,
/// since most Ingresses have no notices.
pub(super) fn stage(
    b: &mut Builder,
    sources: Sources,
    of_hosts: HostFindings,
    points: PointsByDomain,
) -> Table<ObjectKey, Notices> {
    let Sources { read, routes, .. } = sources;
    b.derive("ingress notices", read.ours, move |reader, key| {
        let ingress = reader.get(routes.ingresses, key)?;
        let mut notices = Notices::default();
        // Problems of the whole Ingress come first, since the number of notices is limited.
        for message in wildcard_budget::messages(reader, of_hosts.left_out, key) {
            notices.error("spec.rules", message);
        }
        if let Some(message) = held::message(reader, of_hosts.held, key) {
            notices.error("spec.rules", message);
        }
        // Without their backends, the paths of an Ingress that exceeds a limit have errors that aren't its author's.
        let mut of_reduced = Notices::default();
        let of_paths = match &ingress.spec.exceeded {
            Some(exceeded) => {
                notices.error(exceeded.path_text(), exceeded.message.clone());
                &mut of_reduced
            }
            None => &mut notices,
        };
        let hosts = routes::translate(reader, routes, key, &ingress, of_paths);
        let tls = reader.get(routes.tls, key);
        if let Some(message) = routes::too_many_for_wildcards(&hosts, tls.as_deref()) {
            notices.error("spec.tls", message);
        }
        let versions = annotations::versions(&ingress, &mut notices);
        if let Some(versions) = versions
            && let Some(message) =
                listeners::other_version(&*reader.get(sources.settings, &())?, versions)
        {
            notices.warning("metadata.annotations", message);
        }
        annotations::misplaced(&ingress, &mut notices);
        sources.of_tls(reader, points, key, &ingress, &mut notices);
        for message in overlaps::messages(reader, of_hosts.overlaps, key) {
            notices.warning("spec.rules", message);
        }
        for ((rule, path), message) in scans::messages(reader, of_hosts.refusals, key) {
            notices.error(
                format!("spec.rules[{rule}].http.paths[{path}].path"),
                message,
            );
        }
        notices.non_empty()
    })
}

impl Sources {
    fn of_tls(
        self,
        reader: &mut Reader<'_>,
        points: PointsByDomain,
        key: &ObjectKey,
        ingress: &Ingress,
        notices: &mut Notices,
    ) {
        for (index, tls) in ingress.spec.tls.iter().enumerate() {
            let field = format!("spec.tls[{index}]");
            match tls.secret_name.as_deref().unwrap_or_default() {
                "" => notices.error(format!("{field}.secretName"), "is required"),
                name if ingress.tls_secret(name).is_none() => {
                    let message = format!(
                        "expected the name of a Secret; check this field and the {} annotation",
                        Ingress::TLS_NAMESPACE
                    );
                    notices.error(format!("{field}.secretName"), message);
                }
                _ => {}
            }
            if tls.hosts.is_empty() {
                let message = "is required; only the hosts in this list have TLS";
                notices.error(format!("{field}.hosts"), message);
            }
            for (position, host) in tls.hosts.iter().enumerate() {
                if let Err(message) = super::host(Some(host)) {
                    notices.error(format!("{field}.hosts[{position}]"), message);
                }
            }
        }
        let own = reader.get(self.read.tls, key);
        if own.as_ref().is_some_and(|own| own.exceeding) {
            let message = format!(
                "only the first {MAX_HOSTS} hosts have TLS, and only the first {} wildcard hosts; divide the Ingress into \
                 several",
                tls::MAX_WILDCARDS
            );
            notices.error("spec.tls", message);
        }
        let mut reported = BTreeSet::new();
        let hosts = own
            .iter()
            .flat_map(|own| own.hosts.iter().map(|host| (&**own, host)));
        let mut hosts: Vec<_> = hosts.collect();
        hosts.sort_by_key(|(_, (_, host))| host.index);
        for (own, (name, host)) in hosts {
            let field = format!("spec.tls[{}]", host.index);
            let certificate = &host.certificate;
            let checked = tls::check(
                reader,
                self.certificates,
                self.delegations,
                certificate,
                (key, own),
            );
            let expiring = reader.get(self.certificates.expiring, certificate);
            if let (Ok(()), Some(message)) = (&checked, expiring)
                && reported.insert((host.index, certificate))
            {
                notices.warning(format!("{field}.secretName"), String::clone(&message));
            }
            let owner = reader.get(self.tls.owners, name);
            if let Err(message) = checked {
                if reported.insert((host.index, certificate)) {
                    notices.error(format!("{field}.secretName"), message);
                }
            } else if !own.any_host && reader.count(self.tls.by_host, name) == 0 {
                let message = format!("no rule has host {name}; the host is not served");
                notices.warning(format!("{field}.hosts"), message);
            } else if let Some(owner) = self.other_owner(reader, points, name) {
                let (kind, owner) = (owner.kind, owner.namespaced_name());
                let message = format!("host {name} uses the TLS settings of {kind} {owner}");
                notices.warning(format!("{field}.secretName"), message);
            } else if let Some(owner) = owner
                && owner.ingress != *key
                && owner.termination.certificates != [certificate.clone()]
            {
                let owner = owner.ingress.namespaced_name();
                let message = format!("host {name} uses the certificate of Ingress {owner}");
                notices.warning(format!("{field}.secretName"), message);
            }
        }
        self.without_tls(reader, key, ingress, notices);
    }

    /// The object that terminates or forwards the TLS connections of a host, if it isn't an Ingress. The first owner's
    /// listener takes precedence.
    fn other_owner(
        self,
        reader: &mut Reader<'_>,
        points: PointsByDomain,
        host: &Arc<str>,
    ) -> Option<ObjectKey> {
        let settings = reader.get(self.settings, &())?;
        let port = tls::listener(&settings, host).listener.port.clone();
        let number = port.port;
        let owners = reader.by(points, &(port, Arc::clone(host)));
        let first = owners.into_iter().find(|(_, points)| {
            let mut points = points.serving_on(number);
            points.any(|point| point.domain == *host && point.protocol.is_tls())
        });
        let (owner, _) = first?;
        (owner.kind != Kind::Ingress).then_some(owner)
    }

    /// Warns about hosts that don't use TLS although their requests are redirected to HTTPS, or refused without TLS.
    fn without_tls(
        self,
        reader: &mut Reader<'_>,
        key: &ObjectKey,
        ingress: &Ingress,
        notices: &mut Notices,
    ) {
        let annotation = match annotations::plain_http(ingress) {
            PlainHttp::Served => return,
            PlainHttp::Redirected => annotations::FORCE_SSL_REDIRECT,
            PlainHttp::Refused => annotations::ALLOW_HTTP,
        };
        let Some(ours) = reader.get(self.read.ours, key) else {
            return;
        };
        let named = ours.hosts.iter().filter(|host| ***host != *hostname::ANY);
        let without: Vec<&str> = named
            .filter(|host| !reader.exists(self.tls.owners, *host))
            .map(|host| &**host)
            .collect();
        if !without.is_empty() {
            let without = without.join(", ");
            let message =
                format!("{without} can't be reached without a usable certificate in spec.tls");
            notices.warning(annotations::field(annotation), message);
        }
    }
}
