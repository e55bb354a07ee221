//! Adds fields next to the place under test, so that the objects of `sample.rs` satisfy the CRDs' CEL rules.

use serde_json::{Value, json};

use super::schema::{Path, Step};

/// Adds what the kind's rules require. Never changes the value at `path`.
pub(crate) fn apply(kind: &str, path: &Path, object: &mut Value) {
    match kind {
        "Gateway" | "ListenerSet" | "XListenerSet" => {
            for listener in elements(&mut object["spec"], "listeners") {
                listener_tls(listener);
            }
        }
        "HTTPRoute" | "GRPCRoute" => {
            for rule in elements(&mut object["spec"], "rules") {
                session(rule);
                for matching in elements(rule, "matches") {
                    grpc_method(matching);
                }
            }
        }
        "TLSRoute" => {
            let spec = object["spec"].as_object_mut();
            // Optional in v1alpha2, but Sesame reads v1, which requires it.
            spec.map(|spec| spec.entry("hostnames").or_insert(json!(["a.example.com"])));
        }
        "XBackendTrafficPolicy" => session(&mut object["spec"]),
        "XTelemetryPolicy" => tracing(&mut object["spec"]),
        "BackendTLSPolicy" => authorities(path, &mut object["spec"]["validation"]),
        "XBackend" => xbackend(path, &mut object["spec"]),
        _ => {}
    }
}

fn elements<'a>(value: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = value.get_mut(field).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

/// TLS is valid for some protocols only, and Terminate requires certificates.
fn listener_tls(listener: &mut Value) {
    let Some(tls) = listener.get_mut("tls").and_then(Value::as_object_mut) else {
        return;
    };
    let passes = tls.get("mode") == Some(&json!("Passthrough"));
    if !passes && !tls.contains_key("certificateRefs") && !tls.contains_key("options") {
        tls.insert("certificateRefs".to_owned(), json!([{ "name": "a" }]));
    }
    listener["protocol"] = json!(if passes { "TLS" } else { "HTTPS" });
}

/// A permanent cookie requires a timeout.
fn session(rule: &mut Value) {
    let Some(session) = rule.get_mut("sessionPersistence") else {
        return;
    };
    if session["cookie"]["lifetimeType"] == "Permanent" {
        session["absoluteTimeout"] = json!("1h");
    }
}

/// A method match requires a service or a method.
fn grpc_method(matching: &mut Value) {
    let Some(method) = matching.get_mut("method").and_then(Value::as_object_mut) else {
        return;
    };
    if !method.contains_key("service") && !method.contains_key("method") {
        method.insert("service".to_owned(), json!("a"));
    }
}

/// A port has a number; sessions require pods; TLS fields require modes, and some protocols require TLS.
fn xbackend(path: &Path, spec: &mut Value) {
    let Some(fields) = spec.as_object_mut() else {
        return;
    };
    if fields.contains_key("sessionPersistence") && fields["type"] != "EndpointSelector" {
        fields.insert("type".to_owned(), json!("EndpointSelector"));
        fields.remove("externalHostname");
        let selector = json!({ "matchLabels": { "example.com/key": "a" } });
        fields.insert("endpointSelector".to_owned(), selector);
    }
    if let Some(port) = spec["port"].as_object_mut() {
        port.entry("number").or_insert(json!(443));
    }
    session(spec);
    let protocol = spec.get("protocol").and_then(Value::as_str);
    if matches!(protocol, Some("HTTP2" | "WSS")) {
        spec["tls"] = json!({ "mode": "ServerOnly" });
    }
    let given = path.0.last() == Some(&Step::Field("mode".to_owned()));
    let Some(tls) = spec.get_mut("tls").filter(|tls| tls.is_object()) else {
        return;
    };
    let certificate = tls.get("clientCertificateRef").is_some();
    if !given && (certificate || tls.get("validation").is_some()) {
        tls["mode"] = json!(if certificate {
            "ClientAndServer"
        } else {
            "ServerOnly"
        });
    }
    if tls["mode"] == "ClientAndServer" && !certificate {
        tls["clientCertificateRef"] = json!({ "name": "a" });
    }
    if tls["mode"] != "None" {
        if tls.get("validation").is_none() {
            tls["validation"] = json!({ "hostname": "a.example.com" });
        }
        authorities(path, &mut tls["validation"]);
    }
}

/// Exactly one source of CA certificates.
fn authorities(path: &Path, validation: &mut Value) {
    let refs = Step::Field("caCertificateRefs".to_owned());
    let fields = validation.as_object_mut();
    if let Some(fields) = fields
        && !path.0.contains(&refs)
        && !fields.contains_key("wellKnownCACertificates")
    {
        fields.insert("wellKnownCACertificates".to_owned(), json!("System"));
    }
}

/// All tracing settings require mode Enabled, which requires a provider. Each attribute has one source.
fn tracing(spec: &mut Value) {
    let Some(spec) = spec.as_object_mut() else {
        return;
    };
    let tracing = spec.entry("tracing").or_insert(json!({}));
    for attribute in elements(tracing, "attributes") {
        source(attribute);
    }
    if let Some(parents) = tracing.get_mut("parentBasedSampling")
        && parents.get("samplingRate").is_some()
    {
        parents["mode"] = json!("Enabled");
    }
    let fields = tracing.as_object_mut();
    if let Some(fields) = fields
        && (fields.get("mode") == Some(&json!("Enabled")) || fields.keys().any(|key| key != "mode"))
    {
        fields.insert("mode".to_owned(), json!("Enabled"));
        let provider = fields.entry("provider").or_insert(json!({}));
        if provider.get("backendRef").is_none() {
            provider["backendRef"] = json!({ "name": "a", "port": 1 });
        }
    }
}

fn source(attribute: &mut Value) {
    let sources = [
        ("Header", "headerName"),
        ("Literal", "literalValue"),
        ("Attribute", "attributeKey"),
    ];
    let given = sources
        .iter()
        .find(|(_, field)| attribute.get(field).is_some());
    if let Some((type_, _)) = given {
        attribute["sourceType"] = json!(type_);
    } else if let Some((_, field)) = sources
        .iter()
        .find(|(type_, _)| attribute["sourceType"] == *type_)
    {
        attribute[field] = json!("a");
    }
}
