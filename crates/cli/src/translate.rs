//! `sesame translate`.
//!
//! In: files. Out: Envoy resources and statuses of objects; errors on standard error.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::Value;
use sesame_api::{Kind, KindName, NamespacedName, Object, ObjectKey};
use sesame_control::files::{self, FilesConfig, Snapshot};
use sesame_control::{FleetId, Mode, Options, Resources, StatusView, Translation};

use crate::args::{OutputPart, TranslateArgs};
use crate::{config, output};

/// The output of the command.
#[derive(Debug, Serialize)]
struct TranslateOutput {
    #[serde(skip_serializing_if = "Option::is_none")]
    fleets: Option<BTreeMap<String, Resources>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statuses: Option<Vec<StatusView>>,
}

/// A list of objects, as kubectl prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    api_version: &'static str,
    kind: &'static str,
    items: &'a [StatusView],
}

impl<'a> List<'a> {
    fn of(items: &'a [StatusView]) -> Self {
        Self {
            api_version: "v1",
            kind: "List",
            items,
        }
    }
}

pub(crate) fn run(args: &TranslateArgs) -> Result<ExitCode> {
    let settings = args.ingress.settings(Mode::Local);
    let (settings, paths) = config::of_local(settings, args.config.as_deref(), &args.paths)?;
    let snapshot = files::load(&FilesConfig {
        contour: args.ingress.contour(&settings).reads(),
        ..FilesConfig::new(paths)
    });
    report(&snapshot);
    let options = Options {
        port_offset: args.port_offset,
        sharding: args.route_shards.into(),
    };
    let sets = args
        .gateway
        .as_ref()
        .map(|gateway| sets_of(&snapshot, gateway));
    let mut translation = sesame_control::translate_with(snapshot.objects, settings, options);
    if let (Some(gateway), Some(sets)) = (&args.gateway, sets) {
        filter_by_gateway(&mut translation, gateway, &sets)?;
    }
    report_notices(&translation);
    match args.only[..] {
        [OutputPart::Status] => output::print(&List::of(&translation.statuses), args.output)?,
        _ => output::print(&select(&translation, &args.only), args.output)?,
    }
    Ok(match snapshot.errors.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Prints errors in files.
fn report(snapshot: &Snapshot) {
    for error in &snapshot.errors {
        output::warn(format_args!("{error}"));
    }
}

/// Prints the problems that the objects' statuses have no field for.
fn report_notices(translation: &Translation) {
    for (object, notices) in &translation.notices {
        for error in &notices.errors {
            output::warn(format_args!("{object}: error: {error}"));
        }
        for warning in &notices.warnings {
            output::warn(format_args!("{object}: warning: {warning}"));
        }
    }
}

/// The ListenerSets of a Gateway.
fn sets_of(snapshot: &Snapshot, gateway: &NamespacedName) -> BTreeSet<ObjectKey> {
    let objects = snapshot.objects.iter();
    objects
        .filter(|object| {
            object
                .as_listener_set()
                .is_some_and(|set| set.spec.parent_ref.resolve(&set.meta.namespace) == *gateway)
        })
        .map(Object::key)
        .collect()
}

/// Keeps only the outputs of one Gateway and its ListenerSets.
fn filter_by_gateway(
    translation: &mut Translation,
    gateway: &NamespacedName,
    sets: &BTreeSet<ObjectKey>,
) -> Result<()> {
    let fleet = FleetId::of_gateway(gateway.namespace.clone(), gateway.name.clone());
    if !translation.fleets.contains_key(&fleet) {
        let names: Vec<String> = translation.fleets.keys().map(ToString::to_string).collect();
        match names.is_empty() {
            true => bail!("Gateway {gateway} not found: no Gateways use Sesame's GatewayClasses"),
            false => bail!(
                "Gateway {gateway} not found; these Gateways use Sesame's GatewayClasses: {}",
                names.join(", ")
            ),
        }
    }
    translation.fleets.retain(|name, _| *name == fleet);
    // Notices are only about objects without a Gateway.
    translation.notices.clear();
    translation.statuses.retain(|status| match status.key.kind {
        Kind::Gateway => status.key.namespaced_name() == *gateway,
        kind if kind.is_listener_set() => sets.contains(&status.key),
        kind if kind.is_route() => has_parent(status, gateway, sets),
        _ => false,
    });
    Ok(())
}

/// Whether a route's status has an entry for the Gateway or one of its ListenerSets.
fn has_parent(status: &StatusView, gateway: &NamespacedName, sets: &BTreeSet<ObjectKey>) -> bool {
    let parents = status.status["parents"].as_array();
    parents.into_iter().flatten().any(|parent| {
        let reference = &parent["parentRef"];
        let namespace = reference["namespace"].as_str();
        let namespace = namespace.unwrap_or(&status.key.namespace);
        let name = NamespacedName::new(namespace, reference["name"].as_str().unwrap_or_default());
        let kind = reference["kind"].as_str().map(KindName::from);
        match kind {
            Some(KindName::Known(kind)) if kind.is_listener_set() => {
                sets.contains(&name.of_kind(kind))
            }
            _ => name == *gateway,
        }
    })
}

/// The selected parts; all if `only` is empty.
fn select(translation: &Translation, only: &[OutputPart]) -> TranslateOutput {
    let selected = |part| only.is_empty() || only.contains(&part);
    let list = |part, list: &Vec<Value>| match selected(part) {
        true => list.clone(),
        false => Vec::new(),
    };
    let some_resources = only.is_empty() || only.iter().any(|part| *part != OutputPart::Status);
    TranslateOutput {
        fleets: some_resources.then(|| {
            translation
                .fleets
                .iter()
                .map(|(fleet, resources)| {
                    let resources = Resources {
                        listeners: list(OutputPart::Listeners, &resources.listeners),
                        scopes: list(OutputPart::Routes, &resources.scopes),
                        routes: list(OutputPart::Routes, &resources.routes),
                        clusters: list(OutputPart::Clusters, &resources.clusters),
                        endpoints: list(OutputPart::Endpoints, &resources.endpoints),
                        secrets: list(OutputPart::Secrets, &resources.secrets),
                    };
                    (fleet.to_string(), resources)
                })
                .collect()
        }),
        statuses: selected(OutputPart::Status).then(|| translation.statuses.clone()),
    }
}
