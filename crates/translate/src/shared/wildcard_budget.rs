//! Limits on large rules for wildcard hosts.
//!
//! In: the rules and attachments of all sources. Out: the objects whose rules aren't served on wildcard hosts of a table,
//! or on the hosts below.
//!
//! Each shard of a port's route table contains all wildcard hosts, so an Envoy reads them again with each change on the
//! port. A host that doesn't take all its requests itself also has the rules of wildcard hosts above it, so a small number
//! of objects could multiply to gigabytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_api::{ObjectKey, reason};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{RouteTableKey, VirtualHostKey};

use crate::problem::Problem;
use crate::shared::hostname;
use crate::shared::hosts::{self, Attachments, RouteRules};
use crate::shared::precedence::Seniority;

/// The maximum size of all rules for wildcard hosts of a table, in bytes. The oldest objects come first.
const MAX_TABLE: usize = 8 * 1024 * 1024;
/// An object whose rules take less on the wildcard hosts of a table, in bytes, isn't counted.
const MIN_OF_TABLE: usize = 32 * 1024;
/// The maximum size of an object's rules on the hosts below its wildcard hosts, in bytes.
const MAX_BELOW: usize = 2 * 1024 * 1024;
/// Rules that take less on all wildcard hosts, in bytes, may be on any number of hosts below.
const SMALL: usize = 4 * 1024;
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
}

/// The hosts below a wildcard host that aren't full. The flag is [`Open::owned`].
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

/// The objects whose rules for wildcard hosts of a table aren't served.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeftOut(BTreeMap<ObjectKey, Excess>);

#[derive(Clone, Debug, PartialEq)]
struct Excess {
    own: Size,
    /// The size of the rules of older objects on wildcard hosts, in bytes.
    older: usize,
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
        move |reader, table| left_out(reader, by_table, table),
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
    for row in reader.keys(by_host, key) {
        owned |= row.kind.is_http_proxy();
        if reader.get(rules, &row)?.takes_everything() {
            return None;
        }
    }
    Some(Open { owned })
}

fn share(reader: &mut Reader<'_>, below: Below, object: &ObjectKey, large: &Large) -> Share {
    let mut tables: BTreeMap<RouteTableKey, Size> = BTreeMap::new();
    for (host, bytes) in &large.hosts {
        let size = tables.entry(host.table.clone()).or_default();
        let mut hosts = reader.count(below, &(host.clone(), false));
        if !object.kind.is_http_proxy() {
            hosts += reader.count(below, &(host.clone(), true));
        }
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
    table: &RouteTableKey,
) -> Option<LeftOut> {
    let mut shares = reader.by(by_table, table);
    shares.sort_by(|(_, a), (_, b)| a.seniority.cmp(&b.seniority));
    let mut left_out = BTreeMap::new();
    let mut older = 0;
    for (object, share) in shares {
        let own = share.tables[table];
        let counted = own.wildcards >= MIN_OF_TABLE;
        if own.below > MAX_BELOW || (counted && older + own.wildcards > MAX_TABLE) {
            left_out.insert(object, Excess { own, older });
        } else if counted {
            older += own.wildcards;
        }
    }
    (!left_out.is_empty()).then_some(LeftOut(left_out))
}

impl LeftOut {
    /// Whether an object's rules aren't served on wildcard hosts of the table.
    pub(crate) fn contains(&self, row: &ObjectKey) -> bool {
        self.0.contains_key(&hosts::object_of(row))
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
        let Excess { own, older } = left_out.0.get(object)?;
        Some(own.message(table.port, *older))
    });
    messages.collect()
}

impl Size {
    fn message(self, port: u16, older: usize) -> String {
        let wildcards = self.wildcards.div_ceil(1024);
        match self.below > MAX_BELOW {
            true => format!(
                "the rules take about {wildcards} KiB on wildcard hosts of port {port}, and {} KiB on {} hosts below, which \
                 don't take all their requests themselves; the limit is {} KiB; use fewer matches, shorter filters or a \
                 narrower wildcard, or add rules for path / to the hosts below",
                self.below.div_ceil(1024),
                self.hosts,
                MAX_BELOW / 1024
            ),
            false => format!(
                "the rules take about {wildcards} KiB on wildcard hosts of port {port}, where those of older objects take {} \
                 KiB; the limit is {} KiB; use hosts without wildcards, fewer matches, or shorter filters",
                older.div_ceil(1024),
                MAX_TABLE / 1024
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
