//! What is wrong with Ingresses, and with the annotations of Services.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_api::{Ingress, Kind, NamespacedName, ObjectKey};
use sesame_engine::{Builder, Reader, Table};

use super::annotations::{self, PlainHttp};
use super::tls::{self, TlsStages};
use super::{Read, routes};
use crate::inputs::Inputs;
use crate::problem::Notices;
use crate::shared::default_fleet::Sources;
use crate::shared::delegation::Delegations;
use crate::shared::hostname;

/// Declares the notices of Ingresses. Translates them again instead of storing each notice with the rules: most have none.
pub(super) fn stage(
    b: &mut Builder,
    inputs: &Inputs,
    read: Read,
    of_routes: routes::Sources,
    tls: TlsStages,
    sources: Sources,
) -> Table<ObjectKey, Notices> {
    let ingresses = inputs.ingresses;
    let of_tls = OfTls {
        read,
        tls,
        sources,
        delegations: inputs.delegations_by_namespace,
    };
    b.derive("ingress notices", read.ours, move |reader, key| {
        let ingress = reader.get(ingresses, key)?;
        let mut notices = Notices::default();
        routes::translate(reader, of_routes, key, &ingress, &mut notices);
        annotations::versions(&ingress, &mut notices);
        of_tls.add(reader, key, &ingress, &mut notices);
        notices.non_empty()
    })
}

#[derive(Clone, Copy)]
struct OfTls {
    read: Read,
    tls: TlsStages,
    sources: Sources,
    delegations: Delegations,
}

impl OfTls {
    fn add(
        self,
        reader: &mut Reader<'_>,
        key: &ObjectKey,
        ingress: &Ingress,
        notices: &mut Notices,
    ) {
        for (index, tls) in ingress.spec.tls.iter().enumerate() {
            let field = format!("spec.tls[{index}]");
            if tls.secret_name.as_ref().is_none_or(|name| name.is_empty()) {
                notices.error(format!("{field}.secretName"), "is required");
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
        let mut reported = BTreeSet::new();
        for host in own.iter().flat_map(|own| &own.hosts) {
            let field = format!("spec.tls[{}]", host.index);
            let certificate = &host.certificate;
            let checked = tls::check(reader, self.sources, self.delegations, certificate, key);
            let any_host = own.as_ref().is_some_and(|own| own.any_host);
            let owner = reader.get(self.tls.owners, &host.host);
            let name = &host.host;
            if let Err(message) = checked {
                if reported.insert((host.index, certificate)) {
                    notices.error(format!("{field}.secretName"), message);
                }
            } else if !any_host && reader.count(self.tls.by_host, name) == 0 {
                let message = format!("no rule has host {name}; it is not served");
                notices.warning(format!("{field}.hosts"), message);
            } else if let Some(owner) = owner
                && owner.ingress != *key
                && owner.termination.certificates != [certificate.clone()]
            {
                let owner = owner.ingress.namespaced_name();
                let message = format!("host {name} has the certificate of Ingress {owner}");
                notices.warning(format!("{field}.secretName"), message);
            }
        }
        self.without_tls(reader, key, ingress, notices);
    }

    /// Hosts whose requests are redirected to HTTPS, or refused without it, although they have no TLS.
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
                format!("{without} can't be reached: no certificate in spec.tls is usable for it");
            notices.warning(annotations::field(annotation), message);
        }
    }
}

/// Declares the notices of Services with invalid annotations.
pub(crate) fn of_services(b: &mut Builder, inputs: &Inputs) -> Table<ObjectKey, Notices> {
    let services = inputs.services;
    let invalid = b.index(
        services,
        "services with invalid annotations",
        |name: &NamespacedName, service| {
            let annotations = service.annotations.as_deref();
            let invalid = annotations.is_some_and(|annotations| !annotations.invalid.is_empty());
            let key = || {
                ObjectKey::new(
                    Kind::Service,
                    Arc::clone(&name.namespace),
                    Arc::clone(&name.name),
                )
            };
            Vec::from_iter(invalid.then(key))
        },
    );
    b.derive(
        "service notices",
        invalid,
        move |reader, key: &ObjectKey| {
            let service = reader.get(services, &key.namespaced_name())?;
            let annotations = service.annotations.as_deref()?;
            let notices = Notices {
                errors: Vec::new(),
                warnings: annotations.invalid.to_vec(),
            };
            notices.non_empty()
        },
    )
}
