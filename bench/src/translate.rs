//! `translate`: time of the translation alone, without Envoy or a network.
//!
//! Measures what `sesame local` and `serve` run: the engine, all stages, encoding, and the assembler that joins route
//! tables, on one thread. Objects are decoded before the clock starts. `tests/cost` counts keys and resources
//! instead.

use std::time::Instant;

use anyhow::{Result, ensure};
use sesame_api::Object;
use sesame_control::core::{Core, Input};
use sesame_envoy::{Options, names};
use sesame_model::FleetId;
use sesame_testkit::many;

use crate::Settings;
use crate::objects;
use crate::report::{Figure, Samples, Unit};

/// Port of the Gateway, on which nothing listens.
const PORT: u16 = 80;
/// Number of full translations.
const LOADS: usize = 5;
/// Number of changed routes.
const CHANGES: usize = 1000;

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let count = settings.routes;
    eprintln!("translate: {count} routes, {LOADS} times");
    let mut loads = Samples::default();
    let mut core = Core::new(Options::default());
    for _ in 0..LOADS {
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
            "expected {} other resources and a route table, got {} and {}",
            2 * count + 1,
            others.len(),
            table.len()
        );
    }

    let mut figures = vec![
        Figure::of(
            format!("translating {count} decoded routes into resources"),
            Unit::Milliseconds,
            &loads,
        )
        .at_most(1500.0)
        .note("one core"),
    ];
    figures.extend(one_route(&mut core, count)?);
    figures.extend(one_child(settings.objects)?);
    Ok(figures)
}

/// Changes a route's Service and reverts it.
fn one_route(core: &mut Core, count: usize) -> Result<Vec<Figure>> {
    let (commits, joins) = changes(core, count, swapped)?;
    Ok(vec![
        Figure::of(
            "changing one route: time to commit",
            Unit::Milliseconds,
            &commits,
        )
        .at_most(0.5)
        .note("the route switches to another backend; includes the engine and encoding"),
        Figure::of(
            "changing one route: time until its shard is assembled",
            Unit::Milliseconds,
            &joins,
        ),
    ])
}

/// Changes the Service of a child of an HTTPProxy and reverts it.
fn one_child(children: usize) -> Result<Vec<Figure>> {
    let mut core = Core::new(Options::default());
    let apps = (0..children).flat_map(|index| {
        let [_, service, slice] = many::app(index, many::endpoint(index));
        [swapped_child(index, index)]
            .into_iter()
            .chain([&service, &slice].map(many::object))
    });
    let objects = apps.chain([many::object(&objects::root(children))]);
    let inputs = objects.map(Input::Upsert);
    core.apply(inputs.chain([objects::ready_fleet(FleetId::Default)]));
    let (commits, joins) = changes(&mut core, children, swapped_child)?;
    Ok(vec![
        Figure::of(
            format!("changing one of {children} children of an HTTPProxy: time to commit"),
            Unit::Milliseconds,
            &commits,
        ),
        Figure::of(
            format!(
                "changing one of {children} children of an HTTPProxy: time until the host is assembled"
            ),
            Unit::Milliseconds,
            &joins,
        ),
    ])
}

/// Changes one object after another to another Service and back. Returns the times to commit and to assemble.
fn changes(
    core: &mut Core,
    count: usize,
    swapped: impl Fn(usize, usize) -> Object,
) -> Result<(Samples, Samples)> {
    let (mut commits, mut joins) = (Samples::default(), Samples::default());
    for change in 0..CHANGES / 2 {
        let index = spread(change, count);
        let [there, back] = [(index + 1) % count, index].map(|service| swapped(index, service));
        for object in [there, back] {
            let start = Instant::now();
            let commit = core.commit([Input::Upsert(object)]);
            commits.push(milliseconds(start));
            let resources = core.assemble(&commit);
            joins.push(milliseconds(start));
            ensure!(!resources.is_empty(), "a changed route changed no resource");
        }
    }
    Ok((commits, joins))
}

fn swapped_child(child: usize, service: usize) -> Object {
    many::object(&objects::child(&many::name(child), &many::name(service)))
}

fn swapped(route: usize, service: usize) -> Object {
    many::object(&many::route(
        &many::name(route),
        &many::host(route),
        &[(&many::name(service), 1)],
    ))
}

/// Scatters numbers below `count`.
fn spread(number: usize, count: usize) -> usize {
    (number * 7919) % count
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
