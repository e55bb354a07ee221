//! The hosts that the rules of Ingresses apply to.

use std::sync::Arc;

use sesame_api::{Ingress, ObjectKey};
use sesame_engine::{Builder, Reader, Table};

use super::annotations::{self, PlainHttp};
use super::tls::{self, TlsStages};
use super::{Read, routes};
use crate::inputs::Inputs;
use crate::settings::Settings;
use crate::shared::default_fleet::Sources;
use crate::shared::hostname;
use crate::shared::hosts::{self, AttachedHost, Attachments};
use crate::shared::listeners::{ListenerRef, Protocol};

/// Declares the attachments, by Ingress and host.
pub(super) fn stage(
    b: &mut Builder,
    inputs: &Inputs,
    read: Read,
    tls: TlsStages,
    sources: Sources,
) -> Table<ObjectKey, Attachments> {
    let (ingresses, settings) = (inputs.ingresses, inputs.settings);
    b.derive_many("ingress attachments", read.ours, move |reader, key| {
        let rows = rows(reader, (ingresses, settings), read, tls, sources, key);
        rows.unwrap_or_default()
    })
}

fn rows(
    reader: &mut Reader<'_>,
    (ingresses, settings): (Table<ObjectKey, Ingress>, Table<(), Settings>),
    read: Read,
    tls: TlsStages,
    sources: Sources,
    key: &ObjectKey,
) -> Option<Vec<(ObjectKey, Attachments)>> {
    let ours = reader.get(read.ours, key)?;
    let ingress = reader.get(ingresses, key)?;
    let settings = reader.get(settings, &())?;
    let plain = match annotations::plain_http(&ingress) {
        PlainHttp::Served | PlainHttp::Redirected => reader.get(sources.listener, &()),
        PlainHttp::Refused => None,
    };
    let mut rows = Vec::new();
    for host in &ours.hosts {
        let attached = |listener: Arc<ListenerRef>, domain: &Arc<str>| AttachedHost {
            listener,
            domain: Arc::clone(domain),
            original: Arc::clone(host),
        };
        let mut hosts = Vec::new();
        hosts.extend(plain.clone().map(|listener| attached(listener, host)));
        let with_tls = match **host == *hostname::ANY {
            // With TLS, rules for all hosts apply only to the Ingress's own hosts; other hosts may have other owners.
            true => {
                let own = reader.get(read.tls, key);
                let own = own.iter().flat_map(|own| own.hosts.keys());
                own.cloned().collect()
            }
            false => vec![Arc::clone(host)],
        };
        for domain in with_tls {
            if reader.exists(tls.owners, &domain) {
                let listener = tls::listener(&settings, &domain).listener;
                let attached = attached(listener, &domain);
                // Rules for all hosts don't limit a wildcard to one label; a separate row applies them with this limit.
                match domain.starts_with('*') && domain != *host {
                    true => rows.push(row(routes::wildcard_key(key, &domain), vec![attached])),
                    false => hosts.push(attached),
                }
            }
        }
        let protocols: &[Protocol] = match plain {
            Some(_) => &[Protocol::Http, Protocol::Https],
            None => &[Protocol::Https],
        };
        hosts.extend(
            sources
                .gateways
                .hosts(reader, (key.kind, &key.namespace), host, protocols),
        );
        hosts.shrink_to_fit();
        rows.push(row(hosts::row_key(key, host), hosts));
    }
    Some(rows)
}

fn row(key: ObjectKey, hosts: Vec<AttachedHost>) -> (ObjectKey, Attachments) {
    let attachments = Attachments {
        parents: Vec::new(),
        hosts,
        oversized: false,
        limited: false,
    };
    (key, attachments)
}
