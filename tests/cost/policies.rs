//! BackendTLSPolicies.

use serde_json::json;
use sesame_testkit::certs::Authority;
use sesame_tests::world::World;

use crate::{BACKEND, TABLES, costs, metadata, service_name, upsert, with};

pub(crate) fn policies(world: &mut World) {
    let config_map = |authority: &Authority| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata("ca"),
            "data": {"ca.crt": authority.pem()},
        })
    };
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
    // A Service gets a policy: a cluster replaces the other.
    let service = service_name(5);
    costs(
        world,
        vec![upsert(config_map(&first)), upsert(policy)],
        &with(&[
            BACKEND,
            &[
                ("parameters", 1),
                ("authority state", 1),
                ("backend_tls_policy state", 1),
                ("trust bundle", 1),
                ("envoy.trust_bundles", 1),
                ("http rules", 1),
                ("http refused", 1),
                ("virtual host", 2),
                ("envoy.virtual_hosts", 2),
                ("http_route status", 1),
                ("service uses", 1),
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
            ("parameters", 1),
            ("authority state", 1),
            ("backend_tls_policy state", 1),
            ("trust bundle", 1),
            ("envoy.trust_bundles", 1),
        ],
        &["Secret ca:default/tls"],
    );
}
