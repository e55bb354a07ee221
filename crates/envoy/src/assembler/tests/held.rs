//! Hosts that Envoys reject are replaced until they change.

use super::*;
use crate::testing::{prefix, route, table_key};

fn host(domain: &str) -> VirtualHostKey {
    VirtualHostKey {
        table: table_key(),
        domain: domain.into(),
    }
}

/// A host that responds with this status.
fn responding(status: u16) -> VirtualHost {
    VirtualHost {
        routes: vec![Arc::new(route(prefix("/"), Action::Respond(status)))],
        ..VirtualHost::default()
    }
}

fn put(world: &mut World, hosts: &[(&str, u16)]) {
    world.commit(|inputs, batch| {
        let table = RouteTable {
            reserved: Vec::new(),
            secure: false,
        };
        batch.upsert(inputs.route_tables, table_key(), table);
        for (domain, status) in hosts {
            batch.upsert(inputs.virtual_hosts, host(domain), responding(*status));
        }
    });
}

/// The message of the only resource.
fn table(world: &World) -> Bytes {
    let (_, any) = world.fleets.iter().next().expect("a table");
    Any::decode(&**any).expect("an Any").value.into()
}

/// The status of each host's response.
fn statuses(world: &World) -> Vec<(String, u32)> {
    let table = pb::RouteConfiguration::decode(&*table(world)).expect("a table");
    let hosts = table.virtual_hosts.into_iter().map(|host| {
        let Some(pb::route::Action::DirectResponse(response)) = &host.routes[0].action else {
            panic!("{host:?}");
        };
        (host.name, response.status)
    });
    hosts.collect()
}

fn suspects(world: &World, last_good: Option<&[u8]>, message: &str) -> Vec<Suspect> {
    world.assembler.suspects(RejectedVersion {
        fleet: &table_key().fleet,
        type_url: names::ROUTES,
        name: &names::routes(&table_key()),
        body: &table(world),
        last_good,
        message,
    })
}

fn domain(suspect: &Suspect) -> &str {
    let Part::Host(host) = &suspect.part else {
        panic!("{suspect:?}");
    };
    &host.domain
}

fn domains(suspects: &[Suspect]) -> Vec<&str> {
    suspects.iter().map(domain).collect()
}

fn expected(statuses: &[(&str, u32)]) -> Vec<(String, u32)> {
    let owned = |(domain, status): &(&str, u32)| ((*domain).to_owned(), *status);
    statuses.iter().map(owned).collect()
}

#[test]
fn a_held_host_has_its_last_accepted_version_until_it_changes() {
    let mut world = World::new(Sharding::Never);
    put(&mut world, &[("a.com", 401), ("b.com", 401)]);
    let good = table(&world);
    put(&mut world, &[("b.com", 402), ("c.com", 402)]);
    let found = suspects(&world, Some(&good), "no");
    assert_eq!(domains(&found), ["b.com", "c.com"]);
    found.iter().for_each(|one| world.assembler.hold(one));
    world.commit(|_, _| {});
    let held = expected(&[("a.com", 401), ("b.com", 401), ("c.com", 503)]);
    assert_eq!(statuses(&world), held);
    // Held hosts aren't suspected again.
    assert!(
        suspects(&world, None, "no")
            .iter()
            .all(|one| domain(one) == "a.com")
    );

    world.assembler.release(&Part::Host(host("c.com")));
    put(&mut world, &[("a.com", 403), ("b.com", 403)]);
    let released = expected(&[("a.com", 403), ("b.com", 403), ("c.com", 402)]);
    assert_eq!(statuses(&world), released);
    assert_eq!(world.assembler.take_changed(), [Part::Host(host("b.com"))]);
    assert_eq!(world.assembler.take_changed(), []);
}

#[test]
fn hosts_that_have_changed_since_are_not_suspected() {
    let mut world = World::new(Sharding::Never);
    put(&mut world, &[("a.com", 401), ("b.com", 401)]);
    let rejected = table(&world);
    put(&mut world, &[("b.com", 402)]);
    let (fleet, name) = (table_key().fleet, names::routes(&table_key()));
    let found = world.assembler.suspects(RejectedVersion {
        fleet: &fleet,
        type_url: names::ROUTES,
        name: &name,
        body: &rejected,
        last_good: None,
        message: "no",
    });
    assert_eq!(domains(&found), ["a.com"]);
}

#[test]
fn a_quoted_text_names_the_suspect() {
    let mut world = World::new(Sharding::Never);
    put(
        &mut world,
        &[("a.example.com", 401), ("b.example.com", 401)],
    );
    let message = "virtual host 'b.example.com' has an error in '/'";
    assert_eq!(domains(&suspects(&world, None, message)), ["b.example.com"]);
    let message = "an error in '/unknown'";
    assert_eq!(suspects(&world, None, message).len(), 2);
}
