//! What is in front of Envoys: load balancers of clouds, and Gateways of other implementations.

use serde_json::{Value, json};

use super::{Outcome, Row, row};

/// Load balancers, whose annotations have no effect in the cluster of the tests.
pub(super) fn load_balancers() -> Vec<Row> {
    let field = "envoy.networkPublishing.loadBalancer";
    let balancer = |scope: &str, provider: &Value| json!({ "scope": scope, "provider": provider });
    let aws = |type_: &str| {
        let ids = ["eipalloc-0123456789abcdef0"];
        json!({ "type": "AWS", "aws": { "type": type_, "allocationIDs": ids } })
    };
    let azure = |settings: Value| json!({ "type": "Azure", "azure": settings });
    let subnet = azure(json!({ "subnet": "edge" }));
    let group = azure(json!({ "resourceGroup": "edge" }));
    let gcp = json!({ "type": "GCP", "gcp": { "subnet": "edge" } });
    let address = |ip: &str| balancer("Internal", &azure(json!({ "addressIP": ip })));
    vec![
        row(
            field,
            balancer("External", &aws("NLB")),
            balancer("External", &aws("Classic")),
        ),
        row(
            field,
            balancer("Internal", &subnet),
            balancer("External", &subnet),
        ),
        row(
            field,
            balancer("External", &group),
            balancer("Internal", &group),
        ),
        row(
            field,
            balancer("Internal", &gcp),
            balancer("External", &gcp),
        ),
        Row(
            field,
            address("192.0.2.1"),
            Outcome::Programmed,
            Some((address("edge"), Outcome::Reported)),
        ),
    ]
}

/// Gateways, which aren't created: see [`super::UNAPPLIED`].
pub(super) fn gateways() -> Vec<Row> {
    let field = "envoy.networkPublishing";
    let publishing = |gateway: Value| json!({ "type": "Gateway", "gateway": gateway });
    let of = |name: &str, value: &str| {
        let reference = json!({
            "group": "example.com",
            "kind": "Settings",
            "name": "edge",
            "namespace": "infra",
        });
        let mut gateway = json!({ "parametersRef": reference });
        gateway[name] = json!(value);
        publishing(gateway)
    };
    vec![
        row(
            field,
            publishing(json!({ "className": "other" })),
            publishing(json!({})),
        ),
        row(
            field,
            of("controllerName", "example.com/other"),
            of("className", "other"),
        ),
    ]
}
