//! Settings of listeners: precedence, the ports that a change affects, and invalid configurations.

use std::sync::Arc;

use serde_json::{Value, json};
use sesame_api::{Kind, Object, ObjectStatus};
use sesame_engine::Commit;
use sesame_model::{
    Compression, FleetId, ListenerKey, ListenerSettings, Port, TlsVersion, TlsVersions,
};
use sesame_translate::configuration::settings;
use sesame_translate::settings::{Mode, Settings};

use crate::rig::{Rig, class, fleet, gateway, route, said, set};

fn configuration(name: &str, listeners: Value) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {
            "gateway": {"controllerName": "projectsesame.io/gateway-controller"},
            "listeners": listeners,
        },
    })
}

/// The settings of an instance.
fn configured(mode: Mode, listeners: Value) -> Settings {
    let decoded = Object::decode(configuration("own", listeners)).expect("a valid object");
    let Some(Object::SesameConfiguration(decoded)) = decoded else {
        panic!("{decoded:?}");
    };
    settings(&Settings::new(mode), &decoded).expect("valid settings")
}

fn text(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"},
        "data": {"configuration.yaml": text},
    })
}

fn tuned(name: &str, kind: &str) -> Value {
    let group = match kind {
        "ConfigMap" => "",
        _ => "projectsesame.io",
    };
    let reference = json!({"group": group, "kind": kind, "name": "narrow"});
    let infrastructure = json!({"parametersRef": reference});
    set(
        gateway(name, "edge", 1),
        "/spec/infrastructure",
        infrastructure,
    )
}

fn tuned_class() -> Value {
    let reference = json!({
        "group": "projectsesame.io", "kind": "SesameConfiguration", "name": "wide", "namespace": "ns",
    });
    set(class("edge", 0), "/spec/parametersRef", reference)
}

/// The settings of a fleet, which its listener on port 80 has too, if it exists.
fn of(rig: &Rig, fleet: &FleetId) -> Arc<ListenerSettings> {
    let outputs = rig.pipeline.outputs;
    let row = rig.engine.get(outputs.listener_settings, fleet);
    let row = row.expect("the fleet has settings");
    let port = ListenerKey {
        fleet: fleet.clone(),
        port: Port::tcp(80),
    };
    if let Some(listener) = rig.engine.get(outputs.listeners, &port) {
        assert_eq!(listener.settings, row);
    }
    row
}

/// The fleets whose listeners ran.
fn ran(rig: &Rig, commit: &Commit) -> Vec<FleetId> {
    let outputs = rig.pipeline.outputs;
    assert!(commit.ran(outputs.virtual_hosts).is_empty());
    let keys = commit.ran(outputs.listeners).into_iter();
    keys.map(|key: ListenerKey| key.fleet).collect()
}

#[test]
fn narrower_settings_override_wider_ones_field_by_field() {
    let own = json!({"trustedHops": 1, "compression": ["Gzip"], "limits": {"concurrentStreams": 7},
        "tls": {"maximumProtocolVersion": "1.2"}});
    let mut rig = Rig::with(configured(Mode::Managed, own));
    let narrow =
        json!({"tls": {"minimumProtocolVersion": "1.3"}, "limits": {"requestHeadersKiB": 8}});
    rig.put([
        tuned_class(),
        configuration("wide", json!({"trustedHops": 2, "compression": []})),
        tuned("web", "SesameConfiguration"),
        configuration("narrow", narrow),
        gateway("other", "edge", 2),
        route("r", &["web", "other"]),
    ]);
    let web = of(&rig, &fleet("web"));
    assert_eq!(web.trusted_hops, Some(2));
    assert_eq!(web.compression, Some(Vec::new()));
    assert_eq!(
        (web.limits.streams, web.limits.headers_kib),
        (Some(7), Some(8))
    );
    // Both versions come from one configuration.
    let newest = TlsVersions {
        min: TlsVersion::V1_3,
        max: TlsVersion::V1_3,
    };
    assert_eq!(web.tls_versions, Some(newest));
    let other = of(&rig, &fleet("other"));
    assert_eq!(other.limits.headers_kib, None);
    assert_eq!(other.trusted_hops, Some(2));
    let default = of(&rig, &FleetId::Default);
    assert_eq!(default.trusted_hops, Some(1));
    assert_eq!(default.compression, Some(vec![Compression::Gzip]));

    // A change affects only the ports of fleets that it applies to, and no hosts.
    let commit = rig.put([configuration("narrow", json!({"trustedHops": 3}))]);
    assert_eq!(ran(&rig, &commit), [fleet("web")]);
    assert_eq!(of(&rig, &fleet("web")).trusted_hops, Some(3));
    let commit = rig.put([configuration(
        "wide",
        json!({"trustedHops": 4, "compression": []}),
    )]);
    assert_eq!(ran(&rig, &commit), [fleet("other")]);
    let commit = rig.put([configuration("unused", json!({"trustedHops": 4}))]);
    assert!(ran(&rig, &commit).is_empty());
}

#[test]
fn while_a_configuration_is_invalid_the_last_valid_settings_apply() {
    let mut rig = Rig::with(configured(Mode::Managed, json!({"trustedHops": 1})));
    rig.put([
        class("edge", 0),
        tuned("web", "ConfigMap"),
        text("narrow", "listeners: {proxyProtocol: Required}"),
    ]);
    let valid = of(&rig, &fleet("web"));
    assert!(valid.proxy_protocol.is_some());
    // The caller returns changed rows.
    let record = Some(Arc::clone(&valid));
    rig.change(|inputs, batch| {
        inputs.set_valid_listener_settings(batch, fleet("web"), record);
    });
    let commit = rig.put([text("narrow", "listeners: {proxyProtocol: Sometimes}")]);
    assert!(ran(&rig, &commit).is_empty());
    assert_eq!(of(&rig, &fleet("web")), valid);
    let accepted = &rig.gateway("web").conditions;
    let accepted = accepted.iter().find(|of| &*of.type_ == "Accepted");
    let message = accepted.expect("a condition").message.to_string();
    assert!(
        message.contains("listeners.proxyProtocol: expected one of Disabled, Required, Optional"),
        "{message}"
    );
    // Without a record, such as after a restart, those of the instance apply.
    rig.change(|inputs, batch| inputs.set_valid_listener_settings(batch, fleet("web"), None));
    let settings = of(&rig, &fleet("web"));
    assert_eq!(
        (settings.proxy_protocol, settings.trusted_hops),
        (None, Some(1))
    );
    rig.put([text("narrow", "listeners: {trustedHops: 0}")]);
    assert_eq!(of(&rig, &fleet("web")).trusted_hops, Some(0));
}

#[test]
fn unmanaged_envoys_have_the_settings_of_the_instance() {
    let mode = Mode::Unmanaged { gateway: None };
    let mut rig = Rig::with(configured(mode, json!({"trustedHops": 1})));
    rig.put([
        class("edge", 0),
        tuned("web", "SesameConfiguration"),
        configuration("narrow", json!({"trustedHops": 2})),
    ]);
    assert_eq!(of(&rig, &FleetId::Unmanaged).trusted_hops, Some(1));
    let ObjectStatus::Conditions(status) = rig.status(Kind::SesameConfiguration, "narrow") else {
        panic!("no conditions");
    };
    assert_eq!(said(&status.conditions, "Accepted"), "Accepted/Accepted");
    let warnings = format!("{:?}", status.conditions[0].warnings);
    assert!(
        warnings.contains("spec.listeners: has no effect"),
        "{warnings}"
    );
}
