//! Hosts that Envoys reject, and what is served in their place.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::route::v3 as pb;
use prost::Message;
use prost::bytes::Bytes;
use sesame_model::{FleetId, VirtualHostKey};

use super::tables::{Tables, shard_of};
use crate::{names, route, wire};

/// The minimum length of a quoted text that identifies a host, in bytes.
const MIN_QUOTE: usize = 4;

/// A host that may be the cause of a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The host.
    pub key: VirtualHostKey,
    /// Its last accepted version, as the bytes of a `VirtualHost`; `None` if there isn't one.
    pub last_good: Option<Bytes>,
}

/// A version of a route table, or of a shard, that an Envoy rejected.
#[derive(Clone, Copy, Debug)]
pub struct RejectedRoutes<'a> {
    /// The Envoy's fleet.
    pub fleet: &'a FleetId,
    /// The name of the resource.
    pub name: &'a str,
    /// The rejected version.
    pub body: &'a [u8],
    /// The last accepted version.
    pub last_good: Option<&'a [u8]>,
    /// Envoy's message.
    pub message: &'a str,
}

impl Suspect {
    /// The bytes of the host that is served instead.
    pub(super) fn replacement(&self) -> Bytes {
        let unavailable = || wire::virtual_host(route::unavailable(&self.key.domain)).into();
        self.last_good.clone().unwrap_or_else(unavailable)
    }
}

impl Tables {
    /// The hosts that may be the cause of a rejection: those that differ from the last accepted version, haven't changed
    /// since, and aren't held. If the message quotes text from some of them, only those.
    pub(super) fn suspects(&self, rejected: RejectedRoutes<'_>) -> Vec<Suspect> {
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
        let quotes = quotes(rejected.message);
        let (mut quoted, mut others) = (Vec::new(), Vec::new());
        for (domain, host) in decode(rejected.body) {
            let before = last_good.remove(&domain);
            let key = VirtualHostKey {
                table: table_key.clone(),
                domain: domain.into(),
            };
            let place = (shard_of(self.sharding, &key.domain), key.domain.clone());
            let Some(current) = table.hosts.get(&place) else {
                continue;
            };
            let unchanged = || pb::VirtualHost::decode(&**current).is_ok_and(|now| now == host);
            if before.as_ref() == Some(&host) || table.held.contains_key(&place) || !unchanged() {
                continue;
            }
            let suspect = Suspect {
                key,
                last_good: before.map(|host| wire::virtual_host(host).into()),
            };
            match quotes.iter().any(|quote| contains(current, quote)) {
                true => quoted.push(suspect),
                false => others.push(suspect),
            }
        }
        match quoted.is_empty() {
            true => others,
            false => quoted,
        }
    }

    /// Serves a suspect's last accepted version, or 503 responses, until the host changes or is released.
    pub(super) fn hold(&mut self, suspect: &Suspect) {
        let key = &suspect.key;
        let place = (shard_of(self.sharding, &key.domain), key.domain.clone());
        let table = self.tables.get_mut(&key.table);
        if let Some(table) = table.filter(|table| table.hosts.contains_key(&place)) {
            self.held_changes.insert((key.table.clone(), place.0));
            table.held.insert(place, suspect.replacement());
        }
    }

    /// Serves the current version of a host.
    pub(super) fn release(&mut self, key: &VirtualHostKey) {
        let place = (shard_of(self.sharding, &key.domain), key.domain.clone());
        let table = self.tables.get_mut(&key.table);
        if table.is_some_and(|table| table.held.remove(&place).is_some()) {
            self.held_changes.insert((key.table.clone(), place.0));
        }
    }
}

/// The texts in single quotes.
fn quotes(message: &str) -> Vec<&str> {
    let quotes = message.split('\'').skip(1).step_by(2);
    quotes.filter(|quote| quote.len() >= MIN_QUOTE).collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}
