//! Limits on large rules for wildcard hosts.
//!
//! In: the rules and attachments of all sources. Out: the objects whose rules aren't served on wildcard hosts of a table,
//! or on some of the hosts below.
//!
//! Each shard of a port's route table contains all wildcard hosts, so an Envoy reads them again with each change on the
//! port. A host that doesn't take all its requests itself also has the rules of wildcard hosts above it, so a small number
//! of objects could multiply to gigabytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_api::{ObjectKey, reason};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{RouteTableKey, VirtualHostKey};

use crate::problem::Problem;
use crate::shared::hostname;
use crate::shared::hosts::{self, Attachments, RouteRules};
use crate::shared::precedence::Seniority;

/// The maximum size of all rules for wildcard hosts of a table, in bytes. The oldest objects come first.
const MAX_TABLE: usize = 1024 * 1024;
/// An object whose rules take less on the wildcard hosts of a table, in bytes, isn't counted.
const MIN_OF_TABLE: usize = 32 * 1024;
/// The maximum size of an object's rules on the hosts below its wildcard hosts, in bytes. The oldest hosts come first.
const MAX_BELOW: usize = 2 * 1024 * 1024;
/// Rules that take less on all wildcard hosts, in bytes, may be on any number of hosts below.
const SMALL: usize = 2 * 1024;
/// The approximate size of a host without its routes, in bytes.
const HOST: usize = 128;

/// An object with large rules for wildcard hosts.
#[derive(Clone, Debug, PartialEq)]
struct Large {
    seniority: Seniority,
    /// The wildcard hosts, and the size of the rules on each, in bytes.
    hosts: Vec<(VirtualHostKey, usize)>,
}

/// A host with requests that none of its own objects takes.
#[derive(Clone, Debug, PartialEq)]
struct Open {
    /// Whether it belongs to an HTTPProxy, which excludes rules of others.
    owned: bool,
    /// The oldest object with rules for it.
    oldest: Seniority,
}

/// The open hosts below a wildcard host. The flag is [`Open::owned`].
type Below = Index<VirtualHostKey, Open, (VirtualHostKey, bool)>;

/// The size of an object's rules for a table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Size {
    /// On wildcard hosts, in bytes.
    wildcards: usize,
    /// On the hosts below, in bytes.
    below: usize,
    /// The number of hosts below.
    hosts: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Share {
    seniority: Seniority,
    tables: BTreeMap<RouteTableKey, Size>,
}

/// The objects whose rules for wildcard hosts of a table aren't served everywhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeftOut(BTreeMap<ObjectKey, Excess>);

#[derive(Clone, Debug, PartialEq)]
struct Excess {
    own: Size,
    at: Place,
}

/// Where rules aren't served.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    /// On all wildcard hosts of the table, and below. `older` is the size of the rules of older objects there, in bytes.
    Everywhere { older: usize },
    /// On these hosts below.
    Below(BTreeSet<Arc<str>>),
}

/// What is left out, by table.
pub(crate) type ByTable = Table<RouteTableKey, LeftOut>;

/// What is left out, by object.
pub(crate) type ByObject = Index<RouteTableKey, LeftOut, ObjectKey>;

/// Declares what is left out.
pub(crate) fn stages(
    b: &mut Builder,
    attachments: Table<ObjectKey, Attachments>,
    by_host: Index<ObjectKey, Attachments, VirtualHostKey>,
    rules: Table<ObjectKey, RouteRules>,
) -> (ByTable, ByObject) {
    let rows = b.index(
        attachments,
        "attachments to wildcard hosts",
        |row: &ObjectKey, attachments: &Attachments| {
            let any = on_wildcards(attachments).next();
            Vec::from_iter(any.map(|_| hosts::object_of(row)))
        },
    );
    let large = b.derive(
        "large rules for wildcard hosts",
        rows,
        move |reader, object| large(reader, rows, rules, object),
    );
    let tables = b.index(
        large,
        "large rules for wildcard hosts by table",
        |_, large: &Large| {
            let mut tables: Vec<_> = large
                .hosts
                .iter()
                .map(|(host, _)| host.table.clone())
                .collect();
            tables.dedup();
            tables
        },
    );
    let with_large = b.derive("tables with large wildcard hosts", tables, |_, _| Some(()));
    let open = b.derive(
        "open hosts",
        by_host,
        move |reader, key: &VirtualHostKey| {
            // Most tables have none.
            let any = reader.exists(with_large, &key.table);
            any.then(|| open(reader, by_host, rules, key)).flatten()
        },
    );
    let below = b.index(
        open,
        "open hosts by wildcard host",
        |key: &VirtualHostKey, open| {
            let wider = hostname::widening(&key.domain).skip(1);
            let key = |domain: String| VirtualHostKey {
                table: key.table.clone(),
                domain: domain.into(),
            };
            wider.map(|domain| (key(domain), open.owned)).collect()
        },
    );
    let shares = b.derive("shares of wildcard hosts", large, move |reader, object| {
        let large = reader.get(large, object)?;
        Some(share(reader, below, object, &large))
    });
    let by_table = b.index(
        shares,
        "shares of wildcard hosts by table",
        |_, share: &Share| share.tables.keys().cloned().collect(),
    );
    let left_out = b.derive(
        "left out on wildcard hosts",
        by_table,
        move |reader, table| left_out(reader, by_table, large, below, table),
    );
    let by_object = b.index(
        left_out,
        "left out on wildcard hosts by object",
        |_, left_out: &LeftOut| left_out.0.keys().cloned().collect(),
    );
    (left_out, by_object)
}

/// An object's wildcard hosts in route tables.
fn on_wildcards(attachments: &Attachments) -> impl Iterator<Item = (&RouteTableKey, &Arc<str>)> {
    let hosts = attachments.hosts.iter();
    hosts
        .filter(|host| host.domain.starts_with('*'))
        .filter_map(|host| Some((host.listener.table.as_ref()?, &host.domain)))
}

fn large(
    reader: &mut Reader<'_>,
    rows: Index<ObjectKey, Attachments, ObjectKey>,
    rules: Table<ObjectKey, RouteRules>,
    object: &ObjectKey,
) -> Option<Large> {
    let mut seniority = None;
    let mut hosts = Vec::new();
    for (row, attachments) in reader.by(rows, object) {
        let Some(rules) = reader.get(rules, &row).filter(|_| !attachments.oversized) else {
            continue;
        };
        let bytes = HOST + rules.bytes();
        hosts.extend(on_wildcards(&attachments).map(|(table, domain)| {
            let (table, domain) = (table.clone(), Arc::clone(domain));
            (VirtualHostKey { table, domain }, bytes)
        }));
        seniority = Some(rules.seniority.clone());
    }
    hosts.sort();
    let bytes: usize = hosts.iter().map(|(_, bytes)| bytes).sum();
    let seniority = seniority.filter(|_| bytes >= SMALL)?;
    Some(Large { seniority, hosts })
}

/// `None` if an object takes all requests of the host.
fn open(
    reader: &mut Reader<'_>,
    by_host: Index<ObjectKey, Attachments, VirtualHostKey>,
    rules: Table<ObjectKey, RouteRules>,
    key: &VirtualHostKey,
) -> Option<Open> {
    let mut owned = false;
    let mut oldest: Option<Seniority> = None;
    for row in reader.keys(by_host, key) {
        let Some(rules) = reader.get(rules, &row) else {
            continue;
        };
        if rules.takes_everything() {
            return None;
        }
        owned |= row.kind.is_http_proxy();
        let own = &rules.seniority;
        if oldest.as_ref().is_none_or(|oldest| own < oldest) {
            oldest = Some(own.clone());
        }
    }
    let oldest = oldest?;
    Some(Open { owned, oldest })
}

/// The values of [`Open::owned`] of hosts that get an object's rules.
fn reached(object: &ObjectKey) -> &'static [bool] {
    match object.kind.is_http_proxy() {
        true => &[false],
        false => &[false, true],
    }
}

fn share(reader: &mut Reader<'_>, below: Below, object: &ObjectKey, large: &Large) -> Share {
    let mut tables: BTreeMap<RouteTableKey, Size> = BTreeMap::new();
    for (host, bytes) in &large.hosts {
        let size = tables.entry(host.table.clone()).or_default();
        let owned = reached(object).iter();
        let hosts = owned.map(|owned| reader.count(below, &(host.clone(), *owned)));
        let hosts: usize = hosts.sum();
        size.wildcards += bytes;
        size.below += bytes * hosts;
        size.hosts += hosts;
    }
    Share {
        seniority: large.seniority.clone(),
        tables,
    }
}

fn left_out(
    reader: &mut Reader<'_>,
    by_table: Index<ObjectKey, Share, RouteTableKey>,
    large: Table<ObjectKey, Large>,
    below: Below,
    table: &RouteTableKey,
) -> Option<LeftOut> {
    let mut shares = reader.by(by_table, table);
    shares.sort_by(|(_, a), (_, b)| a.seniority.cmp(&b.seniority));
    let mut left_out = BTreeMap::new();
    let mut older = 0;
    for (object, share) in shares {
        let own = share.tables[table];
        let counted = own.wildcards >= MIN_OF_TABLE;
        if counted && older + own.wildcards > MAX_TABLE {
            let at = Place::Everywhere { older };
            left_out.insert(object, Excess { own, at });
            continue;
        }
        if counted {
            older += own.wildcards;
        }
        if own.below > MAX_BELOW
            && let Some(large) = reader.get(large, &object)
        {
            let at = Place::Below(too_many(reader, below, &object, &large, table));
            left_out.insert(object, Excess { own, at });
        }
    }
    (!left_out.is_empty()).then_some(LeftOut(left_out))
}

/// The youngest hosts below an object's wildcard hosts, on which its rules would exceed the limit.
fn too_many(
    reader: &mut Reader<'_>,
    below: Below,
    object: &ObjectKey,
    large: &Large,
    table: &RouteTableKey,
) -> BTreeSet<Arc<str>> {
    let mut hosts = Vec::new();
    let wildcards = large.hosts.iter().filter(|(host, _)| host.table == *table);
    for (wildcard, bytes) in wildcards {
        for owned in reached(object) {
            let open = reader.by(below, &(wildcard.clone(), *owned)).into_iter();
            hosts.extend(open.map(|(host, open)| (open.oldest.clone(), host.domain, *bytes)));
        }
    }
    hosts.sort();
    let mut total = 0;
    let exceeding = |(_, domain, bytes): (Seniority, Arc<str>, usize)| {
        total += bytes;
        (total > MAX_BELOW).then_some(domain)
    };
    hosts.into_iter().filter_map(exceeding).collect()
}

impl LeftOut {
    /// Whether an object's rules for a wildcard host aren't served on `domain`, which is that host or one below.
    pub(crate) fn contains(&self, row: &ObjectKey, domain: &str) -> bool {
        let excess = self.0.get(&hosts::object_of(row));
        excess.is_some_and(|excess| match &excess.at {
            Place::Everywhere { .. } => true,
            Place::Below(hosts) => hosts.contains(domain),
        })
    }
}

/// Why an object's rules aren't served on wildcard hosts, as a sentence for each port.
pub(crate) fn messages(
    reader: &mut Reader<'_>,
    by_object: ByObject,
    object: &ObjectKey,
) -> Vec<String> {
    let tables = reader.by(by_object, object);
    let messages = tables.iter().filter_map(|(table, left_out)| {
        let excess = left_out.0.get(object)?;
        Some(excess.message(table.port))
    });
    messages.collect()
}

impl Excess {
    fn message(&self, port: u16) -> String {
        let wildcards = self.own.wildcards.div_ceil(1024);
        match &self.at {
            Place::Everywhere { older } => format!(
                "the rules take about {wildcards} KiB on wildcard hosts of port {port}, where those of older objects take {} \
                 KiB; the limit is {} KiB; use hosts without wildcards, fewer matches or shorter filters, or objects with less than \
                 {} KiB there, which are not counted",
                older.div_ceil(1024),
                MAX_TABLE / 1024,
                MIN_OF_TABLE / 1024
            ),
            Place::Below(hosts) => format!(
                "the rules for wildcard hosts of port {port} are not served on {} of the {} hosts below that don't take all \
                 their requests themselves, such as {}: together they would take about {} KiB, and the limit is {} KiB; use \
                 fewer matches, shorter filters or a narrower wildcard, or add rules for path / to the hosts below",
                hosts.len(),
                self.own.hosts,
                hosts.first().map_or("", |host| host),
                self.own.below.div_ceil(1024),
                MAX_BELOW / 1024
            ),
        }
    }
}

/// The problem with a route of the Gateway API that isn't served on wildcard hosts.
pub(crate) fn problem(
    reader: &mut Reader<'_>,
    by_object: ByObject,
    object: &ObjectKey,
    (attachments, rules): (&Attachments, &RouteRules),
) -> Option<Problem> {
    // Most routes aren't counted, so reading the index for each would waste memory.
    let hosts = on_wildcards(attachments).count();
    if hosts * (HOST + rules.bytes()) < SMALL {
        return None;
    }
    let messages = messages(reader, by_object, object);
    (!messages.is_empty()).then(|| {
        let message = format!("Dropped Rule: {}", messages.join("; "));
        Problem::new(reason::route::UNSUPPORTED_VALUE, message)
    })
}
