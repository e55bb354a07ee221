//! Hosts and filter chains that Envoys reject, and what is served in their place.

use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3 as pb;
use prost::Message;
use prost::bytes::Bytes;
use sesame_model::{FleetId, ListenerKey, VirtualHostKey};

use super::tables::{Tables, number_of};
use crate::{HostBytes, names, route, wire};

/// The minimum length of a quoted text that identifies a part, in bytes.
const MIN_QUOTE: usize = 4;

/// A part of a resource that can be replaced without affecting the others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A host of a route table.
    Host(VirtualHostKey),
    /// The filter chain of a listener with this name: a server name, or `*`.
    Chain(ListenerKey, Arc<str>),
}

/// A part that may be the cause of a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The part.
    pub part: Part,
    /// Its last accepted version, as the bytes of a `VirtualHost` or `FilterChain`; `None` if there isn't one.
    pub last_good: Option<Bytes>,
}

/// A version of a listener, a route table or a shard that an Envoy rejected.
#[derive(Clone, Copy, Debug)]
pub struct RejectedVersion<'a> {
    /// The Envoy's fleet.
    pub fleet: &'a FleetId,
    /// [`names::LISTENER`] or [`names::ROUTES`].
    pub type_url: &'a str,
    /// The name of the resource.
    pub name: &'a str,
    /// The rejected version.
    pub body: &'a [u8],
    /// The last accepted version.
    pub last_good: Option<&'a [u8]>,
    /// Envoy's message.
    pub message: &'a str,
}

impl Part {
    /// The fleet whose Envoys get the part.
    pub fn fleet(&self) -> &FleetId {
        match self {
            Self::Host(host) => &host.table.fleet,
            Self::Chain(listener, _) => &listener.fleet,
        }
    }
}

impl Tables {
    /// The hosts that may be the cause of a rejection: those that differ from the last accepted version, haven't changed
    /// since, and aren't held.
    pub(super) fn suspected_hosts(&self, rejected: RejectedVersion<'_>) -> Vec<Suspect> {
        let decode = |body: &[u8]| {
            let table = pb::RouteConfiguration::decode(body).unwrap_or_default();
            let hosts = table.virtual_hosts.into_iter();
            hosts
                .map(|host| (host.name.clone(), host))
                .collect::<BTreeMap<String, pb::VirtualHost>>()
        };
        let name = rejected.name.split('#').next().unwrap_or_default();
        let mut tables = self.tables.iter();
        let Some((table_key, table)) =
            tables.find(|(key, _)| key.fleet == *rejected.fleet && names::routes(key) == name)
        else {
            return Vec::new();
        };
        let mut last_good = rejected.last_good.map(decode).unwrap_or_default();
        let mut suspects = Suspects::new(rejected.message);
        for (domain, host) in decode(rejected.body) {
            let before = last_good.remove(&domain);
            let key = VirtualHostKey {
                table: table_key.clone(),
                domain: domain.into(),
            };
            let place = (number_of(self.sharding, &key.domain), key.domain.clone());
            let Some(current) = table.hosts.get(&place) else {
                continue;
            };
            let current = current.concat();
            let unchanged = || pb::VirtualHost::decode(&*current).is_ok_and(|now| now == host);
            if before.as_ref() == Some(&host) || table.held.contains_key(&place) || !unchanged() {
                continue;
            }
            let suspect = Suspect {
                part: Part::Host(key),
                last_good: before.map(|host| wire::virtual_host(host).into()),
            };
            suspects.add(suspect, &current);
        }
        suspects.found()
    }

    /// Serves a host's last accepted version, or 503 responses, until the host changes or is released.
    pub(super) fn hold(&mut self, key: &VirtualHostKey, last_good: Option<Bytes>) {
        let place = (number_of(self.sharding, &key.domain), key.domain.clone());
        let table = self.tables.get_mut(&key.table);
        if let Some(table) = table.filter(|table| table.hosts.contains_key(&place)) {
            self.held_changes.insert((key.table.clone(), place.0));
            let unavailable = || wire::virtual_host(route::unavailable(&key.domain)).into();
            let held = last_good.map_or_else(unavailable, HostBytes::from);
            table.held.insert(place, held);
        }
    }

    /// Serves the current version of a host.
    pub(super) fn release(&mut self, key: &VirtualHostKey) {
        let place = (number_of(self.sharding, &key.domain), key.domain.clone());
        let table = self.tables.get_mut(&key.table);
        if table.is_some_and(|table| table.held.remove(&place).is_some()) {
            self.held_changes.insert((key.table.clone(), place.0));
        }
    }
}

/// The parts that may be the cause of a rejection. If the message quotes text from some of them, only those.
pub(super) struct Suspects<'a> {
    quotes: Vec<&'a str>,
    quoted: Vec<Suspect>,
    others: Vec<Suspect>,
}

impl<'a> Suspects<'a> {
    /// `message` is Envoy's, with quoted texts in single quotes.
    pub(super) fn new(message: &'a str) -> Self {
        let quotes = message.split('\'').skip(1).step_by(2);
        Self {
            quotes: quotes.filter(|quote| quote.len() >= MIN_QUOTE).collect(),
            quoted: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Adds a part with its encoded rejected version.
    pub(super) fn add(&mut self, suspect: Suspect, encoded: &[u8]) {
        match self.quotes.iter().any(|quote| contains(encoded, quote)) {
            true => self.quoted.push(suspect),
            false => self.others.push(suspect),
        }
    }

    /// Only those that the message quotes.
    pub(super) fn quoted(self) -> Vec<Suspect> {
        self.quoted
    }

    pub(super) fn found(self) -> Vec<Suspect> {
        match self.quoted.is_empty() {
            true => self.others,
            false => self.quoted,
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}
