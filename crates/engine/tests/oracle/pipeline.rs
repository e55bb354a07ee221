//! A small pipeline with every kind of read, index and stage.

use std::collections::BTreeMap;
use std::fmt::Debug;

use sesame_engine::{Batch, Builder, Commit, Engine, Index, Key, Table, Value};

use crate::objects::{Gateway, Route, Step};

/// All rows of all tables, formatted with `Debug`.
pub(crate) type Dump = BTreeMap<&'static str, BTreeMap<String, String>>;

pub(crate) struct Pipeline {
    pub(crate) engine: Engine,
    gateways: Table<u8, Gateway>,
    routes: Table<u16, Route>,
    services: Table<u8, u8>,
    resolved: Table<u16, u8>,
    attached: Table<u8, usize>,
    admitted: Table<u8, Vec<u16>>,
    used: Table<u8, (bool, usize)>,
    placed: Table<u16, (u8, usize)>,
    low: Table<u16, u8>,
    high: Table<u16, u8>,
    sizes: Table<u16, u8>,
    sized: Table<u8, Vec<u16>>,
    ids: Table<u8, ()>,
    merged: Table<u8, (Option<u8>, Option<u8>, usize)>,
    offers: Table<(u8, u16), (usize, u8)>,
    hosts: Table<u8, (u16, usize, u8)>,
    listeners: Table<u8, Vec<(u8, u16)>>,
    thirds: Table<(u8, u16), u16>,
    summaries: Table<u8, String>,
}

/// Evaluates the expression for each table, in declaration order.
macro_rules! every_table {
    ($pipeline:expr, |$name:ident, $table:ident| $body:expr) => {
        every_table!($pipeline, $name, $table, $body;
            gateways routes services resolved attached admitted used placed low high sizes sized ids
            merged offers hosts listeners thirds summaries)
    };
    ($pipeline:expr, $name:ident, $table:ident, $body:expr; $($field:ident)*) => {
        $(
            let ($name, $table) = (stringify!($field), $pipeline.$field);
            $body;
        )*
    };
}

impl Pipeline {
    pub(crate) fn new() -> Self {
        let mut b = Builder::new();
        let gateways: Table<u8, Gateway> = b.input("gateways");
        let routes: Table<u16, Route> = b.input("routes");
        let services: Table<u8, u8> = b.input("services");
        let by_parent: Index<u16, Route, u8> =
            b.index(routes, "by_parent", |_, route| route.parents.clone());
        let by_backend = b.index(routes, "by_backend", |_, route| vec![route.backend]);

        // A join by key.
        let resolved = b.derive("resolved", routes, move |reader, key| {
            let route = reader.get(routes, key)?;
            reader.get(services, &route.backend).map(|port| *port)
        });
        let by_port = b.index(resolved, "by_port", |_, port| vec![*port]);

        // Reads that do not depend on values.
        let attached = b.derive("attached", gateways, move |reader, key| {
            Some(reader.count(by_parent, key))
        });
        let admitted = b.derive("admitted", gateways, move |reader, key| {
            let gateway = reader.get(gateways, key)?;
            gateway.open.then(|| {
                let mut routes = reader.keys(by_parent, key);
                routes.retain(|route| reader.exists(resolved, route));
                routes
            })
        });

        // A group-by.
        let used = b.derive("used", by_backend, move |reader, key| {
            Some((reader.exists(services, key), reader.count(by_backend, key)))
        });

        // Rows that move between source keys.
        let placed = b.derive_many("placed", by_backend, move |reader, backend| {
            let routes = reader.by(by_backend, backend).into_iter();
            routes
                .map(|(key, route)| (key, (*backend, route.hosts.len())))
                .collect()
        });

        // A union whose rows move between tables, with the same or another value.
        let size = |route: &Route| u8::try_from(route.hosts.len()).expect("few hosts");
        let low = b.derive("low", routes, move |reader, key| {
            let route = reader.get(routes, key)?;
            (route.backend < 2).then(|| size(&route))
        });
        let high = b.derive("high", routes, move |reader, key| {
            let route = reader.get(routes, key)?;
            (route.backend >= 2).then(|| size(&route))
        });
        let sizes = b.union("sizes", [low, high]);
        let by_size = b.index(sizes, "by_size", |_, size| vec![*size]);
        let sized = b.derive("sized", by_size, move |reader, size| {
            Some(reader.keys(by_size, size))
        });

        // A stage that merges tables and indexes.
        let ids = b.union_keys("ids", [gateways.into(), services.into(), by_size.into()]);
        let merged = b.derive("merged", ids, move |reader, key| {
            let gateway = reader.get(gateways, key).map(|gateway| gateway.port);
            let service = reader.get(services, key).map(|port| *port);
            Some((gateway, service, reader.count(by_size, key)))
        });

        // Rows with keys of their own, some output twice in one run; then the first route of each host.
        let offers = b.derive_many("offers", routes, move |reader, key| {
            let route = reader
                .get(routes, key)
                .expect("a stage runs for present keys");
            let mut parents = route.parents.iter();
            let port = parents.find_map(|parent| {
                let gateway = reader.get(gateways, parent)?;
                gateway.open.then_some(gateway.port)
            });
            let Some(port) = port else { return Vec::new() };
            let hosts = route.hosts.iter().enumerate();
            hosts
                .map(|(nth, host)| ((*host, *key), (nth, port)))
                .collect()
        });
        let by_host = b.index(offers, "by_host", |(host, _): &(u8, u16), _| vec![*host]);
        let hosts = b.derive("hosts", by_host, move |reader, host| {
            let offers = reader.by(by_host, host).into_iter();
            let mut rows = offers.map(|((_, route), offer)| (route, offer.0, offer.1));
            rows.next()
        });
        let on_port = b.index(hosts, "on_port", |_, (_, _, port)| vec![*port]);

        // Stages on indexes of derived tables.
        let listeners = b.derive("listeners", on_port, move |reader, port| {
            let hosts = reader.by(on_port, port).into_iter();
            Some(hosts.map(|(host, row)| (host, row.0)).collect())
        });
        let thirds = b.derive_many("thirds", by_port, move |reader, port| {
            let routes = reader.keys(by_port, port).into_iter();
            routes.map(|route| ((*port, route % 3), route)).collect()
        });
        let summaries = b.derive("summaries", hosts, move |reader, host| {
            let row = reader.get(hosts, host)?;
            let (route, _, port) = *row;
            let backend = reader.get(resolved, &route);
            let first = reader.get(thirds, &(port, 0));
            let ports = (
                reader.exists(listeners, &port),
                reader.exists(listeners, &7),
            );
            let attached = reader.get(attached, &port);
            Some(format!("{backend:?} {first:?} {ports:?} {attached:?}"))
        });

        Pipeline {
            engine: b.build(),
            gateways,
            routes,
            services,
            resolved,
            attached,
            admitted,
            used,
            placed,
            low,
            high,
            sizes,
            sized,
            ids,
            merged,
            offers,
            hosts,
            listeners,
            thirds,
            summaries,
        }
    }

    pub(crate) fn commit(&mut self, steps: &[Step]) -> Commit {
        let mut batch = Batch::new();
        for step in steps.iter().cloned() {
            match step {
                Step::Gateway(key, Some(value)) => batch.upsert(self.gateways, key, value),
                Step::Gateway(key, None) => batch.remove(self.gateways, key),
                Step::Route(key, Some(value)) => batch.upsert(self.routes, key, value),
                Step::Route(key, None) => batch.remove(self.routes, key),
                Step::Service(key, Some(value)) => batch.upsert(self.services, key, value),
                Step::Service(key, None) => batch.remove(self.services, key),
            }
        }
        self.engine.commit(batch)
    }

    pub(crate) fn dump(&self) -> Dump {
        let mut dump = Dump::new();
        every_table!(self, |name, table| {
            let rows: Vec<_> = self.engine.iter(table).collect();
            assert!(rows.is_sorted_by(|left, right| left.0 < right.0), "{name}");
            assert_eq!(rows.len(), self.engine.len(table), "{name}");
            let rows = rows.into_iter();
            let rows = rows.map(|(key, value)| (format!("{key:?}"), format!("{value:?}")));
            dump.insert(name, rows.collect());
        });
        dump
    }

    /// Applies a commit's changes to a dump and returns whether there are any. Checks that they are sorted
    /// and that each one changes its row.
    pub(crate) fn replay(&self, commit: &Commit, dump: &mut Dump) -> bool {
        let mut changed = false;
        every_table!(self, |name, table| {
            let rows = dump.entry(name).or_default();
            changed |= replay_table(commit, table, rows)
        });
        changed
    }
}

fn replay_table<K: Key, V: Value + Debug>(
    commit: &Commit,
    table: Table<K, V>,
    rows: &mut BTreeMap<String, String>,
) -> bool {
    let changes = commit.changes(table);
    assert!(changes.is_sorted_by(|left, right| left.0 < right.0));
    for (key, change) in changes {
        let key = format!("{key:?}");
        let new = change.value().map(|value| format!("{value:?}"));
        let old = match new.clone() {
            Some(value) => rows.insert(key, value),
            None => rows.remove(&key),
        };
        assert_ne!(old, new, "a change changes its row");
    }
    !changes.is_empty()
}
