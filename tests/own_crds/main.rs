//! Checks the CRDs of Sesame's own kinds: they are up to date, a real API server accepts them, and it accepts and
//! rejects the same objects as `api`, at the same fields.

mod configuration;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams, ValidationDirective};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use sesame_api::Object;
use sesame_testkit::api_server::ApiServer;

/// How long an API server may take to serve a CRD's kind.
const PATIENCE: Duration = Duration::from_secs(60);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The CRDs in the repository, by name.
fn stored() -> Vec<Value> {
    let folder = root().join("deploy/crds");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the folder is in the repository")
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("the file can be read");
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    files.into_iter().map(read).collect()
}

/// Objects that use every field.
fn examples() -> Vec<Value> {
    let path = root().join("crates/api/testdata/own.yaml");
    let text = fs::read_to_string(path).expect("the file is in the repository");
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text).expect("the file is YAML");
    objects.retain(|object| {
        let version = object["apiVersion"].as_str().expect("a string");
        version.starts_with("projectsesame.io/")
    });
    objects
}

/// A change to a kind's example: the field, its value (null removes it), and the field that becomes invalid, if any.
type Sample = (&'static str, &'static str, Value, Option<&'static str>);

fn samples() -> Vec<Sample> {
    let proxy = |pointer: &'static str, value: Value, wrong: Option<&'static str>| {
        ("HTTPProxy", pointer, value, wrong)
    };
    let long = |length: usize| json!("a".repeat(length));
    let many = |count: usize, entry: Value| Value::Array(vec![entry; count]);
    let service = json!({"name": "a", "port": 80});
    let route = json!({"services": [service]});
    let with_services = json!({"services": many(32, service.clone())});
    let delegation = json!({"secretName": "a", "targetNamespaces": many(1024, json!("namespace"))});
    let fqdn = "/spec/virtualhost/fqdn";
    vec![
        proxy(fqdn, json!("*.example.com"), None),
        proxy(fqdn, json!("localhost"), None),
        proxy(fqdn, json!("a.*.com"), Some("spec.virtualhost.fqdn")),
        proxy(
            fqdn,
            json!("Shop.example.com"),
            Some("spec.virtualhost.fqdn"),
        ),
        proxy(fqdn, json!(""), Some("spec.virtualhost.fqdn")),
        proxy(fqdn, Value::Null, Some("spec.virtualhost.fqdn")),
        proxy(fqdn, json!(5), Some("spec.virtualhost.fqdn")),
        proxy("/spec/virtualhost", Value::Null, None),
        proxy(
            "/spec/virtualhost/ipDenyPolicy",
            json!([{"source": "Peer", "cidr": "::/0"}]),
            Some("spec.virtualhost"),
        ),
        proxy("/spec/virtualhost/ipDenyPolicy", json!([]), None),
        proxy(
            "/spec/virtualhost/ipAllowPolicy/0/source",
            json!("peer"),
            Some("spec.virtualhost.ipAllowPolicy[0].source"),
        ),
        proxy(
            "/spec/virtualhost/jwtProviders/1/remoteJWKS",
            json!({"uri": "https://a"}),
            Some("spec.virtualhost.jwtProviders[1]"),
        ),
        proxy(
            "/spec/virtualhost/jwtProviders/1/localJWKS",
            Value::Null,
            Some("spec.virtualhost.jwtProviders[1]"),
        ),
        proxy(
            "/spec/virtualhost/jwtProviders/0/remoteJWKS/validation/subjectNames",
            json!(["other.example.com"]),
            Some("spec.virtualhost.jwtProviders[0].remoteJWKS.validation"),
        ),
        proxy(
            "/spec/virtualhost/corsPolicy/allowMethods",
            json!([]),
            Some("spec.virtualhost.corsPolicy.allowMethods"),
        ),
        proxy(
            "/spec/virtualhost/authorization/serviceType",
            json!("https"),
            Some("spec.virtualhost.authorization.serviceType"),
        ),
        proxy(
            "/spec/virtualhost/authorization/httpSettings/allowedUpstreamHeaders/0/exact",
            json!("a"),
            Some("spec.virtualhost.authorization.httpSettings.allowedUpstreamHeaders[0]"),
        ),
        proxy(
            "/spec/virtualhost/rateLimitPolicy/local/requests",
            json!(0),
            Some("spec.virtualhost.rateLimitPolicy.local.requests"),
        ),
        proxy(
            "/spec/virtualhost/rateLimitPolicy/local/requests",
            json!(4_294_967_295u32),
            None,
        ),
        proxy(
            "/spec/virtualhost/rateLimitPolicy/local/unit",
            json!("day"),
            Some("spec.virtualhost.rateLimitPolicy.local.unit"),
        ),
        proxy(
            "/spec/virtualhost/rateLimitPolicy/global/descriptors/0/entries/0/remoteAddress",
            json!({}),
            Some("spec.virtualhost.rateLimitPolicy.global.descriptors[0].entries[0]"),
        ),
        proxy("/spec/routes", many(1024, route.clone()), None),
        proxy("/spec/routes", many(1025, route), Some("spec.routes")),
        proxy("/spec/routes", many(128, with_services.clone()), None),
        proxy(
            "/spec/routes",
            many(129, with_services),
            Some("spec.routes"),
        ),
        proxy("/spec/routes/0/services", json!([]), Some("spec.routes[0]")),
        proxy(
            "/spec/routes/0/services",
            Value::Null,
            Some("spec.routes[0]"),
        ),
        proxy(
            "/spec/routes/0/directResponsePolicy",
            json!({"statusCode": 404}),
            Some("spec.routes[0]"),
        ),
        proxy(
            "/spec/routes/0/conditions/0/exact",
            json!("/a"),
            Some("spec.routes[0].conditions[0]"),
        ),
        proxy(
            "/spec/routes/0/conditions/0/prefix",
            json!("shop"),
            Some("spec.routes[0].conditions[0].prefix"),
        ),
        proxy(
            "/spec/routes/0/conditions/1/header/exact",
            json!("a"),
            Some("spec.routes[0].conditions[1].header"),
        ),
        proxy(
            "/spec/routes/0/conditions/1/header/present",
            json!(false),
            Some("spec.routes[0].conditions[1].header"),
        ),
        proxy(
            "/spec/routes/0/conditions/1/header/notpresent",
            json!(false),
            None,
        ),
        proxy(
            "/spec/routes/0/conditions/8/queryParameter/prefix",
            json!("a"),
            Some("spec.routes[0].conditions[8].queryParameter"),
        ),
        proxy("/spec/routes/0/services/0/port", json!(65535), None),
        proxy(
            "/spec/routes/0/services/0/port",
            json!(0),
            Some("spec.routes[0].services[0].port"),
        ),
        proxy(
            "/spec/routes/0/services/0/port",
            json!(65536),
            Some("spec.routes[0].services[0].port"),
        ),
        proxy("/spec/routes/0/services/0/weight", json!(1_000_000), None),
        proxy(
            "/spec/routes/0/services/0/weight",
            json!(1_000_001),
            Some("spec.routes[0].services[0].weight"),
        ),
        proxy(
            "/spec/routes/0/services/0/weight",
            json!(-1),
            Some("spec.routes[0].services[0].weight"),
        ),
        proxy(
            "/spec/routes/0/services/0/protocol",
            json!("http"),
            Some("spec.routes[0].services[0].protocol"),
        ),
        proxy(
            "/spec/routes/0/services/0/slowStartPolicy/minWeightPercent",
            json!(101),
            Some("spec.routes[0].services[0].slowStartPolicy.minWeightPercent"),
        ),
        proxy(
            "/spec/routes/0/services/0/slowStartPolicy/window",
            Value::Null,
            Some("spec.routes[0].services[0].slowStartPolicy.window"),
        ),
        // Translation reports these.
        proxy("/spec/routes/0/timeoutPolicy/response", json!("soon"), None),
        proxy(
            "/spec/routes/0/loadBalancerPolicy/strategy",
            json!("Best"),
            None,
        ),
        proxy("/spec/routes/0/retryPolicy/count", json!(-1), None),
        proxy(
            "/spec/routes/0/retryPolicy/count",
            json!(-2),
            Some("spec.routes[0].retryPolicy.count"),
        ),
        proxy(
            "/spec/routes/0/retryPolicy/retryOn",
            json!(["5xx", "never"]),
            Some("spec.routes[0].retryPolicy.retryOn[1]"),
        ),
        proxy(
            "/spec/routes/0/healthCheckPolicy/expectedStatuses/0/end",
            json!(200),
            Some("spec.routes[0].healthCheckPolicy.expectedStatuses[0]"),
        ),
        proxy(
            "/spec/routes/0/cookieRewritePolicies",
            json!([{"name": "a"}]),
            Some("spec.routes[0].cookieRewritePolicies[0]"),
        ),
        proxy(
            "/spec/routes/0/cookieRewritePolicies/0/name",
            json!("a;b"),
            Some("spec.routes[0].cookieRewritePolicies[0].name"),
        ),
        proxy(
            "/spec/routes/0/cookieRewritePolicies/0/pathRewrite/value",
            json!("/;"),
            Some("spec.routes[0].cookieRewritePolicies[0].pathRewrite.value"),
        ),
        proxy(
            "/spec/routes/0/jwtVerificationPolicy/disabled",
            json!(true),
            Some("spec.routes[0].jwtVerificationPolicy"),
        ),
        proxy(
            "/spec/routes/0/jwtVerificationPolicy/disabled",
            json!(false),
            None,
        ),
        proxy(
            "/spec/routes/1/requestRedirectPolicy/statusCode",
            json!(304),
            Some("spec.routes[1].requestRedirectPolicy.statusCode"),
        ),
        proxy(
            "/spec/routes/1/requestRedirectPolicy/prefix",
            json!("/a"),
            Some("spec.routes[1].requestRedirectPolicy"),
        ),
        proxy(
            "/spec/routes/3/directResponsePolicy/statusCode",
            json!(600),
            Some("spec.routes[3].directResponsePolicy.statusCode"),
        ),
        proxy(
            "/spec/includes/0/name",
            Value::Null,
            Some("spec.includes[0].name"),
        ),
        proxy(
            "/spec/includes/0/namespace",
            long(64),
            Some("spec.includes[0].namespace"),
        ),
        proxy(
            "/spec/tcpproxy/services",
            many(33, service),
            Some("spec.tcpproxy.services"),
        ),
        (
            "ExtensionService",
            "/spec/services",
            json!([]),
            Some("spec.services"),
        ),
        (
            "ExtensionService",
            "/spec/protocol",
            json!("http/1.1"),
            None,
        ),
        (
            "ExtensionService",
            "/spec/protocol",
            json!("h3"),
            Some("spec.protocol"),
        ),
        (
            "ExtensionService",
            "/spec/protocolVersion",
            json!("v2"),
            Some("spec.protocolVersion"),
        ),
        (
            "TLSCertificateDelegation",
            "/spec/delegations/0/targetNamespaces",
            Value::Null,
            Some("spec.delegations[0].targetNamespaces"),
        ),
        (
            "TLSCertificateDelegation",
            "/spec/delegations/0/targetNamespaces",
            json!([]),
            None,
        ),
        (
            "TLSCertificateDelegation",
            "/spec/delegations",
            many(16, delegation.clone()),
            None,
        ),
        (
            "TLSCertificateDelegation",
            "/spec/delegations",
            many(17, delegation),
            Some("spec.delegations"),
        ),
        (
            "TLSCertificateDelegation",
            "/spec/delegations/0/secretName",
            json!(""),
            Some("spec.delegations[0].secretName"),
        ),
    ]
}

/// An object with the field at a JSON pointer set or removed.
fn changed(mut object: Value, pointer: &str, value: &Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer has a slash");
    match object.pointer_mut(parent).expect("the parent exists") {
        Value::Object(fields) if value.is_null() => drop(fields.remove(field)),
        parent => parent[field] = value.clone(),
    }
    object
}

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').expect("a group and a version");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
        group,
        version,
        &text(&object["kind"]),
    ));
    match object["metadata"]["namespace"].as_str() {
        Some(_) => Api::namespaced_with(client.clone(), "default", &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Tests whether the API server accepts an object. The error is the API server's message.
async fn admit(client: &Client, object: &Value) -> Result<(), String> {
    let mut object = object.clone();
    let api = api(client, &object);
    object["metadata"]["namespace"] = json!("default");
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    match api.create(&params, &object).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

async fn install(client: &Client) {
    for definition in stored() {
        let params = PatchParams {
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply("install")
        };
        let name = definition["metadata"]["name"].as_str().expect("a name");
        let api = api(client, &definition);
        if let Err(error) = api.patch(name, &params, &Patch::Apply(&definition)).await {
            panic!("{name}: {error}");
        }
    }
    let until = Instant::now() + PATIENCE;
    for example in examples() {
        while let Err(error) = admit(client, &example).await {
            assert!(Instant::now() < until, "{}: {error}", example["kind"]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[test]
fn the_definitions_in_the_repository_are_up_to_date() {
    let stored = stored();
    let made = sesame_api::crd::definitions();
    assert!(stored == made, "run `cargo xtask deploy`");
}

#[tokio::test]
async fn the_api_server_accepts_and_rejects_the_same_objects_as_api() {
    let server = ApiServer::start().await.unwrap();
    let client = server.admin().await.unwrap();
    install(&client).await;
    let examples = examples();
    let mut wrong = Vec::new();
    for (kind, pointer, value, invalid) in samples().into_iter().chain(configuration::samples()) {
        let example = examples.iter().find(|object| object["kind"] == kind);
        let example = example.expect("each kind has an example").clone();
        let object = changed(example, pointer, &value);
        let mut shown = format!("{kind} {pointer} {value}");
        shown.truncate(150);
        let ours = Object::decode(object.clone()).map_err(|error| error.path_text());
        let ours = ours.map(drop).err();
        if ours.as_deref() != invalid {
            wrong.push(format!("{shown}: api rejects {ours:?}"));
        }
        let theirs = admit(&client, &object).await.err();
        let agrees = match (&theirs, invalid) {
            (None, None) => true,
            (Some(message), Some(path)) => message.contains(&format!("{path}: ")),
            _ => false,
        };
        if !agrees {
            wrong.push(format!("{shown}: the API server returned {theirs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn an_object_gets_defaults_and_an_initial_status() {
    let server = ApiServer::start().await.unwrap();
    let client = server.admin().await.unwrap();
    install(&client).await;
    let proxy = json!({
        "apiVersion": "projectsesame.io/v1", "kind": "HTTPProxy",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"routes": [{"requestRedirectPolicy": {"hostname": "example.com"}}]},
    });
    let api = api(&client, &proxy);
    let object: DynamicObject = serde_json::from_value(proxy).unwrap();
    let stored = api.create(&PostParams::default(), &object).await.unwrap();
    let redirect = &stored.data["spec"]["routes"][0]["requestRedirectPolicy"];
    assert_eq!(
        *redirect,
        json!({"hostname": "example.com", "statusCode": 302})
    );
    assert_eq!(stored.data["status"]["currentStatus"], "NotReconciled");
}
