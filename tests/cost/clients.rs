//! Client certificate validation.

use sesame_testkit::certs::Authority;

use super::*;
use crate::policies::config_map;

/// A Gateway starts and stops validating clients, and its CA is rotated in between.
pub(super) fn validation(world: &mut World) {
    let [first, second] = [(); 2].map(|()| Authority::new().expect("a CA"));
    let mut validating = gateway();
    validating["spec"]["tls"]["frontend"]["default"]["validation"] =
        json!({"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "clients"}]});
    // The Gateway is read again; its routes aren't.
    let changed: &[(&str, usize)] = &[
        ("gateway creation time", 1),
        ("gateway parameters", 1),
        ("client certificate", 1),
        ("gateway state", 1),
        ("gateway claims", 1),
        ("gateway points", 1),
        ("gateway terminations", 1),
        ("listener_set parent", 1),
        ("listener", 2),
        ("gateway fleet", 1),
        ("gateway status", 1),
        ("gateway notices", 1),
    ];
    costs(
        world,
        vec![upsert(config_map("clients", &first)), upsert(validating)],
        &with(&[
            changed,
            &[
                ("parameters", 1),
                ("parameters in config_maps", 1),
                ("authority state", 1),
                ("trust bundle of secret", 1),
                ("frontend", 1),
                ("client trust bundle", 1),
                ("envoy.trust_bundles", 1),
            ],
        ]),
        &["Secret clients:default/web", "Listener 443"],
    );
    costs(
        world,
        vec![upsert(config_map("clients", &second))],
        &[
            ("parameters in config_maps", 1),
            ("authority state", 1),
            ("trust bundle of secret", 1),
            ("frontend", 1),
            ("client trust bundle", 1),
            ("envoy.trust_bundles", 1),
        ],
        &["Secret clients:default/web"],
    );
    costs(
        world,
        vec![upsert(gateway())],
        changed,
        &["-Secret clients:default/web", "Listener 443"],
    );
}
