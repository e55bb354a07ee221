//! The cost of a commit is proportional to the change: with ten thousand routes, exactly the expected keys run. Runs
//! are counted, not timed.

use sesame_engine::{Batch, Builder, Change, Commit, Engine, Footprint, Index, Table};

const ROUTES: u32 = 10_000;
const SERVICES: u32 = 1_000;
const GATEWAYS: u32 = 10;

#[derive(Clone, PartialEq, Debug)]
struct Route {
    gateway: u32,
    service: u32,
    host: u32,
}

/// Ten routes per service, a thousand per gateway, two per host.
fn route(key: u32) -> Route {
    Route {
        gateway: key % GATEWAYS,
        service: key % SERVICES,
        host: key / 2,
    }
}

struct World {
    engine: Engine,
    gateways: Table<u32, u16>,
    routes: Table<u32, Route>,
    services: Table<u32, u16>,
    by_gateway: Index<u32, Route, u32>,
    backends: Table<u32, u16>,
    found: Table<u32, bool>,
    attached: Table<u32, usize>,
    children: Table<u32, Vec<u32>>,
    hosts: Table<u32, Vec<(u32, u16)>>,
    virtual_hosts: Table<(u32, u32), u16>,
    parity: Table<u32, bool>,
    checked: Table<u32, bool>,
}

impl World {
    fn new() -> Self {
        let mut b = Builder::new();
        let gateways: Table<u32, u16> = b.input("gateways");
        let routes: Table<u32, Route> = b.input("routes");
        let services: Table<u32, u16> = b.input("services");
        let by_gateway = b.index(routes, "by_gateway", |_, route: &Route| vec![route.gateway]);
        let by_host = b.index(routes, "by_host", |_, route: &Route| vec![route.host]);

        let backends = b.derive("backends", routes, move |reader, key| {
            let route = reader.get(routes, key)?;
            reader.get(services, &route.service).map(|port| *port)
        });
        let found = b.derive("found", routes, move |reader, key| {
            let route = reader.get(routes, key)?;
            Some(reader.exists(services, &route.service))
        });
        let attached = b.derive("attached", gateways, move |reader, key| {
            Some(reader.count(by_gateway, key))
        });
        let children = b.derive("children", gateways, move |reader, key| {
            Some(reader.keys(by_gateway, key))
        });
        let hosts = b.derive("hosts", by_host, move |reader, host| {
            let routes = reader.by(by_host, host).into_iter();
            Some(
                routes
                    .filter_map(|(key, _)| Some((key, *reader.get(backends, &key)?)))
                    .collect::<Vec<_>>(),
            )
        });
        let virtual_hosts = b.derive_many("virtual_hosts", hosts, move |reader, host| {
            let rows = reader
                .get(hosts, host)
                .expect("a stage runs for present keys");
            rows.iter()
                .map(|(route, port)| ((*host, *route), *port))
                .collect()
        });
        // A stage whose output rarely changes, and a stage that depends on it.
        let parity = b.derive("parity", services, move |reader, key| {
            reader.get(services, key).map(|port| *port % 2 == 0)
        });
        let checked = b.derive("checked", parity, move |reader, key| {
            reader.get(parity, key).map(|even| !*even)
        });

        let mut world = World {
            engine: b.build(),
            gateways,
            routes,
            services,
            by_gateway,
            backends,
            found,
            attached,
            children,
            hosts,
            virtual_hosts,
            parity,
            checked,
        };
        let mut batch = Batch::new();
        for key in 0..GATEWAYS {
            batch.upsert(gateways, key, 80);
        }
        for key in 0..SERVICES {
            batch.upsert(services, key, 8080);
        }
        for key in 0..ROUTES {
            batch.upsert(routes, key, route(key));
        }
        let commit = world.engine.commit(batch);
        // The first commit runs every key of every stage once.
        assert_eq!(
            commit.work(),
            [
                ("backends", 10_000),
                ("found", 10_000),
                ("attached", 10),
                ("children", 10),
                ("hosts", 5_000),
                ("virtual_hosts", 5_000),
                ("parity", 1_000),
                ("checked", 1_000),
            ]
        );
        world
    }

    fn set_service(&mut self, key: u32, port: Option<u16>) -> Commit {
        let mut batch = Batch::new();
        match port {
            Some(port) => batch.upsert(self.services, key, port),
            None => batch.remove(self.services, key),
        }
        self.engine.commit(batch)
    }

    fn set_routes(&mut self, routes: impl IntoIterator<Item = (u32, Option<Route>)>) -> Commit {
        let mut batch = Batch::new();
        for (key, route) in routes {
            match route {
                Some(route) => batch.upsert(self.routes, key, route),
                None => batch.remove(self.routes, key),
            }
        }
        self.engine.commit(batch)
    }
}

#[test]
fn a_changed_value_runs_only_its_readers() {
    let mut world = World::new();
    let commit = world.set_service(7, Some(8082));
    let routes: Vec<u32> = (0..10).map(|n| n * SERVICES + 7).collect();
    let hosts: Vec<u32> = routes.iter().map(|route| route / 2).collect();
    assert_eq!(commit.ran(world.backends), routes);
    assert_eq!(commit.ran(world.hosts), hosts);
    assert_eq!(commit.ran_keys::<u32>(world.virtual_hosts), hosts);
    // 8080 and 8082 are both even: `parity` runs, `checked` does not.
    assert_eq!(commit.ran(world.parity), [7]);
    assert_eq!(commit.ran(world.checked), []);
    assert_eq!(
        commit.work(),
        [
            ("backends", 10),
            ("hosts", 10),
            ("virtual_hosts", 10),
            ("parity", 1)
        ]
    );
    let changed: Vec<_> = routes
        .iter()
        .map(|route| ((route / 2, *route), Change::Upsert(8082.into())))
        .collect();
    assert_eq!(commit.changes(world.virtual_hosts), changed);
    assert_eq!(commit.changes(world.found), []);
}

#[test]
fn exists_does_not_depend_on_the_value() {
    let mut world = World::new();
    let commit = world.set_service(7, Some(9999));
    assert_eq!(commit.ran(world.found), []);
    let commit = world.set_service(7, None);
    let routes: Vec<u32> = (0..10).map(|n| n * SERVICES + 7).collect();
    assert_eq!(commit.ran(world.found), routes);
    assert_eq!(commit.changes(world.checked), [(7, Change::Remove)]);
    let commit = world.set_service(7, Some(9999));
    assert_eq!(commit.ran(world.found), routes);
}

#[test]
fn counts_and_keys_do_not_depend_on_values() {
    let mut world = World::new();
    let mut moved = route(42);
    moved.service += 1;
    let commit = world.set_routes([(42, Some(moved))]);
    assert_eq!(commit.ran(world.backends), [42]);
    assert_eq!(commit.ran(world.attached), []);
    assert_eq!(commit.ran(world.children), []);
}

#[test]
fn a_count_does_not_depend_on_which_rows_are_counted() {
    let mut world = World::new();
    // One route of gateway 2 is removed and another added, in one commit.
    let new = route(ROUTES + 2);
    assert_eq!(new.gateway, 2);
    let commit = world.set_routes([(42, None), (ROUTES + 2, Some(new))]);
    assert_eq!(commit.ran(world.attached), []);
    assert_eq!(commit.ran(world.children), [2]);
    let commit = world.set_routes([(52, None)]);
    assert_eq!(commit.ran(world.attached), [2]);
    assert_eq!(
        commit.changes(world.attached),
        [(2, Change::Upsert(999.into()))]
    );
    assert_eq!(world.engine.keys_by(world.by_gateway, &2).len(), 999);
}

#[test]
fn a_moved_row_runs_the_readers_of_both_groups() {
    let mut world = World::new();
    let mut moved = route(42);
    moved.gateway = 5;
    moved.host = 3_000;
    let commit = world.set_routes([(42, Some(moved))]);
    assert_eq!(commit.ran(world.attached), [2, 5]);
    assert_eq!(commit.ran(world.children), [2, 5]);
    assert_eq!(commit.ran(world.hosts), [21, 3_000]);
}

#[test]
fn a_group_exists_while_it_has_members() {
    let mut world = World::new();
    let commit = world.set_routes([(42, None), (43, None)]);
    assert_eq!(commit.changes(world.hosts), [(21, Change::Remove)]);
    assert_eq!(commit.ran(world.hosts), [], "removed keys do not run");
    assert_eq!(
        commit.changes(world.virtual_hosts),
        [((21, 42), Change::Remove), ((21, 43), Change::Remove)]
    );
    let commit = world.set_routes([(43, Some(route(43)))]);
    assert_eq!(commit.ran(world.hosts), [21]);
}

#[test]
fn a_stage_on_an_index_does_not_run_for_unread_members() {
    let mut b = Builder::new();
    let rows: Table<u32, u32> = b.input("rows");
    let by_ten = b.index(rows, "by_ten", |key, _| vec![key / 10]);
    let named = b.derive("named", by_ten, |_, ten| Some(format!("ten {ten}")));
    let mut engine = b.build();
    let mut upsert = |key: u32, value: u32| {
        let mut batch = Batch::new();
        batch.upsert(rows, key, value);
        engine.commit(batch).ran(named)
    };
    assert_eq!(upsert(11, 0), [1]);
    assert_eq!(upsert(12, 0), [], "joins an existing group");
    assert_eq!(upsert(12, 1), [], "changes");
    assert_eq!(upsert(25, 0), [2]);
}

#[test]
fn the_keys_of_a_changed_row_are_those_of_its_difference() {
    let mut b = Builder::new();
    let lists: Table<u32, Vec<u32>> = b.input("lists");
    // The lists are sorted and differ only in the last number.
    let items = b.index_keys(
        lists,
        "items",
        |_, list| list.clone(),
        |_, old, new| [old, new].map(|list| list.last().copied().into_iter().collect()),
    );
    let items = b.union_keys("all items", [items]);
    let mut engine = b.build();
    let mut set = |key: u32, list: Option<&[u32]>| {
        let mut batch = Batch::new();
        match list {
            Some(list) => batch.upsert(lists, key, list.to_vec()),
            None => batch.remove(lists, key),
        }
        let commit = engine.commit(batch);
        let items = commit.changes(items).iter();
        items
            .map(|(item, change)| (*item, change.value().is_some()))
            .collect::<Vec<_>>()
    };
    assert_eq!(set(1, Some(&[1, 2, 3])), [(1, true), (2, true), (3, true)]);
    assert_eq!(set(1, Some(&[1, 2, 4])), [(3, false), (4, true)]);
    assert_eq!(set(2, Some(&[4])), []);
    assert_eq!(set(1, Some(&[1, 2, 5])), [(5, true)]);
    assert_eq!(set(1, None), [(1, false), (2, false), (5, false)]);
}

#[test]
fn an_equal_upsert_changes_nothing() {
    let mut world = World::new();
    let revision = world.engine.revision();
    let footprint = world.engine.footprint();
    let commit = world.set_routes((0..ROUTES).map(|key| (key, Some(route(key)))));
    assert!(commit.is_empty());
    assert_eq!(commit.work(), []);
    assert_eq!(commit.revision(), revision);
    let commit = world.set_routes([(ROUTES, None)]);
    assert!(commit.is_empty(), "removing a missing row");
    assert!(world.engine.commit(Batch::new()).is_empty());
    assert_eq!(world.engine.revision(), revision);
    assert_eq!(world.engine.footprint(), footprint);
}

#[test]
fn dependencies_are_the_reads_of_the_last_run() {
    let mut world = World::new();
    let mut moved = route(7);
    moved.service = 8;
    world.set_routes([(7, Some(moved))]);
    let commit = world.set_service(7, Some(1));
    assert!(!commit.ran(world.backends).contains(&7));
    let commit = world.set_service(8, Some(1));
    assert!(commit.ran(world.backends).contains(&7));
}

#[test]
fn the_last_change_of_a_key_wins() {
    let mut world = World::new();
    let mut batch = Batch::new();
    batch.upsert(world.gateways, 3, 1);
    batch.remove(world.gateways, 3);
    batch.upsert(world.gateways, 77, 1);
    batch.upsert(world.gateways, 77, 2);
    batch.remove(world.gateways, 4);
    batch.upsert(world.gateways, 4, 80); // unchanged
    let commit = world.engine.commit(batch);
    assert_eq!(
        commit.changes(world.gateways),
        [(3, Change::Remove), (77, Change::Upsert(2.into()))]
    );
}

#[test]
fn memory_is_freed() {
    let mut world = World::new();
    let full = world.engine.footprint();
    assert_eq!(
        full.rows,
        11_010 + 2 * 10_000 + 2 * 10 + 5_000 + 10_000 + 2 * 1_000
    );
    // Besides the source's row: one each for backends, found, attached and children; the group and two rows for hosts;
    // none for the other tables.
    assert_eq!(full.edges, 2 * 10_000 + 2 * 10 + 3 * 5_000);

    // Rows with ever-new keys don't leak memory.
    let mut slots = None;
    for round in 1..20 {
        let new = (0..50).map(|key| (ROUTES * round + key, Some(route(key + 1_000_000 * round))));
        world.set_routes(new);
        let held = world.engine.footprint().slots;
        assert_eq!(*slots.get_or_insert(held), held, "in round {round}");
        world.set_routes((0..50).map(|key| (ROUTES * round + key, None)));
        let now = world.engine.footprint();
        assert_eq!(
            Footprint { slots: 0, ..now },
            Footprint { slots: 0, ..full }
        );
    }

    let mut batch = Batch::new();
    for key in 0..GATEWAYS {
        batch.remove(world.gateways, key);
    }
    for key in 0..SERVICES {
        batch.remove(world.services, key);
    }
    for key in 0..ROUTES {
        batch.remove(world.routes, key);
    }
    let commit = world.engine.commit(batch);
    assert_eq!(commit.work(), []);
    assert_eq!(world.engine.footprint(), Footprint::default());
}

/// Ten thousand routes of two kinds in a union; a stage merges them with reserved hosts, by host.
#[test]
fn a_union_and_a_merge_cost_only_the_change() {
    let mut b = Builder::new();
    let http: Table<u32, Route> = b.input("http");
    let grpc: Table<u32, Route> = b.input("grpc");
    let reserved: Table<u32, ()> = b.input("reserved");
    let routes = b.union("routes", [http, grpc]);
    let by_host = b.index(routes, "by_host", |_, route: &Route| vec![route.host]);
    let keys = b.union_keys("host keys", [by_host.into(), reserved.into()]);
    let hosts = b.derive("hosts", keys, move |reader, host| {
        let routes = reader.by(by_host, host);
        let services: Vec<u32> = routes.iter().map(|(_, route)| route.service).collect();
        Some((reader.exists(reserved, host), services))
    });
    let mut engine = b.build();
    let kind = |key: u32| if key.is_multiple_of(3) { grpc } else { http };
    let mut batch = Batch::new();
    for key in 0..ROUTES {
        batch.upsert(kind(key), key, route(key));
    }
    let commit = engine.commit(batch);
    let work = [("routes", 10_000), ("host keys", 5_000), ("hosts", 5_000)];
    assert_eq!(commit.work(), work);

    let mut changed = route(42);
    changed.service += 1;
    let mut batch = Batch::new();
    batch.upsert(kind(42), 42, changed.clone());
    let commit = engine.commit(batch);
    assert_eq!(commit.work(), [("routes", 1), ("hosts", 1)]);
    assert_eq!(commit.ran(hosts), [21]);

    // Moves a route from one kind to the other, in one commit.
    let mut batch = Batch::new();
    batch.remove(grpc, 42);
    batch.upsert(http, 42, changed);
    let commit = engine.commit(batch);
    assert_eq!(commit.work(), [("routes", 1)]);
    assert_eq!(commit.changes(routes), []);

    let mut batch = Batch::new();
    batch.upsert(reserved, 21, ());
    batch.upsert(reserved, ROUTES, ());
    let commit = engine.commit(batch);
    assert_eq!(commit.work(), [("host keys", 2), ("hosts", 2)]);
    assert_eq!(commit.changes(keys).len(), 1, "21 was in the union already");

    let mut batch = Batch::new();
    for key in 0..ROUTES {
        batch.remove(if key == 42 { http } else { kind(key) }, key);
    }
    batch.remove(reserved, 21);
    batch.remove(reserved, ROUTES);
    engine.commit(batch);
    assert_eq!(engine.footprint(), Footprint::default());
}

/// Routes move to other services, so rows of `derive_many` move to other source keys.
#[test]
fn moving_rows_between_source_keys_costs_only_the_move() {
    let mut b = Builder::new();
    let routes: Table<u32, Route> = b.input("routes");
    let by_service = b.index(routes, "by_service", |_, route: &Route| vec![route.service]);
    let placed = b.derive_many("placed", by_service, move |reader, service| {
        let routes = reader.keys(by_service, service).into_iter();
        routes.map(|key| (key, *service)).collect()
    });
    let mut engine = b.build();
    let mut batch = Batch::new();
    for key in 0..ROUTES {
        batch.upsert(routes, key, route(key));
    }
    engine.commit(batch);
    let footprint = engine.footprint();
    let mut move_by = |keys: std::ops::Range<u32>, step: u32| {
        let mut batch = Batch::new();
        for key in keys {
            let mut moved = route(key);
            moved.service = (moved.service + step) % SERVICES;
            batch.upsert(routes, key, moved);
        }
        let commit = engine.commit(batch);
        (commit.ran_keys::<u32>(placed), commit.changes(placed).len())
    };
    assert_eq!(move_by(42..43, 1), (vec![42, 43], 1));
    assert_eq!(move_by(42..43, 0), (vec![42, 43], 1));
    let (ran, changed) = move_by(0..ROUTES, 1);
    assert_eq!((ran.len(), changed), (1_000, 10_000));
    assert_eq!(engine.footprint(), footprint);
}
