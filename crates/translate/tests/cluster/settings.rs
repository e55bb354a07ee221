//! Settings that change at run time.

use std::fmt::Debug;

use serde_json::json;
use sesame_engine::{Key, Table, Value};
use sesame_model::{FleetAddress, FleetState};
use sesame_translate::settings::{Mode, Settings};

use crate::rig::{Rig, class, fleet, gateway, named, route, set};

fn rig(settings: Settings) -> Rig {
    let mut rig = Rig::with(settings);
    let mut other = class("other", 1);
    other["spec"]["controllerName"] = "example.com/other".into();
    // Several Gateways may share a fleet, but it has only one client certificate.
    let client = json!({"backend": {"clientCertificateRef": {"name": "c"}}});
    let gateway =
        |name, class, minute| set(gateway(name, class, minute), "/spec/tls", client.clone());
    rig.put([
        class("edge", 2),
        other,
        gateway("web", "edge", 4),
        gateway("older", "edge", 3),
        gateway("elsewhere", "other", 5),
        route("r", &["web", "older", "elsewhere"]),
    ]);
    let state = FleetState {
        addresses: vec![FleetAddress::parse("127.0.0.1")],
        ready: true,
        ..FleetState::default()
    };
    for name in ["web", "older", "elsewhere"] {
        rig.fleet(&fleet(name), Some(state.clone()));
    }
    rig
}

fn all_settings() -> Vec<Settings> {
    let modes = [
        Mode::Managed,
        Mode::Local,
        Mode::Unmanaged { gateway: None },
        Mode::Unmanaged {
            gateway: Some(named("web")),
        },
    ];
    let of_mode = modes.into_iter().flat_map(|mode| {
        let settings = Settings::new(mode);
        let other = Settings {
            controller_name: Some("example.com/other".into()),
            ipv6: false,
            ..settings.clone()
        };
        [settings, other]
    });
    of_mode.collect()
}

fn outputs(rig: &Rig) -> Vec<String> {
    fn rows<K, V>(rig: &Rig, table: Table<K, V>, into: &mut Vec<String>)
    where
        K: Key + Debug,
        V: Value + Debug,
    {
        let rows = rig.engine.iter(table);
        into.extend(rows.map(|(key, row)| format!("{key:?} {row:?}")));
    }
    let mut all = Vec::new();
    let outputs = rig.pipeline.outputs;
    rows(rig, outputs.fleets, &mut all);
    rows(rig, outputs.listeners, &mut all);
    rows(rig, outputs.route_tables, &mut all);
    rows(rig, outputs.virtual_hosts, &mut all);
    rows(rig, outputs.statuses, &mut all);
    all.sort();
    all
}

#[test]
fn outputs_after_a_settings_change_equal_those_of_a_new_engine() {
    for before in all_settings() {
        let mut running = rig(before.clone());
        for after in all_settings() {
            let settings = after.clone();
            running.change(|inputs, batch| inputs.set_settings(batch, settings));
            let fresh = rig(after.clone());
            assert_eq!(outputs(&running), outputs(&fresh), "{before:?} {after:?}");
            let (is, should) = (running.engine.footprint(), fresh.engine.footprint());
            assert_eq!((is.rows, is.edges), (should.rows, should.edges));
        }
    }
}

#[test]
fn each_setting_changes_the_outputs() {
    let all = all_settings();
    let outputs: std::collections::BTreeSet<_> = all
        .iter()
        .map(|settings| outputs(&rig(settings.clone())))
        .collect();
    assert_eq!(outputs.len(), all.len());
}

#[test]
fn a_changed_controller_name_selects_other_classes() {
    let mut rig = rig(Settings::new(Mode::Managed));
    assert!(rig.request(&fleet("web")).is_some());
    assert!(rig.request(&fleet("elsewhere")).is_none());
    let other = Settings {
        controller_name: Some("example.com/other".into()),
        ..Settings::new(Mode::Managed)
    };
    rig.change(|inputs, batch| inputs.set_settings(batch, other));
    assert!(rig.request(&fleet("web")).is_none() && rig.class("edge").is_none());
    assert!(rig.request(&fleet("elsewhere")).is_some() && rig.class("other").is_some());
    let status = format!("{:?}", rig.route("r"));
    assert!(status.contains("example.com/other"), "{status}");
    assert!(!status.contains("projectsesame.io"), "{status}");
}
