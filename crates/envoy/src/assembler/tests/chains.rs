//! Filter chains that Envoys reject are replaced until they change.

use envoy_types::pb::envoy::config::listener::v3 as listener;

use super::*;

const PORT: u16 = 443;

fn key() -> ListenerKey {
    ListenerKey {
        fleet: crate::testing::fleet(),
        port: Port::tcp(PORT),
    }
}

/// A chain for a server name with a certificate.
fn chain((name, certificate): &(&str, &str)) -> Chain {
    Chain {
        tls: Some(ChainTls {
            server_name: (*name != "*").then(|| (*name).into()),
            mode: TlsMode::Terminate(Arc::new(Termination {
                certificates: vec![CertificateKey {
                    namespace: "ns".into(),
                    name: (*certificate).into(),
                }],
                ..Termination::default()
            })),
        }),
        target: ChainTarget::Http(RouteTableKey {
            fleet: key().fleet,
            port: PORT,
        }),
    }
}

/// Writes a TLS listener with these chains.
fn put(world: &mut World, chains: &[(&str, &str)]) {
    let value = Listener {
        chains: chains.iter().map(chain).collect(),
        ..some_listener(&key(), None)
    };
    world.commit(|inputs, batch| batch.upsert(inputs.listeners, key(), value));
}

/// The message of the only resource.
fn body(world: &World) -> Bytes {
    let (_, any) = world.fleets.iter().next().expect("a listener");
    Any::decode(&**any).expect("an Any").value.into()
}

/// The names of the chains with their certificates; `closed` if the chain closes its connections.
fn chains(world: &World) -> Vec<(String, String)> {
    let listener = listener::Listener::decode(&*body(world)).expect("a listener");
    let of = |chain: listener::FilterChain| {
        let text = crate::to_json(&chain).expect("JSON").to_string();
        let certificate = text
            .split("\"ns/")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let refused = text.contains("\"cluster\":\"refused\"");
        let served = certificate.filter(|_| !refused).unwrap_or("closed");
        (chain.name, served.to_owned())
    };
    listener.filter_chains.into_iter().map(of).collect()
}

fn suspects(world: &World, body: &[u8], last_good: Option<&[u8]>, message: &str) -> Vec<Suspect> {
    world.assembler.suspects(RejectedVersion {
        fleet: &key().fleet,
        type_url: names::LISTENER,
        name: &names::listener(&key()),
        body,
        last_good,
        message,
    })
}

fn suspected(suspects: &[Suspect]) -> Vec<Part> {
    suspects
        .iter()
        .map(|suspect| suspect.part.clone())
        .collect()
}

fn part(name: &str) -> Part {
    Part::Chain(key(), name.into())
}

fn expected(chains: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, served): &(&str, &str)| ((*name).to_owned(), (*served).to_owned());
    chains.iter().map(owned).collect()
}

#[test]
fn a_held_chain_has_its_last_accepted_version_until_it_changes() {
    let mut world = World::new(Sharding::Never);
    put(&mut world, &[("a.com", "one"), ("b.com", "one")]);
    let good = body(&world);
    put(
        &mut world,
        &[("a.com", "one"), ("b.com", "two"), ("*", "two")],
    );
    let found = suspects(&world, &body(&world), Some(&good), "no");
    assert_eq!(suspected(&found), [part("b.com"), part("*")]);
    found.iter().for_each(|one| world.assembler.hold(one));
    world.commit(|_, _| {});
    let held = expected(&[("a.com", "one"), ("b.com", "one"), ("*", "closed")]);
    assert_eq!(chains(&world), held);
    // Held chains aren't suspected again.
    assert_eq!(suspects(&world, &body(&world), Some(&good), "no"), []);

    world.assembler.release(&part("*"));
    put(
        &mut world,
        &[("a.com", "one"), ("b.com", "three"), ("*", "two")],
    );
    let released = expected(&[("a.com", "one"), ("b.com", "three"), ("*", "two")]);
    assert_eq!(chains(&world), released);
    assert_eq!(world.assembler.take_changed(), [part("b.com")]);
    assert_eq!(world.assembler.take_changed(), []);
}

#[test]
fn chains_that_have_changed_since_are_not_suspected() {
    let mut world = World::new(Sharding::Never);
    put(&mut world, &[("a.com", "one"), ("b.com", "one")]);
    let good = body(&world);
    put(&mut world, &[("a.com", "two"), ("b.com", "two")]);
    let rejected = body(&world);
    put(&mut world, &[("a.com", "two"), ("b.com", "three")]);
    let found = suspects(&world, &rejected, Some(&good), "no");
    assert_eq!(suspected(&found), [part("a.com")]);
}

#[test]
fn a_quoted_text_names_the_suspect() {
    let mut world = World::new(Sharding::Never);
    put(&mut world, &[("a.com", "one"), ("b.com", "one")]);
    let found = suspects(&world, &body(&world), None, "cannot load 'b.com'");
    assert_eq!(suspected(&found), [part("b.com")]);
    // Envoys may serve a version from before Sesame's start.
    assert_eq!(suspects(&world, &body(&world), None, "no"), []);
}

#[test]
fn a_held_chain_is_released_if_the_settings_of_its_port_change() {
    let mut world = World::new(Sharding::Never);
    let mut value = some_listener(&key(), None);
    let put = |world: &mut World, value: &Listener| {
        let value = value.clone();
        world.commit(|inputs, batch| batch.upsert(inputs.listeners, key(), value));
    };
    value.chains = vec![chain(&("a.com", "one")), chain(&("b.com", "one"))];
    put(&mut world, &value);
    let suspect = Suspect {
        part: part("b.com"),
        last_good: None,
    };
    world.assembler.hold(&suspect);
    world.commit(|_, _| {});
    assert_eq!(chains(&world)[1], ("b.com".to_owned(), "closed".to_owned()));
    value.bind = vec!["[::1]:443".parse().expect("an address")];
    put(&mut world, &value);
    assert_eq!(world.assembler.take_changed(), [part("b.com")]);
    assert_eq!(chains(&world)[1], ("b.com".to_owned(), "one".to_owned()));
}

#[test]
fn an_only_chain_is_not_suspected() {
    let mut world = World::new(Sharding::Never);
    put(&mut world, &[("a.com", "one")]);
    let found = suspects(&world, &body(&world), None, "cannot load 'a.com'");
    assert_eq!(found, []);
}
