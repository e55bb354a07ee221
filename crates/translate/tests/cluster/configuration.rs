//! SesameConfigurations: the instance's settings, precedence of parameters, statuses.

use serde_json::{Value, json};
use sesame_api::{ConditionsStatus, Kind, Object, ObjectStatus};
use sesame_model::{FleetId, FleetParameters, UpgradeProgress};
use sesame_translate::configuration::settings;
use sesame_translate::settings::{Mode, Settings};

use crate::rig::{Rig, class, fleet, gateway, said, set};

fn configuration(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": name, "namespace": "ns", "generation": 3}, "spec": spec,
    })
}

/// The settings in a configuration named `own`, and the object.
fn configured(mode: Mode, spec: Value) -> (Settings, Value) {
    let object = configuration("own", spec);
    let decoded = Object::decode(object.clone()).expect("a valid object");
    let Some(Object::SesameConfiguration(decoded)) = decoded else {
        panic!("{decoded:?}");
    };
    let settings = settings(&Settings::new(mode), &decoded).expect("valid settings");
    (settings, object)
}

fn with_controller(mut spec: Value) -> Value {
    spec["gateway"] = json!({"controllerName": "projectsesame.io/gateway-controller"});
    spec
}

fn status(rig: &Rig, name: &str) -> std::sync::Arc<ConditionsStatus> {
    match rig.status(Kind::SesameConfiguration, name) {
        ObjectStatus::Conditions(status) => status,
        other => panic!("{other:?}"),
    }
}

/// A condition, its message, and the messages of its errors and warnings.
fn told(rig: &Rig, name: &str, type_: &str) -> (String, Vec<String>, Vec<String>) {
    let status = status(rig, name);
    let condition = status.conditions.iter().find(|of| &*of.type_ == type_);
    let condition = condition.expect("a condition of this type");
    assert_eq!(condition.observed_generation, 3);
    let entries = |list: &[sesame_api::SubCondition]| {
        let texts = list
            .iter()
            .map(|of| format!("{}: {}", of.type_, of.message));
        texts.collect::<Vec<_>>()
    };
    let said = said(&status.conditions, type_);
    let said = match condition.is_true() {
        true => format!("{said}: {}", condition.message),
        false => said,
    };
    (
        said,
        entries(&condition.errors),
        entries(&condition.warnings),
    )
}

fn reference(kind: &str, name: &str) -> Value {
    json!({"group": "projectsesame.io", "kind": kind, "name": name})
}

#[test]
fn narrower_configurations_override_wider_ones_field_by_field() {
    let envoy = json!({"envoy": {"replicas": 2, "logLevel": "info", "maxConnections": 5}});
    let (settings, own) = configured(Mode::Managed, with_controller(envoy));
    let mut rig = Rig::with(settings);
    let wide = set(
        reference("SesameConfiguration", "wide"),
        "/namespace",
        json!("ns"),
    );
    let infrastructure = json!({"parametersRef": reference("SesameConfiguration", "narrow")});
    rig.put([
        own,
        set(class("edge", 0), "/spec/parametersRef", wide),
        configuration(
            "wide",
            json!({"envoy": {"replicas": 3, "logLevel": "debug"}}),
        ),
        set(
            gateway("web", "edge", 1),
            "/spec/infrastructure",
            infrastructure,
        ),
        configuration("narrow", json!({"envoy": {"replicas": 4}})),
        configuration("unused", json!({"envoy": {"replicas": 9}})),
    ]);
    let parameters = rig
        .request(&fleet("web"))
        .expect("a fleet")
        .parameters
        .clone();
    let FleetParameters {
        replicas,
        log_level,
        max_connections,
        ..
    } = parameters.expect("valid parameters");
    assert_eq!((replicas, max_connections), (Some(4), Some(5)));
    assert_eq!(log_level, Some(sesame_model::FleetLogLevel::Debug));
    for (name, of) in [
        ("own", "this instance of Sesame"),
        ("wide", "1 GatewayClass"),
        ("narrow", "1 Gateway"),
    ] {
        let (programmed, ..) = told(&rig, name, "Programmed");
        assert_eq!(
            programmed,
            format!("Programmed/Programmed: In effect for {of}.")
        );
        assert_eq!(
            told(&rig, name, "Accepted").0,
            "Accepted/Accepted: The spec is valid."
        );
    }
    // Another instance may use it.
    let key = crate::rig::named("unused").of_kind(Kind::SesameConfiguration);
    assert!(
        rig.engine
            .get(rig.pipeline.outputs.statuses, &key)
            .is_none()
    );
}

#[test]
fn a_fleet_that_is_not_managed_keeps_its_objects_and_its_configuration() {
    let envoy = |managed: bool| with_controller(json!({"envoy": {"managed": managed}}));
    let (settings, own) = configured(Mode::Managed, envoy(true));
    let mut rig = Rig::with(settings);
    rig.put([own, class("edge", 0), gateway("web", "edge", 1)]);
    let (settings, _) = configured(Mode::Managed, envoy(false));
    let commit = rig.change(|inputs, batch| inputs.set_settings(batch, settings));
    let request = rig.request(&fleet("web")).expect("a fleet");
    let parameters = request.parameters.as_ref().expect("valid parameters");
    assert_eq!(parameters.managed, Some(false));
    let outputs = rig.pipeline.outputs;
    assert!(commit.changes(outputs.listeners).is_empty());
    assert_eq!(
        said(&rig.gateway("web").conditions, "Accepted"),
        "Accepted/Accepted"
    );
}

#[test]
fn an_invalid_section_is_reported_with_its_fields() {
    let (settings, own) = configured(Mode::Managed, json!({"envoy": {}}));
    let mut rig = Rig::with(settings);
    rig.put([own]);
    let invalid = json!({"envoy": {
        "resources": {"limits": {"cpu": "much"}},
        "networkPublishing": {"loadBalancerSourceRanges": ["here"]},
    }});
    rig.put([configuration("own", invalid)]);
    let (accepted, errors, _) = told(&rig, "own", "Accepted");
    assert!(accepted.starts_with("not Accepted/Invalid: "), "{accepted}");
    assert_eq!(
        errors,
        [
            "EnvoyInvalidField: spec.envoy.networkPublishing.loadBalancerSourceRanges[0]: expected a range such as \
             192.0.2.0/24, found \"here\", spec.envoy.resources.limits.cpu: expected a CPU quantity such as 500m or 2, \
             found \"much\""
        ]
    );
    let (programmed, ..) = told(&rig, "own", "Programmed");
    assert!(
        programmed.starts_with("not Programmed/Invalid: Not in effect"),
        "{programmed}"
    );
}

#[test]
fn a_section_that_needs_a_restart_is_reported() {
    let (settings, own) = configured(Mode::Managed, json!({"envoy": {}}));
    let mut rig = Rig::with(settings);
    rig.put([own]);
    assert!(told(&rig, "own", "Programmed").0.starts_with("Programmed"));
    rig.put([configuration("own", json!({}))]);
    let (programmed, errors, _) = told(&rig, "own", "Programmed");
    assert!(
        programmed.starts_with("not Programmed/RestartRequired"),
        "{programmed}"
    );
    assert!(
        errors[0].starts_with("EnvoyRestartRequired: spec.envoy: is missing"),
        "{errors:?}"
    );

    let unmanaged = Mode::Unmanaged { gateway: None };
    let (settings, own) = configured(unmanaged, json!({}));
    let mut rig = Rig::with(settings);
    rig.put([own]);
    assert!(told(&rig, "own", "Programmed").0.starts_with("Programmed"));
    rig.put([configuration("own", json!({"envoy": {}}))]);
    let (_, errors, _) = told(&rig, "own", "Programmed");
    assert!(
        errors[0].starts_with("EnvoyRestartRequired: spec.envoy: was added"),
        "{errors:?}"
    );
    let addresses = json!({"unmanagedEnvoy": {"addresses": ["192.0.2.1"]}});
    rig.put([configuration("own", addresses)]);
    let (_, errors, _) = told(&rig, "own", "Programmed");
    assert!(
        errors[0].starts_with("UnmanagedEnvoyRestartRequired: spec.unmanagedEnvoy: has changed"),
        "{errors:?}"
    );
}

#[test]
fn settings_of_the_replicas_take_effect_at_the_next_start() {
    let (settings, own) = configured(Mode::Managed, json!({"envoy": {}, "xds": {"port": 19_000}}));
    let mut rig = Rig::with(settings);
    rig.put([own]);
    assert!(told(&rig, "own", "Programmed").0.starts_with("Programmed"));
    rig.put([configuration(
        "own",
        json!({
            "envoy": {},
            "watchNamespaces": ["shop"],
            "contourCompat": "Read",
            "metrics": {"port": 9102},
            "leaderElection": {"retryPeriod": "1s"},
            "logging": {"level": "debug"},
        }),
    )]);
    let (_, errors, _) = told(&rig, "own", "Programmed");
    let sections = [
        "contourCompat",
        "watchNamespaces",
        "xds",
        "metrics",
        "leaderElection",
    ];
    assert_eq!(errors.len(), sections.len(), "{errors:?}");
    for (error, section) in errors.iter().zip(sections) {
        let text =
            format!("RestartRequired: spec.{section}: has changed; restart Sesame to apply it");
        assert!(error.contains(&text), "{error}");
    }
}

#[test]
fn invalid_settings_of_the_replicas_are_reported() {
    let (settings, own) = configured(Mode::Managed, json!({"envoy": {}}));
    let mut rig = Rig::with(settings);
    rig.put([own]);
    rig.put([configuration(
        "own",
        json!({
            "envoy": {},
            "xds": {"address": "here"},
            "metrics": {"address": "there", "port": 9102},
            "leaderElection": {"leaseDuration": "1500ms", "retryPeriod": "5s"},
        }),
    )]);
    let (_, errors, _) = told(&rig, "own", "Accepted");
    assert_eq!(
        errors,
        [
            "XdsInvalidField: spec.xds.address: expected an IP address, such as 0.0.0.0",
            "MetricsInvalidField: spec.metrics.address: expected an IP address, such as 0.0.0.0",
            "LeaderElectionInvalidField: spec.leaderElection.leaseDuration: expected whole seconds, 60s at most, \
             spec.leaderElection.renewDeadline: expected at least a second less than leaseDuration, which is 10s by \
             default, spec.leaderElection.retryPeriod: expected at most half of renewDeadline, which is 8s by default, \
             and more than zero",
        ]
    );
}

#[test]
fn deprecated_fields_and_those_without_effect_are_warnings() {
    let spec = json!({"gateway": {
        "controllerName": "projectsesame.io/gateway-controller", "name": "web", "namespace": "ns",
    }});
    let (settings, own) = configured(Mode::Unmanaged { gateway: None }, spec);
    assert_eq!(
        settings.mode,
        Mode::Unmanaged {
            gateway: Some(crate::rig::named("web"))
        }
    );
    let mut rig = Rig::with(settings);
    let wide = set(
        reference("SesameConfiguration", "wide"),
        "/namespace",
        json!("ns"),
    );
    rig.put([
        own,
        set(class("edge", 0), "/spec/parametersRef", wide),
        configuration("wide", json!({"ingress": {"classNames": ["a"]}})),
    ]);
    let (_, _, warnings) = told(&rig, "own", "Accepted");
    assert!(
        warnings[0].starts_with("GatewayWarning: spec.gateway.name: is deprecated"),
        "{warnings:?}"
    );
    let (_, _, warnings) = told(&rig, "wide", "Accepted");
    assert!(
        warnings[0].contains("only the envoy and listeners sections have an effect"),
        "{warnings:?}"
    );
}

#[test]
fn the_status_of_the_own_configuration_has_the_progress_of_upgrades() {
    let (settings, own) = configured(Mode::Managed, with_controller(json!({"envoy": {}})));
    let mut rig = Rig::with(settings);
    let other = set(
        reference("SesameConfiguration", "other"),
        "/namespace",
        json!("ns"),
    );
    rig.put([
        own,
        configuration("other", json!({})),
        set(class("edge", 0), "/spec/parametersRef", other),
    ]);
    let conditions = |rig: &Rig, name: &str| status(rig, name).conditions.len();
    assert_eq!(conditions(&rig, "own"), 2);
    for (progress, expected) in [
        (UpgradeProgress::Complete, "EnvoysUpgraded/Upgraded"),
        (
            UpgradeProgress::Paused {
                fleet: fleet("web"),
                reason: "no capacity".to_owned(),
                waiting: 1,
            },
            "not EnvoysUpgraded/Paused: The upgrade of the Envoys of ns/web failed: no capacity. 1 fleet waits until it succeeds.",
        ),
    ] {
        rig.change(|inputs, batch| inputs.set_upgrades(batch, Some(progress)));
        let status = status(&rig, "own");
        assert_eq!(said(&status.conditions, "EnvoysUpgraded"), expected);
    }
    assert_eq!(conditions(&rig, "other"), 2);
    rig.change(|inputs, batch| inputs.set_upgrades(batch, None));
    assert_eq!(conditions(&rig, "own"), 2);
}

/// The default fleet exists while an object of our class does.
#[test]
fn an_instance_with_class_names_serves_only_these_classes() {
    let class = |name: &str, default: &str| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": name, "annotations": {"ingressclass.kubernetes.io/is-default-class": default}},
            "spec": {"controller": "projectsesame.io/ingress-controller"},
        })
    };
    let ingress = |class: Option<&str>| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "web", "namespace": "ns"},
            "spec": {
                "ingressClassName": class,
                "defaultBackend": {"service": {"name": "a", "port": {"number": 80}}},
            },
        })
    };
    let serves = |spec: Value, class_name: Option<&str>| {
        let mut rig = Rig::with(configured(Mode::Managed, spec).0);
        rig.put([
            class("edge", "false"),
            class("other", "true"),
            ingress(class_name),
        ]);
        rig.request(&FleetId::Default).is_some()
    };
    let names = json!({"ingress": {"classNames": ["edge", "bare"]}});
    for (class, only_named, by_default) in [
        (Some("edge"), true, true),
        (Some("bare"), true, false),
        (Some("other"), false, true),
        (Some("sesame"), false, true),
        // The cluster's default class is `other`.
        (None, false, true),
    ] {
        assert_eq!(serves(names.clone(), class), only_named, "{class:?}");
        assert_eq!(serves(json!({}), class), by_default, "{class:?}");
    }
}

#[test]
fn without_the_section_gateway_no_gateway_is_served() {
    let mut rig = Rig::with(configured(Mode::Managed, with_controller(json!({"envoy": {}}))).0);
    rig.put([class("edge", 0), gateway("web", "edge", 1)]);
    assert!(rig.request(&fleet("web")).is_some());
    let (settings, _) = configured(Mode::Managed, json!({"envoy": {}}));
    rig.change(|inputs, batch| inputs.set_settings(batch, settings));
    assert!(rig.request(&fleet("web")).is_none() && rig.class("edge").is_none());
}

#[test]
fn the_default_fleet_has_the_configured_ports_and_parameters() {
    let spec = json!({"envoy": {"replicas": 7}, "defaultPorts": {"http": 8081, "https": 8444}});
    let mut rig = Rig::with(configured(Mode::Managed, spec).0);
    rig.put([json!({
        "apiVersion": "projectsesame.io/v1", "kind": "HTTPProxy",
        "metadata": {"name": "a", "namespace": "ns"}, "spec": {"virtualhost": {"fqdn": "a.com"}},
    })]);
    let request = rig.request(&FleetId::Default).expect("a fleet");
    let ports: Vec<u16> = request.ports.iter().map(|port| port.number).collect();
    assert_eq!(ports, [8081, 8444]);
    let parameters = request.parameters.clone().expect("valid parameters");
    assert_eq!(parameters.replicas, Some(7));
    assert_eq!(rig.binds().len(), 1);
    assert!(rig.binds()[0].contains("8081"), "{:?}", rig.binds());
}

/// A Gateway in front of the Envoys would have Envoys with a Gateway in front of them, and so on.
#[test]
fn fleets_have_no_gateway_of_the_same_instance_in_front() {
    let gateway_of = |fields: Value| json!({"type": "Gateway", "gateway": fields});
    let spec = |publishing: Value| json!({"envoy": {"networkPublishing": publishing}});
    let published = spec(gateway_of(json!({"className": "edge"})));
    let (settings, own) = configured(Mode::Managed, with_controller(published));
    let mut rig = Rig::with(settings);
    let proxy = json!({
        "apiVersion": "projectsesame.io/v1", "kind": "HTTPProxy",
        "metadata": {"name": "a", "namespace": "ns"}, "spec": {"virtualhost": {"fqdn": "a.com"}},
    });
    // Without the class, it may be another implementation's.
    rig.put([own, proxy]);
    let default = |rig: &Rig| {
        let request = rig.request(&FleetId::Default).expect("a fleet");
        request.parameters.clone()
    };
    assert!(default(&rig).is_some());
    assert!(told(&rig, "own", "Programmed").0.starts_with("Programmed/"));

    rig.put([class("edge", 0), gateway("web", "edge", 1)]);
    assert_eq!(default(&rig), None);
    let error = "spec.envoy.networkPublishing.gateway.className: this instance of Sesame implements GatewayClass edge; name a \
                 class of another implementation";
    let (accepted, errors, _) = told(&rig, "own", "Accepted");
    assert!(accepted.starts_with("not Accepted/Invalid"), "{accepted}");
    assert_eq!(errors, [format!("EnvoyInvalidField: {error}")]);
    let (programmed, ..) = told(&rig, "own", "Programmed");
    assert!(
        programmed.contains("Not in effect for Envoys"),
        "{programmed}"
    );
    assert_eq!(
        said(&rig.gateway("web").conditions, "Accepted"),
        format!("not Accepted/InvalidParameters: configuration field {error}")
    );

    let theirs = set(
        class("edge", 0),
        "/spec/controllerName",
        json!("example.com/lb"),
    );
    rig.put([theirs]);
    assert!(default(&rig).is_some());

    // A Gateway that another instance has created.
    let label = json!({"projectsesame.io/fleet": "web"});
    rig.put([
        class("ours", 0),
        set(gateway("outer", "ours", 1), "/metadata/labels", label),
    ]);
    let refused = said(&rig.gateway("outer").conditions, "Accepted");
    assert!(
        refused.contains("spec.envoy.networkPublishing.type: type Gateway"),
        "{refused}"
    );

    // A class's configuration can name the controller of the instance.
    let again = gateway_of(json!({"controllerName": "projectsesame.io/gateway-controller"}));
    let wide = set(
        reference("SesameConfiguration", "wide"),
        "/namespace",
        json!("ns"),
    );
    rig.put([
        set(class("again", 0), "/spec/parametersRef", wide),
        configuration("wide", spec(again)),
        gateway("api", "again", 1),
    ]);
    let (_, errors, _) = told(&rig, "wide", "Accepted");
    assert!(
        errors[0].contains("spec.envoy.networkPublishing.gateway.controllerName: is the"),
        "{errors:?}"
    );
    let said = said(&rig.gateway("api").conditions, "Accepted");
    assert!(said.contains("gateway.controllerName: is the"), "{said}");
}
