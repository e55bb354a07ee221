//! Route tables, whole or sharded, and the listeners that use them.
//!
//! In: listeners, tables and encoded hosts. Out: changed listeners, scopes and route tables. It must not depend on
//! other resources.
//!
//! A small table is one resource. A table with many or large hosts is split into up to [`SHARDS`] resources, so a changed
//! host costs an Envoy only one shard. Switching to another form replaces the listener and drains its connections; until
//! then Envoys get the former form too, unless it is very large. If it is large, it gets no new hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message;
use prost::bytes::Bytes;
use sesame_engine::{Change, Commit};
use sesame_model::{FleetId, Listener, ListenerKey, Port, RouteTable, RouteTableKey};

use super::ResourceChange;
use super::chains::Chains;
use super::form::{EVERYWHERE, Form, Resized, Sizes};
use super::forms::{ChangedHosts, Forms, HostKey, Touched, Update};
use super::held::Part;
use super::listeners::{only_settings_differ, uses};
use super::on_demand::OnDemand;
use crate::route::{changes_cookies, reserved, scope, script, table_tail};
use crate::shard::{SHARDS, is_everywhere, shard};
use crate::{Encoded, HostBytes, Inputs, Sharding, names, wire};

/// The tables of all fleets.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) sharding: Sharding,
    /// The last bytes of a table or shard if one of its hosts changes cookies.
    script: Bytes,
    pub(super) tables: BTreeMap<RouteTableKey, Table>,
    /// Numbers of hosts that were held or released since the last commit.
    pub(super) held_changes: BTreeSet<(RouteTableKey, u32)>,
    /// Held parts that have changed.
    pub(super) changed: Vec<Part>,
    pub(super) listeners: BTreeMap<ListenerKey, Arc<Listener>>,
    pub(super) chains: Chains,
    pub(super) on_demand: OnDemand,
    replaced: u64,
}

/// The parts of a route table.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// `None`: the hosts exist, but the table doesn't (yet).
    table: Option<Arc<RouteTable>>,
    /// The table's reserved domains by number (see [`number_of`]).
    reserved: BTreeSet<HostKey>,
    /// Hosts by number and domain.
    pub(super) hosts: BTreeMap<HostKey, HostBytes>,
    /// What is served instead of some hosts; usually empty.
    pub(super) held: BTreeMap<HostKey, HostBytes>,
    /// The hosts that change cookies.
    scripted: BTreeSet<HostKey>,
    sizes: Sizes,
    pub(super) forms: Forms,
    /// The hosts that the current commit changes.
    changed: ChangedHosts,
}

impl Tables {
    pub(super) fn new(sharding: Sharding) -> Self {
        Self {
            sharding,
            script: script().encode_to_vec().into(),
            tables: BTreeMap::new(),
            held_changes: BTreeSet::new(),
            changed: Vec::new(),
            listeners: BTreeMap::new(),
            chains: Chains::default(),
            on_demand: OnDemand::default(),
            replaced: 0,
        }
    }

    /// Adds the changes of a commit to `out`.
    pub(super) fn apply(
        &mut self,
        inputs: &Inputs,
        encoded: &Encoded,
        commit: &Commit,
        out: &mut Vec<ResourceChange>,
    ) {
        let mut listeners = BTreeSet::new();
        let mut tuned = BTreeMap::new();
        for (key, change) in commit.changes(inputs.listeners) {
            let after = change.value().map(|listener| &**listener);
            self.on_demand.listener(key, after);
            let before = self.listeners.get(key).map(|listener| &**listener);
            self.changed.extend(self.chains.changed(key, before, after));
            match change {
                Change::Upsert(listener) => {
                    let before = self.listeners.insert(key.clone(), Arc::clone(listener));
                    let before = before.filter(|before| only_settings_differ(before, listener));
                    tuned.extend(before.map(|before| (key.clone(), before)));
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
        for (key, (touched, before)) in self.take(inputs, encoded, commit) {
            let Some(mut table) = self.tables.remove(&key) else {
                continue;
            };
            let form = table.forms.current();
            self.renew(&key, &mut table, &touched, before, out);
            let switched = match before {
                true => table.forms.current() != form,
                false => table.forms.has_former(),
            };
            self.replaced += u64::from(switched && table.table.is_some());
            if table.forms.current() != form {
                let listener = ListenerKey {
                    fleet: key.fleet.clone(),
                    port: Port::tcp(key.port),
                };
                let there = self.listeners.get(&listener);
                if there.is_some_and(|listener| uses(listener, &key)) {
                    tuned.remove(&listener);
                    listeners.insert(listener);
                }
            }
            if !table.is_empty() {
                self.tables.insert(key, table);
            }
        }
        for key in self.chains.take_touched() {
            tuned.remove(&key);
            listeners.insert(key);
        }
        for key in listeners {
            let change = self.listener(&key);
            let before = tuned.get(&key);
            let before = before.map(|before| self.encoded_listener(&key, before));
            out.extend(change.filter(|change| before.as_ref() != Some(change)));
        }
    }

    /// Adds all resources of a fleet to `out`.
    pub(super) fn resources(&self, fleet: &FleetId, out: &mut Vec<ResourceChange>) {
        let listeners = self.listeners.keys().filter(|key| key.fleet == *fleet);
        out.extend(listeners.filter_map(|key| self.listener(key)));
        for (key, table) in &self.tables {
            if key.fleet == *fleet && table.table.is_some() {
                for form in table.forms.updated() {
                    self.complete(key, table, form, out);
                }
            }
        }
    }

    /// How many times a table has started to be served in both forms.
    pub(super) fn replaced(&self) -> u64 {
        self.replaced
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.listeners.is_empty() && self.on_demand.is_empty()
    }

    /// Removes the former forms of tables, once replaced listeners have drained.
    pub(super) fn settle(&mut self, out: &mut Vec<ResourceChange>) {
        let mut former = Vec::new();
        for (key, table) in &mut self.tables {
            former.extend(table.forms.settle().map(|form| (key.clone(), form)));
        }
        for (key, form) in former {
            self.withdraw(&key, form, out);
        }
    }

    /// Stores the commit's tables and hosts. Returns the touched tables and whether each existed before.
    fn take(
        &mut self,
        inputs: &Inputs,
        encoded: &Encoded,
        commit: &Commit,
    ) -> BTreeMap<RouteTableKey, (Touched, bool)> {
        let mut out = BTreeMap::new();
        for (key, change) in commit.changes(inputs.route_tables) {
            let table = self.tables.entry(key.clone()).or_default();
            let before = table.table.is_some();
            let touched = table.replace(change.value().cloned(), self.sharding);
            out.insert(key.clone(), (touched, before));
        }
        for (key, change) in commit.changes(inputs.virtual_hosts) {
            let table = self.tables.entry(key.table.clone()).or_default();
            let number = number_of(self.sharding, &key.domain);
            let host = (number, key.domain.clone());
            let changed = match change.value().is_some_and(|host| changes_cookies(host)) {
                true => table.scripted.insert(host),
                false => table.scripted.remove(&host),
            };
            if changed {
                touch(&mut out, &key.table, table, number);
            }
        }
        for (key, change) in commit.changes(encoded.virtual_hosts) {
            let table = self.tables.entry(key.table.clone()).or_default();
            let number = number_of(self.sharding, &key.domain);
            let host = (number, key.domain.clone());
            if table.held.remove(&host).is_some() {
                self.changed.push(Part::Host(key.clone()));
            }
            let before = match change.value() {
                Some(bytes) => table.hosts.insert(host.clone(), HostBytes::clone(bytes)),
                None => table.hosts.remove(&host),
            };
            let resized = Resized {
                before: before.as_ref().map(HostBytes::len),
                after: change.value().map(|host| host.len()),
            };
            table.sizes.resize(number, resized);
            table.changed.insert(host, resized);
            touched_table(&mut out, &key.table, table);
        }
        for (key, number) in std::mem::take(&mut self.held_changes) {
            if let Some(table) = self.tables.get(&key) {
                touch(&mut out, &key, table, number);
            }
        }
        out
    }

    /// Adds a table's changes to `out`; `before` is whether it existed, and `other` are the parts that changed with something
    /// other than the bytes of hosts.
    fn renew(
        &self,
        key: &RouteTableKey,
        table: &mut Table,
        other: &Touched,
        before: bool,
        out: &mut Vec<ResourceChange>,
    ) {
        let hosts = std::mem::take(&mut table.changed);
        let suited = |so_far| table.sizes.suited(so_far, self.sharding);
        match (before, table.table.is_some()) {
            (true, true) => {
                let form = suited(table.forms.current());
                for (form, update) in table.forms.renew(form, &table.sizes, &hosts, other) {
                    match update {
                        Update::Complete => self.complete(key, table, form, out),
                        Update::Routes(touched) => self.routes(key, table, form, &touched, out),
                    }
                }
            }
            (false, true) => {
                table.forms = Forms::new(suited);
                for form in table.forms.updated() {
                    self.complete(key, table, form, out);
                }
            }
            (true, false) => {
                let mut forms = std::mem::take(&mut table.forms);
                self.withdraw(key, forms.current(), out);
                for form in forms.settle() {
                    self.withdraw(key, form, out);
                }
            }
            (false, false) => {}
        }
    }

    /// A table's resources in a form that Envoys don't have.
    fn complete(
        &self,
        key: &RouteTableKey,
        table: &Table,
        form: Form,
        out: &mut Vec<ResourceChange>,
    ) {
        self.scopes(key, form, true, out);
        self.routes(key, table, form, &Touched::All, out);
    }

    /// A table's touched resources in the given form.
    fn routes(
        &self,
        key: &RouteTableKey,
        table: &Table,
        form: Form,
        touched: &Touched,
        out: &mut Vec<ResourceChange>,
    ) {
        let mut shards: Vec<u32> = match touched {
            Touched::All => (0..form.resources).collect(),
            Touched::Numbers(numbers) => numbers.iter().map(|number| form.shard(*number)).collect(),
        };
        shards.dedup();
        out.extend(shards.into_iter().map(|shard| {
            let name = name(key, form, shard);
            let body = table.join(&name, form, shard, self);
            resource(&key.fleet, names::ROUTES, name, body)
        }));
    }

    /// Adds or removes a table's scopes in the given form, if that form has any.
    fn scopes(&self, key: &RouteTableKey, form: Form, come: bool, out: &mut Vec<ResourceChange>) {
        if form != Form::WHOLE {
            out.extend((0..SHARDS).map(|number| {
                let scoped = names::shard(key, form.resources, number);
                let shard = name(key, form, form.shard(number));
                let body = come.then(|| wire::resource(&scope(&scoped, &shard)));
                resource(&key.fleet, names::SCOPE, scoped, body)
            }));
        }
    }

    fn withdraw(&self, key: &RouteTableKey, form: Form, out: &mut Vec<ResourceChange>) {
        self.scopes(key, form, false, out);
        out.extend((0..form.resources).map(|shard| {
            let name = name(key, form, shard);
            resource(&key.fleet, names::ROUTES, name, None)
        }));
    }
}

impl Table {
    /// Replaces the table, except its hosts. Returns the parts that differ.
    fn replace(&mut self, after: Option<Arc<RouteTable>>, sharding: Sharding) -> Touched {
        let before = std::mem::replace(&mut self.table, after.clone());
        let (reserved_before, before) = parts(before.as_deref());
        let (reserved_after, after) = parts(after.as_deref());
        let mut touched = Touched::none();
        for (domain, added) in differences(reserved_before, reserved_after) {
            let number = number_of(sharding, domain);
            let key = (number, Arc::clone(domain));
            // A change to a reserved domain is visible only if the domain doesn't have a host.
            if !self.hosts.contains_key(&key) {
                touched.add(number);
            }
            let everywhere = usize::from(number == EVERYWHERE);
            if added {
                self.reserved.insert(key);
                self.sizes.reserved_everywhere += everywhere;
            } else {
                self.reserved.remove(&key);
                self.sizes.reserved_everywhere -= everywhere;
            }
        }
        match (before, after) {
            (Some(before), Some(after)) if before == after => touched,
            _ => Touched::All,
        }
    }

    /// The bytes of the table or of one shard: its hosts, and reserved domains without a host, sorted by domain.
    fn join(&self, name: &str, form: Form, shard: u32, tables: &Tables) -> Option<Bytes> {
        let table = self.table.as_ref()?;
        let lacks = |host: &HostKey| self.forms.lacks(form, host);
        let none: Arc<str> = "".into();
        let numbers = [form.numbers(shard), EVERYWHERE..EVERYWHERE + 1];
        let ranges = numbers
            .iter()
            .map(|numbers| (numbers.start, none.clone())..(numbers.end, none.clone()));
        let without_host = ranges.clone().flat_map(|range| self.reserved.range(range));
        let without_host = without_host.filter(|key| !self.hosts.contains_key(*key) || lacks(key));
        let without_host: Vec<(&str, HostBytes)> = without_host
            .map(|(_, domain)| {
                (
                    &**domain,
                    wire::virtual_host(reserved(table, domain)).into(),
                )
            })
            .collect();
        let scripted = ranges
            .clone()
            .any(|range| self.scripted.range(range).next().is_some());
        let hosts = ranges.flat_map(|range| self.hosts.range(range));
        let hosts = hosts.filter(|(key, _)| !lacks(key));
        let hosts = hosts.map(|(key, host)| (&*key.1, self.held.get(key).unwrap_or(host)));
        let mut hosts: Vec<(&str, &HostBytes)> = hosts
            .chain(without_host.iter().map(|(domain, host)| (*domain, host)))
            .collect();
        // Sorted within each number, so the sort merges runs.
        hosts.sort_by_key(|(domain, _)| *domain);
        let hosts = hosts.iter().map(|(_, host)| *host);
        let mut tail = table_tail(table, form != Form::WHOLE).encode_to_vec();
        if scripted {
            tail.extend_from_slice(&tables.script);
        }
        Some(wire::join_table(name, hosts, &tail))
    }

    fn is_empty(&self) -> bool {
        self.table.is_none() && self.hosts.is_empty()
    }
}

/// The name of a table's resource.
fn name(key: &RouteTableKey, form: Form, shard: u32) -> String {
    match form {
        Form::WHOLE => names::routes(key),
        Form { resources } => names::shard(key, resources, shard),
    }
}

/// Adds a host's number to the touched parts of its table.
fn touch(
    out: &mut BTreeMap<RouteTableKey, (Touched, bool)>,
    key: &RouteTableKey,
    table: &Table,
    number: u32,
) {
    touched_table(out, key, table).add(number);
}

/// The touched parts of a table, except those with [`Table::changed`] hosts.
fn touched_table<'a>(
    out: &'a mut BTreeMap<RouteTableKey, (Touched, bool)>,
    key: &RouteTableKey,
    table: &Table,
) -> &'a mut Touched {
    let before = table.table.is_some();
    let touched = out
        .entry(key.clone())
        .or_insert_with(|| (Touched::none(), before));
    &mut touched.0
}

/// A table's reserved domains and settings; empty without a table.
fn parts(table: Option<&RouteTable>) -> (&[Arc<str>], Option<bool>) {
    match table {
        Some(RouteTable { reserved, secure }) => (reserved, Some(*secure)),
        None => (&[], None),
    }
}

/// The items that are in only one of two sorted lists without duplicates, and whether that is the second list.
fn differences<'a, T: Ord>(before: &'a [T], after: &'a [T]) -> Vec<(&'a T, bool)> {
    let mut out = Vec::new();
    let mut before = before.iter().peekable();
    for new in after {
        while let Some(gone) = before.next_if(|old| *old < new) {
            out.push((gone, false));
        }
        if before.next_if_eq(&new).is_none() {
            out.push((new, true));
        }
    }
    out.extend(before.map(|gone| (gone, false)));
    out
}

/// The number of a domain, or [`EVERYWHERE`]; 0 if no table is sharded.
pub(super) fn number_of(sharding: Sharding, domain: &str) -> u32 {
    match sharding {
        Sharding::Never => 0,
        Sharding::Auto | Sharding::Always if is_everywhere(domain) => EVERYWHERE,
        Sharding::Auto | Sharding::Always => shard(domain),
    }
}

pub(super) fn resource(
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
