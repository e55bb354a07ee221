//! Large tables are sharded.

use super::*;

/// The number of changes that add or remove resources of a type.
fn of(changes: &[ResourceChange], kind: &str, come: bool) -> usize {
    let of = changes.iter();
    of.filter(|change| change.type_url == kind && change.body.is_some() == come)
        .count()
}

#[test]
fn a_large_table_is_sharded_and_a_host_changes_one_shard() {
    let mut world = World::new(Sharding::Auto);
    let fill = |inputs: &Inputs, batch: &mut Batch, hosts: std::ops::Range<u16>| {
        for index in hosts {
            batch.upsert(inputs.virtual_hosts, numbered(index), plain_host(200));
        }
    };
    world.commit(|inputs, batch| {
        perform(Op::Listener(0, Some((false, None))), inputs, batch);
        perform(Op::Table(0, Some(2)), inputs, batch);
        fill(inputs, batch, 0..399);
    });
    let shards = SHARDS as usize;
    // Another process may have served the table sharded.
    assert_eq!(world.assembler.replaced(), 1);
    let settled = world.settle();
    assert_eq!(of(&settled, names::SCOPE, false), shards);
    assert_eq!(of(&settled, names::ROUTES, false), shards);
    // One more host makes it large: the listener is replaced, and the whole table stays for draining connections.
    let (_, changes) = world.commit(|inputs, batch| fill(inputs, batch, 399..400));
    assert_eq!(of(&changes, names::LISTENER, true), 1);
    assert_eq!(of(&changes, names::SCOPE, true), shards);
    assert_eq!(of(&changes, names::ROUTES, true), shards + 1);
    assert_eq!(world.assembler.replaced(), 2);
    let (_, changes) = world.commit(|inputs, batch| {
        batch.upsert(inputs.virtual_hosts, numbered(7), plain_host(404));
    });
    assert_eq!(of(&changes, names::ROUTES, true), 2);
    let settled = world.settle();
    assert_eq!(settled.len(), 1);
    assert_eq!((settled[0].name.as_str(), &settled[0].body), ("80", &None));
    assert!(world.settle().is_empty());

    // Now a host changes one shard, and a wildcard changes all.
    for (domain, changed) in [("h7.example.com", 1), ("new.example.com", 1), ("*", shards)] {
        let (_, changes) = world.commit(|inputs, batch| {
            let key = VirtualHostKey {
                domain: domain.into(),
                ..numbered(0)
            };
            batch.upsert(inputs.virtual_hosts, key, plain_host(201));
        });
        assert_eq!(changes.len(), changed, "{domain}");
        assert_eq!(of(&changes, names::ROUTES, true), changed, "{domain}");
    }

    // The table stays sharded until it has few hosts.
    let less = |world: &mut World, hosts: std::ops::Range<u16>| {
        let (_, changes) = world.commit(|inputs, batch| {
            for index in hosts {
                batch.remove(inputs.virtual_hosts, numbered(index));
            }
        });
        changes
    };
    assert_eq!(of(&less(&mut world, 0..200), names::LISTENER, true), 0);
    let changes = less(&mut world, 200..202);
    assert_eq!(of(&changes, names::LISTENER, true), 1);
    assert!(of(&changes, names::ROUTES, true) > 1, "both are kept");
    let settled = world.settle();
    assert_eq!(of(&settled, names::SCOPE, false), shards);
    assert_eq!(of(&settled, names::ROUTES, false), shards);
    assert_eq!(world.assembler.replaced(), 3);
}

#[test]
fn a_table_with_many_wildcards_stays_whole() {
    let mut world = World::new(Sharding::Auto);
    let (_, changes) = world.commit(|inputs, batch| {
        perform(Op::Table(0, Some(0)), inputs, batch);
        for index in 0..1_000 {
            batch.upsert(inputs.virtual_hosts, numbered(index), plain_host(200));
            let key = VirtualHostKey {
                domain: format!("*.h{index}.example.com").into(),
                ..numbered(0)
            };
            batch.upsert(inputs.virtual_hosts, key, plain_host(200));
        }
    });
    assert_eq!(changes.len(), 1);
}

/// A host with this number of routes, which takes about 20 bytes for each of them.
fn large_host(routes: usize) -> VirtualHost {
    let route = Arc::new(Route::respond_to_all(200));
    VirtualHost {
        routes: std::iter::repeat_n(route, routes).collect(),
        ..VirtualHost::default()
    }
}

/// A listener and a table with these hosts, each with this number of routes.
fn with_hosts(hosts: &[&str], routes: usize) -> World {
    let mut world = World::new(Sharding::Auto);
    world.commit(|inputs, batch| {
        perform(Op::Listener(0, Some((false, None))), inputs, batch);
        perform(Op::Table(0, Some(0)), inputs, batch);
    });
    put(&mut world, hosts, routes);
    world
}

fn put(world: &mut World, hosts: &[&str], routes: usize) -> Vec<ResourceChange> {
    let (_, changes) = world.commit(|inputs, batch| {
        for domain in hosts {
            let key = VirtualHostKey {
                domain: (*domain).into(),
                ..numbered(0)
            };
            batch.upsert(inputs.virtual_hosts, key, large_host(routes));
        }
    });
    changes
}

#[test]
fn a_table_with_a_large_host_is_sharded() {
    let mut world = with_hosts(&["small.test", "large.test"], 1);
    assert_eq!(put(&mut world, &["small.test"], 2).len(), 1);
    put(&mut world, &["large.test"], 100_000);
    world.settle();
    let changes = put(&mut world, &["small.test"], 3);
    let [change] = &*changes else {
        panic!("{} changes", changes.len());
    };
    assert!(change.body.as_ref().is_some_and(|body| body.len() < 10_000));
}

/// Each shard contains the wildcard.
#[test]
fn a_table_with_a_large_wildcard_has_fewer_shards() {
    let mut world = with_hosts(&["small.test"], 1);
    put(&mut world, &["a.test", "b.test", "c.test"], 100_000);
    world.settle();
    let changes = put(&mut world, &["*.test"], 30_000);
    assert_eq!(of(&changes, names::LISTENER, true), 1);
    assert_eq!(of(&changes, names::SCOPE, true), SHARDS as usize);
    assert_eq!(of(&changes, names::ROUTES, true), 16);
    // Half as much again doesn't change the number.
    let changes = put(&mut world, &["*.test"], 45_000);
    assert_eq!(of(&changes, names::LISTENER, true), 0);
    let changes = put(&mut world, &["small.test"], 2);
    // Its shard in both forms.
    assert_eq!(of(&changes, names::ROUTES, true), 2);
    let settled = world.settle();
    assert_eq!(of(&settled, names::SCOPE, false), SHARDS as usize);
    assert_eq!(of(&settled, names::ROUTES, false), SHARDS as usize);
}

/// Otherwise each shard would contain it.
#[test]
fn a_table_with_a_large_wildcard_stays_whole() {
    let mut world = with_hosts(&["large.test"], 100_000);
    world.settle();
    let changes = put(&mut world, &["*.large.test"], 200_000);
    assert_eq!(of(&changes, names::LISTENER, true), 1);
    // The shards aren't updated for draining connections either.
    assert_eq!(of(&changes, names::ROUTES, true), 1);
}

/// Envoys serve the former form until they have all shards, which takes long if the new hosts are large.
#[test]
fn the_former_form_of_a_large_table_gets_no_new_hosts() {
    let mut world = with_hosts(&["small.test"], 1);
    world.settle();
    let changes = put(&mut world, &["large.test"], 1_000_000);
    assert_eq!(of(&changes, names::ROUTES, true), SHARDS as usize);
    let changes = put(&mut world, &["small.test"], 2);
    assert_eq!(of(&changes, names::ROUTES, true), 2);
    let whole = whole(&changes);
    assert!(whole.len() < 1_000, "{} bytes", whole.len());
    assert_eq!(world.settle().len(), 1);
}

/// The route table of a change that isn't a shard.
fn whole(changes: &[ResourceChange]) -> &[u8] {
    let whole = changes
        .iter()
        .find(|change| change.type_url == names::ROUTES && !change.name.contains('#'));
    whole.and_then(|change| change.body.as_deref()).unwrap()
}

#[test]
fn the_former_form_of_a_very_large_table_is_not_updated() {
    let mut world = with_hosts(&["small.test", "large.test"], 1);
    world.settle();
    let changes = put(&mut world, &["large.test"], 1_000_000);
    assert_eq!(of(&changes, names::ROUTES, true), SHARDS as usize);
    assert_eq!(put(&mut world, &["small.test"], 2).len(), 1);
    assert_eq!(world.settle().len(), 1);
}

#[test]
fn a_former_form_gets_the_hosts_that_it_lacks_once_it_is_current_again() {
    let mut world = with_hosts(&["small.test"], 1);
    world.settle();
    put(&mut world, &["large.test"], 100_000);
    let changes = put(&mut world, &["large.test"], 1);
    assert_eq!(of(&changes, names::LISTENER, true), 1);
    let whole = whole(&changes);
    assert!(whole.windows(10).any(|part| part == b"large.test"));
}

#[test]
fn a_large_former_form_gets_its_changes_once_it_is_current_again() {
    let mut world = with_hosts(&["small.test"], 1);
    put(&mut world, &["large.test"], 700_000);
    world.settle();
    assert!(put(&mut world, &["*.test"], 10_000).len() > SHARDS as usize);
    // A change of one of the current shards.
    assert_eq!(put(&mut world, &["small.test"], 2).len(), 1);
    let (_, changes) = world.commit(|inputs, batch| {
        let key = VirtualHostKey {
            domain: "*.test".into(),
            ..numbered(0)
        };
        batch.remove(inputs.virtual_hosts, key);
    });
    assert_eq!(of(&changes, names::LISTENER, true), 1);
    assert_eq!(of(&changes, names::SCOPE, true), 0);
    assert_eq!(of(&changes, names::ROUTES, true), SHARDS as usize);
    assert_eq!(put(&mut world, &["small.test"], 3).len(), 1);
    let settled = world.settle();
    assert_eq!(of(&settled, names::SCOPE, false), SHARDS as usize);
}
