//! SesameConfigurations: the instance's, and one of a Gateway.

use serde_json::{Value, json};

use super::http_proxy::{EXTENSION, descriptors};
use super::{NAME, NAMESPACE, named, names, object, text};

/// The namespace and the name of the instance's configuration.
pub const INSTANCE: (&str, &str) = (NAMESPACE, NAME);

pub(super) fn all() -> Vec<Value> {
    let extension = json!({"namespace": NAMESPACE, "name": EXTENSION});
    let entry = |number: usize| (format!("x{number}"), json!("a"));
    let context: Value = (0..32).map(entry).collect();
    let tag = |name: String| json!({"tagName": name, "literal": text(1_024)});
    // Each route has a copy, and HTTPProxies with thousands of routes have a limit.
    let header = |name: String| json!({"name": name, "value": "a"});
    let mut set: Vec<Value> = names(63, 5).map(header).collect();
    set.push(json!({"name": text(256), "value": text(4_096)}));
    let mut remove: Vec<String> = names(63, 6).collect();
    remove.push(text(255) + "b");
    let changes = json!({"set": set, "remove": remove});
    let spec = json!({
        "gateway": {"controllerName": "projectsesame.io/gateway-controller"},
        "listeners": listeners(),
        "ingress": {"classNames": ["sesame"]},
        "clientCertificate": {"namespace": NAMESPACE, "name": names(1, 253).next()},
        "httpProxy": {"fallbackCertificate": {"namespace": NAMESPACE, "name": names(1, 253).next()}},
        "rateLimitService": {
            "extensionService": extension,
            "domain": text(253),
            "defaultGlobalRateLimitPolicy": {"descriptors": descriptors()},
        },
        "globalAuth": {"extensionService": extension, "authPolicy": {"context": context}},
        "policy": {"requestHeaders": changes, "responseHeaders": changes},
        "tracing": {
            "extensionService": extension,
            "serviceName": text(253),
            "maxPathTagLength": 8_192,
            "customTags": names(64, 253).map(tag).collect::<Vec<_>>(),
        },
    });
    let of_gateway = json!({"listeners": {"accessLog": {"level": "All", "text": text(4_096)}}});
    let version = "projectsesame.io/v1alpha1";
    let kind = "SesameConfiguration";
    vec![
        object(version, kind, spec),
        named(version, kind, &of_a_gateway(), of_gateway),
    ]
}

/// The name of the configuration that a Gateway refers to.
pub(super) fn of_a_gateway() -> String {
    names(1, 253).collect()
}

fn listeners() -> Value {
    let mut fields: serde_json::Map<String, Value> = (0..63)
        .map(|number| (format!("x{number}"), json!("a")))
        .collect();
    fields.insert("long".to_owned(), text(4_096).into());
    let fields = Value::Object(fields);
    json!({
        "tls": {"minimumProtocolVersion": "1.2", "cipherSuites": [
            "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
            "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA",
            "AES128-GCM-SHA256", "AES128-SHA", "AES256-GCM-SHA384", "AES256-SHA",
        ]},
        "proxyProtocol": "Optional",
        "accessLog": {"level": "All", "format": "JSON", "json": fields},
        "compression": ["Gzip", "Brotli", "Zstd"],
        "timeouts": {"request": "99999h", "connectionDuration": "99999h"},
        "limits": {
            "concurrentStreams": i32::MAX, "requestHeadersKiB": 8_192, "requestHeaderCount": 10_000,
            "connectionBufferBytes": i32::MAX, "http2StreamWindowBytes": i32::MAX,
            "http2ConnectionWindowBytes": i32::MAX,
        },
        "trustedHops": 100,
    })
}
