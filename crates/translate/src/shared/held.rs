//! Hosts that Envoys reject although they are valid.
//!
//! In: the rejected hosts, each with Envoy's message. Out: a message about each for the status of its objects. It must not
//! depend on kinds of objects.
//!
//! The caller serves the last accepted version of such a host, or 503 responses, until the host changes.

use std::collections::BTreeSet;

use sesame_api::ObjectKey;
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{FleetId, VirtualHostKey};

use crate::problem::bounded;
use crate::shared::covering::Covering;
use crate::shared::hosts::{self, Sources};

/// The objects with routes for a rejected host, and Envoy's message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    objects: BTreeSet<ObjectKey>,
    message: String,
}

/// Rejected hosts by the objects with routes for them.
pub(crate) type ByObject = Index<VirtualHostKey, Held, ObjectKey>;

/// Declares the messages. Only rejected hosts are read again. Also returns the fleets with such hosts.
pub(crate) fn stages(
    b: &mut Builder,
    rejected: Table<VirtualHostKey, String>,
    sources: Sources,
) -> (ByObject, Index<VirtualHostKey, Held, FleetId>) {
    let held = b.derive("rejected hosts", rejected, move |reader, key| {
        let message = reader.get(rejected, key)?;
        let port = hosts::port(&key.table);
        let covering = Covering::read(reader, sources.points_by_domain, &port, &key.domain);
        let listeners = hosts::with_table(&covering, &key.table);
        let objects = hosts::objects(reader, sources, key, &listeners);
        let objects = objects.iter().map(|object| hosts::object_of(&object.key));
        Some(Held {
            objects: objects.collect(),
            message: String::clone(&message),
        })
    });
    let by_object = b.index(held, "rejected hosts by object", |_, held: &Held| {
        held.objects.iter().cloned().collect()
    });
    let by_fleet = b.index(
        held,
        "rejected hosts by fleet",
        |key: &VirtualHostKey, _| vec![key.table.fleet.clone()],
    );
    (by_object, by_fleet)
}

/// A message about an object's rejected hosts.
pub(crate) fn message(
    reader: &mut Reader<'_>,
    by_object: ByObject,
    object: &ObjectKey,
) -> Option<String> {
    let hosts = reader.by(by_object, object);
    let messages = hosts.iter().map(|(host, held)| {
        format!(
            "Envoy rejected the configuration of host {} ({}); until it changes, its last accepted version is served, or, if \
             there isn't one, requests get 503 or TLS connections are closed",
            host.domain, held.message
        )
    });
    let messages: BTreeSet<String> = messages.collect();
    let messages = Vec::from_iter(messages);
    (!messages.is_empty()).then(|| bounded(messages.join("; ")))
}
