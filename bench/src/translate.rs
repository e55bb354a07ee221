//! `translate`: what translation costs by itself, without Envoy and without a network.
//!
//! The machine under test is the one that `sesame local` runs: engine, all stages, encoding, and the assembler that joins
//! route tables. It runs on the thread that measures. Objects are decoded before the clock starts.

use std::time::Instant;

use anyhow::{Result, ensure};
use sesame_api::Object;
use sesame_control::core::{Core, Input};
use sesame_envoy::{Options, names};
use sesame_testkit::many;

use crate::Settings;
use crate::machine;
use crate::objects;
use crate::report::{Figure, Samples, Unit};

/// The Gateway's, where nobody listens.
const PORT: u16 = 80;
/// How often everything is translated.
const LOADS: usize = 5;
/// How many routes, and how many slices, are changed.
const CHANGES: usize = 1000;

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let count = settings.routes;
    eprintln!("translate: {count} routes, {LOADS} times");
    let empty = machine::memory(None)?.now;
    let mut loads = Samples::default();
    let mut core = Core::new(Options::default());
    for _ in 0..LOADS {
        // The one before is gone before the next is made, as far as memory goes.
        core = Core::new(Options::default());
        let objects = objects::site(PORT, count, many::endpoint);
        let start = Instant::now();
        let first = core.apply(objects.into_iter().map(Input::Upsert));
        let second = core.apply([objects::ready()]);
        loads.push(milliseconds(start));
        let resources = first.resources.iter().chain(&second.resources);
        let of_table = [names::ROUTES, names::SCOPE];
        let (table, others) =
            resources.partition::<Vec<_>, _>(|change| of_table.contains(&change.type_url));
        ensure!(
            others.len() == 2 * count + 1 && !table.is_empty(),
            "{} resources came out instead of a listener, and two for each of {count} Services; and {} of a route table",
            others.len(),
            table.len()
        );
    }
    let loaded = machine::memory(None)?.now;

    let mut figures = vec![
        Figure::of(
            format!("translate {count} routes, parsed objects to resources"),
            Unit::Milliseconds,
            &loads,
        )
        .at_most(1500.0)
        .note("one core"),
    ];
    figures.extend(one_route(&mut core, count)?);
    figures.push(one_slice(&mut core, count)?);
    figures.push(
        Figure::new("memory with all of it", Unit::Mebibytes, loaded - empty)
            .note("resident, beyond the empty process"),
    );
    core.apply(
        objects::site(PORT, count, many::endpoint)
            .iter()
            .map(|object| Input::Remove(object.key())),
    );
    core.apply([Input::Fleet(objects::fleet(), None)]);
    figures.push(
        Figure::new(
            "memory when all objects are gone",
            Unit::Mebibytes,
            machine::memory(None)?.now - empty,
        )
        .note(format!("{:?}", core.engine().footprint())),
    );
    Ok(figures)
}

/// A route leads to another Service, then back.
fn one_route(core: &mut Core, count: usize) -> Result<Vec<Figure>> {
    let (mut commits, mut joins, mut keys) =
        (Samples::default(), Samples::default(), Samples::default());
    for change in 0..CHANGES / 2 {
        let index = spread(change, count);
        let [there, back] = [(index + 1) % count, index].map(|service| swapped(index, service));
        for object in [there, back] {
            let start = Instant::now();
            let commit = core.commit([Input::Upsert(object)]);
            commits.push(milliseconds(start));
            let resources = core.assemble(&commit);
            joins.push(milliseconds(start));
            keys.push(commit.work().iter().map(|(_, keys)| *keys as f64).sum());
            ensure!(!resources.is_empty(), "a changed route changed nothing");
        }
    }
    Ok(vec![
        Figure::of("one route changed, to commit", Unit::Milliseconds, &commits)
            .at_most(0.5)
            .note("another backend; engine and encoding"),
        Figure::of(
            "one route changed, its shard joined too",
            Unit::Milliseconds,
            &joins,
        ),
        Figure::of("one route changed, keys run", Unit::Count, &keys).note("over all stages"),
    ])
}

/// An EndpointSlice gets another address.
fn one_slice(core: &mut Core, count: usize) -> Result<Figure> {
    let mut sent = Samples::default();
    for change in 0..CHANGES {
        let index = spread(change, count);
        let address = many::endpoint(count + change);
        let slice = many::object(&many::slice(&many::name(index), address));
        let resources = core.apply([Input::Upsert(slice)]).resources;
        let others = resources
            .iter()
            .filter(|resource| resource.type_url != names::ENDPOINTS);
        ensure!(
            others.count() == 0,
            "a changed slice changed more than endpoints"
        );
        sent.push(resources.len() as f64);
    }
    Ok(Figure::of(
        "one EndpointSlice changed, resources sent",
        Unit::Count,
        &sent,
    )
    .exactly(1.0)
    .note("all of them EDS"))
}

fn swapped(route: usize, service: usize) -> Object {
    many::object(&many::route(
        &many::name(route),
        &many::host(route),
        &[(&many::name(service), 1)],
    ))
}

/// The first so many numbers in an order that jumps about.
fn spread(number: usize, count: usize) -> usize {
    (number * 7919) % count
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
