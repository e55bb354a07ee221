//! Route tables, whole or in shards, and the listeners that answer from them.
//!
//! In: listeners, encoded tables and hosts. Out: which listeners, scopes and route tables changed. It must not know other
//! resources.
//!
//! A table is one resource while it is small. Where it has many hosts it is in [`SHARDS`] of them, so that a
//! changed host costs an Envoy one shard. Going from one form to the other replaces the listener, whose connections
//! are drained; while that may take, the Envoys get both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message;
use prost::bytes::Bytes;
use sesame_engine::{Change, Commit};
use sesame_model::{FleetId, Listener, ListenerKey, ListenerKind, RouteTableKey};

use super::{ResourceChange, bytes};
use crate::route::{scope, shard_tail, table_tail};
use crate::shard::{Means, SHARDS, is_everywhere, shard};
use crate::{Encoded, EncodedTable, Inputs, Sharding, listener, names, wire};

/// From how many hosts on a table is in shards.
const MANY: usize = 400;
/// Below how many it is whole again.
const FEW: usize = 200;
/// Hosts that are in every shard may be one of so many for a table to be put in shards: copies cost memory, and a change of
/// theirs costs every shard.
const OWN_TO_EVERYWHERE: usize = 16;

/// Where a host is that is in every shard: behind all shards.
const EVERYWHERE: u32 = SHARDS;

/// The tables of all fleets.
#[derive(Debug)]
pub(super) struct Tables {
    sharding: Sharding,
    /// Behind the hosts of every whole table.
    tail: Bytes,
    /// Behind those of every shard.
    shard_tail: Bytes,
    tables: BTreeMap<RouteTableKey, Table>,
    listeners: BTreeMap<ListenerKey, Arc<Listener>>,
    replaced: u64,
}

/// What a route table is joined from.
#[derive(Debug, Default)]
struct Table {
    /// Absent: hosts are here, but the table is not (yet).
    table: Option<Arc<EncodedTable>>,
    /// With their [`place`]s.
    hosts: BTreeMap<(u32, Arc<str>), Bytes>,
    /// How many of the hosts are [`EVERYWHERE`].
    everywhere: usize,
    /// What the listener answers from.
    form: Form,
    /// The Envoys get the other form, too.
    both: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Whole,
    Shards,
}

/// What of a table may have changed.
#[derive(Debug)]
enum Touched {
    All,
    Shards(BTreeSet<u32>),
}

impl Tables {
    pub(super) fn new(sharding: Sharding) -> Self {
        Self {
            sharding,
            tail: table_tail().encode_to_vec().into(),
            shard_tail: shard_tail().encode_to_vec().into(),
            tables: BTreeMap::new(),
            listeners: BTreeMap::new(),
            replaced: 0,
        }
    }

    /// What the commit changes.
    pub(super) fn apply(
        &mut self,
        inputs: &Inputs,
        encoded: &Encoded,
        commit: &Commit,
        out: &mut Vec<ResourceChange>,
    ) {
        let mut listeners = BTreeSet::new();
        for (key, change) in commit.changes(inputs.listeners) {
            match change {
                Change::Upsert(listener) => {
                    self.listeners.insert(key.clone(), Arc::clone(listener));
                    listeners.insert(key.clone());
                }
                Change::Remove => {
                    self.listeners.remove(key);
                    out.push(resource(
                        &key.fleet,
                        names::LISTENER,
                        names::listener(key),
                        None,
                    ));
                }
            }
        }
        for (key, (touched, before)) in self.take(encoded, commit) {
            let Some(mut table) = self.tables.remove(&key) else {
                continue;
            };
            let (form, both) = (table.form, table.both);
            self.renew(&key, &mut table, &touched, before, out);
            self.replaced += u64::from(table.both && (table.form != form || !both));
            if table.form != form {
                let listener = ListenerKey {
                    fleet: key.fleet.clone(),
                    port: key.port,
                };
                let there = self.listeners.get(&listener);
                if there.is_some_and(|listener| answers_from(listener, &key)) {
                    listeners.insert(listener);
                }
            }
            if !table.is_empty() {
                self.tables.insert(key, table);
            }
        }
        for key in listeners {
            out.extend(self.listener(&key));
        }
    }

    /// All that a fleet has.
    pub(super) fn resources(&self, fleet: &FleetId, out: &mut Vec<ResourceChange>) {
        let listeners = self.listeners.keys().filter(|key| key.fleet == *fleet);
        out.extend(listeners.filter_map(|key| self.listener(key)));
        for (key, table) in &self.tables {
            if key.fleet == *fleet && table.table.is_some() {
                for form in table.given() {
                    self.scopes(key, form, true, out);
                    self.routes(key, table, form, &Touched::All, out);
                }
            }
        }
    }

    /// How many tables began to be given in both forms so far.
    pub(super) fn replaced(&self) -> u64 {
        self.replaced
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.listeners.is_empty()
    }

    /// No connections of replaced listeners are left.
    pub(super) fn settle(&mut self, out: &mut Vec<ResourceChange>) {
        let mut former = Vec::new();
        for (key, table) in &mut self.tables {
            if std::mem::take(&mut table.both) {
                former.push((key.clone(), table.form.other()));
            }
        }
        for (key, form) in former {
            self.withdraw(&key, form, out);
        }
    }

    /// Takes in what the commit says of tables and their hosts: which of them it touches, and whether they were there
    /// before.
    fn take(
        &mut self,
        encoded: &Encoded,
        commit: &Commit,
    ) -> BTreeMap<RouteTableKey, (Touched, bool)> {
        let mut out = BTreeMap::new();
        for (key, change) in commit.changes(encoded.route_tables) {
            let table = self.tables.entry(key.clone()).or_default();
            let before = std::mem::replace(&mut table.table, change.value().cloned());
            let place = |domain: &str| place(self.sharding, domain);
            let touched = table.differences(before.as_deref(), place);
            out.insert(key.clone(), (touched, before.is_some()));
        }
        for (key, change) in commit.changes(encoded.virtual_hosts) {
            let table = self.tables.entry(key.table.clone()).or_default();
            let place = place(self.sharding, &key.domain);
            let host = (place, key.domain.clone());
            let (before, after) = match bytes(change) {
                Some(bytes) => (table.hosts.insert(host, bytes).is_some(), true),
                None => (table.hosts.remove(&host).is_some(), false),
            };
            if place == EVERYWHERE {
                table.everywhere += usize::from(after);
                table.everywhere -= usize::from(before);
            }
            let there = table.table.is_some();
            let touched = out
                .entry(key.table.clone())
                .or_insert_with(|| (Touched::none(), there));
            touched.0.add(place);
        }
        out
    }

    /// Tells what has become of a table that was there `before` or was not.
    fn renew(
        &self,
        key: &RouteTableKey,
        table: &mut Table,
        touched: &Touched,
        before: bool,
        out: &mut Vec<ResourceChange>,
    ) {
        if table.table.is_none() {
            if before {
                table.given().for_each(|form| self.withdraw(key, form, out));
            }
            (table.form, table.both) = (Form::Whole, false);
            return;
        }
        let form = table.suited(table.form, self.sharding);
        let had: Vec<Form> = if before {
            table.given().collect()
        } else {
            vec![]
        };
        if !before {
            // Whoever served it before, another Sesame or the one that was here, may have had it in shards: some Envoys may
            // answer from these.
            table.both = form != table.suited(Form::Shards, self.sharding);
            table.form = form;
        } else if form != table.form {
            table.form = form;
            table.both = true;
        }
        for form in table.given() {
            if had.contains(&form) {
                self.routes(key, table, form, touched, out);
            } else {
                self.scopes(key, form, true, out);
                self.routes(key, table, form, &Touched::All, out);
            }
        }
    }

    /// The listener, answering from the forms that its tables have.
    fn listener(&self, key: &ListenerKey) -> Option<ResourceChange> {
        let sharded = |table: &RouteTableKey| {
            let table = self.tables.get(table);
            table.is_some_and(|table| table.form == Form::Shards)
        };
        let of = self.listeners.get(key)?;
        let by = |means| wire::resource(&listener(key, of, sharded, means));
        let body = Some(by(Means::Expressions));
        let name = names::listener(key);
        Some(ResourceChange {
            with_module: tables(of).any(sharded).then(|| by(Means::Module)),
            ..resource(&key.fleet, names::LISTENER, name, body)
        })
    }

    /// The resources of a table in that form, as far as they are touched.
    fn routes(
        &self,
        key: &RouteTableKey,
        table: &Table,
        form: Form,
        touched: &Touched,
        out: &mut Vec<ResourceChange>,
    ) {
        let mut push = |name: String, shard| {
            let body = table.join(&name, shard, |domain| place(self.sharding, domain), self);
            out.push(resource(&key.fleet, names::ROUTES, name, body));
        };
        match (form, touched) {
            (Form::Whole, touched) if touched.is_none() => {}
            (Form::Whole, _) => push(names::routes(key), None),
            (Form::Shards, Touched::All) => {
                (0..SHARDS).for_each(|shard| push(names::shard(key, shard), Some(shard)));
            }
            (Form::Shards, Touched::Shards(shards)) => {
                shards
                    .iter()
                    .for_each(|shard| push(names::shard(key, *shard), Some(*shard)));
            }
        }
    }

    /// The scopes of a table in that form, if it has any: they come or go.
    fn scopes(&self, key: &RouteTableKey, form: Form, come: bool, out: &mut Vec<ResourceChange>) {
        if form == Form::Shards {
            out.extend((0..SHARDS).map(|shard| {
                let name = names::shard(key, shard);
                let body = come.then(|| wire::resource(&scope(&name)));
                resource(&key.fleet, names::SCOPE, name, body)
            }));
        }
    }

    fn withdraw(&self, key: &RouteTableKey, form: Form, out: &mut Vec<ResourceChange>) {
        self.scopes(key, form, false, out);
        let names = match form {
            Form::Whole => vec![names::routes(key)],
            Form::Shards => (0..SHARDS).map(|shard| names::shard(key, shard)).collect(),
        };
        out.extend(
            names
                .into_iter()
                .map(|name| resource(&key.fleet, names::ROUTES, name, None)),
        );
    }
}

impl Table {
    /// The forms that Envoys get.
    fn given(&self) -> impl Iterator<Item = Form> + use<> {
        let other = self.both.then(|| self.form.other());
        std::iter::once(self.form).chain(other)
    }

    /// The form that suits the number of hosts, where it had that one so far. It changes later than it would have been
    /// chosen, so that a host which comes and goes doesn't replace the listener each time.
    fn suited(&self, so_far: Form, sharding: Sharding) -> Form {
        let own = self.hosts.len() - self.everywhere;
        let (many, ratio) = match so_far {
            Form::Whole => (MANY, OWN_TO_EVERYWHERE),
            Form::Shards => (FEW, OWN_TO_EVERYWHERE / 2),
        };
        let of_table = self.table.as_ref().map_or(0, |table| table.everywhere);
        let everywhere = self.everywhere + of_table;
        let large = own >= many && own >= everywhere.saturating_mul(ratio);
        match sharding {
            Sharding::Never => Form::Whole,
            Sharding::Always => Form::Shards,
            Sharding::Auto if large => Form::Shards,
            Sharding::Auto => Form::Whole,
        }
    }

    /// What of the table isn't as it was `before`, beside its hosts.
    fn differences(&self, before: Option<&EncodedTable>, place: impl Fn(&str) -> u32) -> Touched {
        let (Some(before), Some(after)) = (before, &self.table) else {
            return Touched::All;
        };
        let mut touched = Touched::none();
        if before.head != after.head {
            touched = Touched::All;
        }
        for (one, other) in [(before, &**after), (&**after, before)] {
            for (domain, _) in &one.reserved {
                let place = place(domain);
                // One that is reserved no more shows only if it has no host of its own.
                if !other.reserves(domain) && !self.hosts.contains_key(&(place, domain.clone())) {
                    touched.add(place);
                }
            }
        }
        touched
    }

    /// Own hosts and the reserved ones without a host, merged in the order of their domains: all of them, or those of a
    /// shard.
    fn join(
        &self,
        name: &str,
        shard: Option<u32>,
        place: impl Fn(&str) -> u32,
        tables: &Tables,
    ) -> Option<Bytes> {
        let table = self.table.as_ref()?;
        let none: Arc<str> = "".into();
        let of = |place: u32| {
            let range = (place, none.clone())..(place + 1, none.clone());
            self.hosts.range(range)
        };
        let (own, everywhere) = match shard {
            None => (self.hosts.range(..), None),
            Some(shard) => (of(shard), Some(of(EVERYWHERE))),
        };
        let hosts = own.chain(everywhere.into_iter().flatten());
        let mut hosts: Vec<(&str, &Bytes)> =
            hosts.map(|((_, domain), host)| (&**domain, host)).collect();
        for (domain, host) in &table.reserved {
            let place = place(domain);
            let wanted = shard.is_none_or(|shard| place == shard || place == EVERYWHERE);
            if wanted && !self.hosts.contains_key(&(place, domain.clone())) {
                hosts.push((domain, host));
            }
        }
        // Mostly two sorted sequences, or one: that costs little.
        hosts.sort_by_key(|(domain, _)| *domain);
        let hosts = hosts.iter().map(|(_, host)| *host);
        let tail = match shard {
            None => &tables.tail,
            Some(_) => &tables.shard_tail,
        };
        Some(wire::join_table(name, &table.head, hosts, tail))
    }

    fn is_empty(&self) -> bool {
        self.table.is_none() && self.hosts.is_empty()
    }
}

impl Form {
    fn other(self) -> Self {
        match self {
            Self::Whole => Self::Shards,
            Self::Shards => Self::Whole,
        }
    }
}

impl Touched {
    fn none() -> Self {
        Self::Shards(BTreeSet::new())
    }

    fn is_none(&self) -> bool {
        matches!(self, Self::Shards(shards) if shards.is_empty())
    }

    fn add(&mut self, place: u32) {
        match self {
            Self::All => {}
            Self::Shards(_) if place == EVERYWHERE => *self = Self::All,
            Self::Shards(shards) => drop(shards.insert(place)),
        }
    }
}

fn answers_from(listener: &Listener, table: &RouteTableKey) -> bool {
    tables(listener).any(|of_it| of_it == table)
}

/// The tables that a listener answers from.
fn tables(listener: &Listener) -> impl Iterator<Item = &RouteTableKey> {
    let (plain, chains) = match &listener.kind {
        ListenerKind::Http { routes } => (Some(routes), &[][..]),
        ListenerKind::Https { chains } => (None, &chains[..]),
    };
    plain
        .into_iter()
        .chain(chains.iter().map(|chain| &chain.routes))
}

/// The shard that a domain would be in, or [`EVERYWHERE`]; 0 where no table is in shards.
fn place(sharding: Sharding, domain: &str) -> u32 {
    match sharding {
        Sharding::Never => 0,
        Sharding::Auto | Sharding::Always if is_everywhere(domain) => EVERYWHERE,
        Sharding::Auto | Sharding::Always => shard(domain),
    }
}

fn resource(
    fleet: &FleetId,
    type_url: &'static str,
    name: String,
    body: Option<Bytes>,
) -> ResourceChange {
    ResourceChange {
        fleet: fleet.clone(),
        type_url,
        name,
        body,
        with_module: None,
    }
}
