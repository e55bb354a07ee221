//! BackendTLSPolicies, client certificates and XBackendTrafficPolicies.

use serde_json::{Value, json};
use sesame_testkit::certs::{Authority, Identity};
use sesame_tests::world::World;

use crate::{BACKEND, TABLES, costs, metadata, route, secret, service_name, upsert, with};

/// A ConfigMap with a CA certificate.
pub(crate) fn config_map(name: &str, authority: &Authority) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(name),
        "data": {"ca.crt": authority.pem()},
    })
}

pub(crate) fn policies(world: &mut World) {
    let config_map = |authority| config_map("ca", authority);
    let policy = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "BackendTLSPolicy",
        "metadata": metadata("tls"),
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": service_name(5)}],
            "validation": {
                "hostname": "s.example.com",
                "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}],
            },
        },
    });
    let [first, second] = [(); 2].map(|()| Authority::new().expect("a CA"));
    // A Service gets a policy: a new cluster replaces the old one.
    let service = service_name(5);
    costs(
        world,
        vec![upsert(config_map(&first)), upsert(policy)],
        &with(&[
            BACKEND,
            &[
                ("parameters", 1),
                ("parameters in config_maps", 1),
                ("authority state", 1),
                ("backend_tls_policy state", 1),
                ("trust bundle", 1),
                ("trust bundle of secret", 1),
                ("envoy.trust_bundles", 1),
                ("http rules", 1),
                ("http refused", 1),
                ("virtual host", 2),
                ("envoy.virtual_hosts", 2),
                ("http_route status", 1),
                ("backend uses", 1),
                ("backend_tls_policy status", 1),
            ],
        ]),
        &[
            &format!("-Cluster default/{service}:80"),
            &format!("Cluster default/{service}:80?tls=default/tls"),
            &format!("-ClusterLoadAssignment default/{service}:80"),
            &format!("ClusterLoadAssignment default/{service}:80?tls=default/tls"),
            "Secret ca:default/tls",
            TABLES[0],
            TABLES[1],
        ],
    );

    // Its CA is rotated.
    costs(
        world,
        vec![upsert(config_map(&second))],
        &[
            ("parameters in config_maps", 1),
            ("authority state", 1),
            ("backend_tls_policy state", 1),
            ("trust bundle", 1),
            ("trust bundle of secret", 1),
            ("envoy.trust_bundles", 1),
        ],
        &["Secret ca:default/tls"],
    );
}

/// A retry limit changes a cluster; session persistence changes the routes to it.
pub(crate) fn traffic(world: &mut World) {
    let service = service_name(9);
    let policy = |spec: Value| {
        let mut policy = json!({
            "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
            "kind": "XBackendTrafficPolicy",
            "metadata": metadata("traffic"),
            "spec": spec,
        });
        policy["spec"]["targetRefs"] = json!([{"group": "", "kind": "Service", "name": &service}]);
        vec![upsert(policy)]
    };
    let cluster = format!("Cluster default/{service}:80");
    let limit: &[(&str, usize)] = &[
        ("backend_traffic_policy state", 1),
        ("backend", 1),
        ("cluster", 1),
        ("endpoints", 1),
        ("envoy.clusters", 1),
        ("backend_traffic_policy status", 1),
    ];

    // A Service gets a retry limit, which then changes.
    costs(
        world,
        policy(json!({"retryConstraint": {}})),
        &with(&[limit, &[("backend uses", 1)]]),
        &[&cluster],
    );
    let half = json!({"budget": {"percent": 50}});
    costs(
        world,
        policy(json!({"retryConstraint": half})),
        limit,
        &[&cluster],
    );

    // Its sessions become persistent.
    costs(
        world,
        policy(json!({"retryConstraint": half, "sessionPersistence": {"cookie": {}}})),
        &[
            ("backend_traffic_policy state", 1),
            ("backend", 1),
            ("cluster", 1),
            ("http rules", 1),
            ("http refused", 1),
            ("virtual host", 2),
            ("envoy.virtual_hosts", 2),
            ("http_route status", 1),
            ("backend_traffic_policy status", 1),
        ],
        &TABLES,
    );
}

/// A client certificate affects only those hosts of its Gateway that have backends with a policy.
pub(crate) fn client_certificates(world: &mut World) {
    let identity = || Identity::self_signed(&["gateway.example.com"]).expect("a certificate");
    let mut gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": metadata("mutual"),
        "spec": {
            "gatewayClassName": "sesame",
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
        },
    });
    let service = service_name(5);
    let both = |name: &str, service: &str| {
        let mut route = route(name, &format!("{name}.example.com"), service);
        route["spec"]["parentRefs"] = json!([{"name": "web"}, {"name": "mutual"}]);
        upsert(route)
    };
    world.apply([
        upsert(gateway.clone()),
        upsert(secret("client", &identity())),
        both("secured", &service),
        both("plain", &service_name(6)),
    ]);

    // The Gateway gets a certificate: a new cluster replaces the shared one.
    gateway["spec"]["tls"] = json!({"backend": {"clientCertificateRef": {"name": "client"}}});
    let of_gateway: &[(&str, usize)] = &[
        ("gateway creation time", 1),
        ("gateway parameters", 1),
        ("gateway state", 1),
        ("gateway claims", 1),
        ("gateway points", 1),
        ("gateway terminations", 1),
        ("gateway status", 1),
        ("gateway notices", 1),
        ("listener_set parent", 1),
        ("gateway fleet", 1),
    ];
    let own: &[(&str, usize)] = &[
        ("certificate state", 1),
        ("expiring certificates", 1),
        ("certificate", 1),
        ("client certificate", 1),
        ("fleets with client certificate", 1),
        ("fleet's client certificate", 1),
        ("envoy.certificates", 1),
        ("virtual host", 1),
        ("envoy.virtual_hosts", 1),
        ("cluster", 1),
        ("endpoints", 1),
        ("envoy.clusters", 1),
        ("envoy.endpoints", 1),
    ];
    costs(
        world,
        vec![upsert(gateway)],
        &with(&[of_gateway, own]),
        &[
            &format!("-Cluster default/{service}:80?tls=default/tls"),
            &format!("Cluster default/{service}:80?tls=default/tls&client=default/client"),
            &format!("-ClusterLoadAssignment default/{service}:80?tls=default/tls"),
            &format!(
                "ClusterLoadAssignment default/{service}:80?tls=default/tls&client=default/client"
            ),
            "Secret default/client",
            "RouteConfiguration 80",
        ],
    );

    // The certificate is rotated.
    costs(
        world,
        vec![upsert(secret("client", &identity()))],
        &[
            ("certificate state", 1),
            ("expiring certificates", 1),
            ("certificate", 1),
            ("gateway state", 1),
            ("envoy.certificates", 1),
        ],
        &["Secret default/client"],
    );
}
