//! `sesame translate`.
//!
//! In: files. Out: what Envoys would get and what owners of objects would be told; problems on standard error.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::Value;
use sesame_api::{Kind, NamespacedName};
use sesame_control::files::{self, FilesConfig, Problem};
use sesame_control::{FleetId, Options, Resources, StatusView, Translation};

use crate::args::{Part, TranslateArgs};
use crate::output;

/// What is printed.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    fleets: Option<BTreeMap<&'a str, Resources>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statuses: Option<Vec<StatusView>>,
}

pub(crate) fn run(args: &TranslateArgs) -> Result<ExitCode> {
    let snapshot = files::load(&FilesConfig::new(&args.paths));
    let options = Options {
        port_offset: args.port_offset,
        sharding: args.route_shards.into(),
    };
    let mut translation = sesame_control::translate(snapshot.objects, options);
    if let Some(gateway) = &args.gateway {
        narrow(&mut translation, gateway)?;
    }
    report(&snapshot.problems, &translation.unserved);
    output::print(&shown(&translation, &args.only), args.output)?;
    Ok(match snapshot.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// What the user should know beside the output.
fn report(problems: &[Problem], unserved: &BTreeMap<Kind, usize>) {
    for problem in problems {
        output::complain(format_args!("{problem}"));
    }
    for (kind, count) in unserved {
        let objects = if *count == 1 { "object" } else { "objects" };
        output::complain(format_args!(
            "note: {count} {objects} of kind {kind}, which Sesame doesn't serve yet"
        ));
    }
}

/// Leaves what belongs to one Gateway.
fn narrow(translation: &mut Translation, gateway: &NamespacedName) -> Result<()> {
    let fleet = FleetId::of_gateway(&gateway.namespace, &gateway.name);
    if !translation.fleets.contains_key(&fleet) {
        let names: Vec<&str> = translation.fleets.keys().map(FleetId::as_str).collect();
        match names.is_empty() {
            true => bail!("there is no Gateway {gateway} of Sesame's, nor any other"),
            false => bail!(
                "there is no Gateway {gateway} of Sesame's; there is: {}",
                names.join(", ")
            ),
        }
    }
    translation.fleets.retain(|name, _| *name == fleet);
    translation.statuses.retain(|status| match status.key.kind {
        Kind::Gateway => status.key.namespaced_name() == *gateway,
        kind if kind.is_route() => names_parent(status, gateway),
        _ => false,
    });
    Ok(())
}

/// Whether a route's status has an entry for the Gateway.
fn names_parent(status: &StatusView, gateway: &NamespacedName) -> bool {
    let parents = status.status["parents"].as_array();
    parents.into_iter().flatten().any(|parent| {
        let reference = &parent["parentRef"];
        let namespace = reference["namespace"].as_str();
        reference["name"] == *gateway.name
            && namespace.unwrap_or(&status.key.namespace) == &*gateway.namespace
    })
}

/// The parts that were asked for; all if none was named.
fn shown<'a>(translation: &'a Translation, only: &[Part]) -> Shown<'a> {
    let wanted = |part| only.is_empty() || only.contains(&part);
    let list = |part, list: &Vec<Value>| match wanted(part) {
        true => list.clone(),
        false => Vec::new(),
    };
    let some_resources = only.is_empty() || only.iter().any(|part| *part != Part::Status);
    Shown {
        fleets: some_resources.then(|| {
            translation
                .fleets
                .iter()
                .map(|(fleet, resources)| {
                    let resources = Resources {
                        listeners: list(Part::Listeners, &resources.listeners),
                        scopes: list(Part::Routes, &resources.scopes),
                        routes: list(Part::Routes, &resources.routes),
                        clusters: list(Part::Clusters, &resources.clusters),
                        endpoints: list(Part::Endpoints, &resources.endpoints),
                        secrets: list(Part::Secrets, &resources.secrets),
                    };
                    (fleet.as_str(), resources)
                })
                .collect()
        }),
        statuses: wanted(Part::Status).then(|| translation.statuses.clone()),
    }
}
