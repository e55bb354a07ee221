//! The configuration of wildcard hosts on a port. Each shard of the port's route table contains all of them, so an Envoy
//! reads them again with each change on the port.
//!
//! In: the rules and attachments of all sources. Out: the objects whose rules aren't served on wildcard hosts of a table,
//! since those of older objects use up its limit.

use std::collections::BTreeMap;

use sesame_api::{ObjectKey, reason};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::RouteTableKey;

use crate::problem::Problem;
use crate::shared::hosts::{self, AttachedHost, Attachments, RouteRules};
use crate::shared::precedence::Seniority;

/// The maximum size of all counted rules for wildcard hosts of a table, in bytes.
const MAX_TABLE: usize = 8 * 1024 * 1024;
/// An object that takes less on the wildcard hosts of a table, in bytes, isn't counted.
const SMALL: usize = 32 * 1024;
/// The approximate size of a host without its routes, in bytes.
const HOST: usize = 128;

/// The size of an object's rules for wildcard hosts.
#[derive(Clone, Debug, PartialEq)]
struct Share {
    seniority: Seniority,
    /// In bytes; at least [`SMALL`].
    tables: BTreeMap<RouteTableKey, usize>,
}

/// The objects whose rules aren't served on wildcard hosts of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeftOut(BTreeMap<ObjectKey, Excess>);

#[derive(Clone, Debug, PartialEq)]
struct Excess {
    /// The size of the object's rules, in bytes.
    own: usize,
    /// The size of the rules of older objects that are served, in bytes.
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
    let shares = b.derive("share of wildcard hosts", rows, move |reader, object| {
        share(reader, rows, rules, object)
    });
    let by_table = b.index(shares, "shares of wildcard hosts", |_, share: &Share| {
        share.tables.keys().cloned().collect()
    });
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
fn on_wildcards(attachments: &Attachments) -> impl Iterator<Item = &RouteTableKey> {
    let hosts = attachments.hosts.iter();
    hosts
        .filter(|AttachedHost { domain, .. }| domain.starts_with('*'))
        .filter_map(|host| host.listener.table.as_ref())
}

fn share(
    reader: &mut Reader<'_>,
    rows: Index<ObjectKey, Attachments, ObjectKey>,
    rules: Table<ObjectKey, RouteRules>,
    object: &ObjectKey,
) -> Option<Share> {
    let mut seniority = None;
    let mut tables = BTreeMap::new();
    for (row, attachments) in reader.by(rows, object) {
        let Some(rules) = reader.get(rules, &row).filter(|_| !attachments.oversized) else {
            continue;
        };
        let bytes = HOST + rules.bytes();
        for table in on_wildcards(&attachments) {
            *tables.entry(table.clone()).or_default() += bytes;
        }
        seniority = Some(rules.seniority.clone());
    }
    tables.retain(|_, bytes| *bytes >= SMALL);
    let seniority = seniority.filter(|_| !tables.is_empty())?;
    Some(Share { seniority, tables })
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
        match older + own > MAX_TABLE {
            true => _ = left_out.insert(object, Excess { own, older }),
            false => older += own,
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
        Some(format!(
            "the rules take about {} KiB on wildcard hosts of port {}, where older objects take {} KiB; the limit is {} KiB; \
             use hosts without wildcards, fewer matches, or shorter filters",
            own.div_ceil(1024),
            table.port,
            older.div_ceil(1024),
            MAX_TABLE / 1024
        ))
    });
    messages.collect()
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
    if hosts == 0 || hosts * (HOST + rules.bytes()) < SMALL {
        return None;
    }
    let messages = messages(reader, by_object, object);
    (!messages.is_empty()).then(|| {
        let message = format!("Dropped Rule: {}", messages.join("; "));
        Problem::new(reason::route::UNSUPPORTED_VALUE, message)
    })
}
