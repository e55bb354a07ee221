//! Secrets of other namespaces, which need a TLSCertificateDelegation there.

use std::sync::Arc;

use sesame_api::{ObjectKey, TLSCertificateDelegation};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::CertificateKey;

/// The TLSCertificateDelegations of a namespace.
pub(crate) type Delegations = Index<ObjectKey, TLSCertificateDelegation, Arc<str>>;

/// The name that stands for all Secrets, or for all namespaces.
const ALL: &str = "*";

/// Declares the index of delegations.
pub(crate) fn by_namespace(
    b: &mut Builder,
    delegations: Table<ObjectKey, TLSCertificateDelegation>,
) -> Delegations {
    b.index(
        delegations,
        "tls_certificate_delegations by namespace",
        |key: &ObjectKey, _| vec![Arc::clone(&key.namespace)],
    )
}

/// Whether an object in `namespace` may refer to a Secret: always within its own namespace, and elsewhere if a
/// TLSCertificateDelegation there allows it. Callers check this before looking up the Secret, so that messages never
/// reveal what exists in other namespaces.
pub(crate) fn permitted(
    reader: &mut Reader<'_>,
    delegations: Delegations,
    secret: &CertificateKey,
    namespace: &Arc<str>,
) -> bool {
    if secret.namespace == *namespace {
        return true;
    }
    let covers = |entry: &Arc<str>, name: &Arc<str>| **entry == *ALL || entry == name;
    let found = reader.by(delegations, &secret.namespace);
    let mut entries = found
        .iter()
        .flat_map(|(_, delegation)| &delegation.spec.delegations);
    entries.any(|entry| {
        let mut targets = entry.target_namespaces.iter();
        covers(&entry.secret_name, &secret.name) && targets.any(|target| covers(target, namespace))
    })
}

#[cfg(test)]
mod tests {
    use sesame_api::{CertificateDelegation, Kind, Meta, TlsCertificateDelegationSpec};
    use sesame_engine::Batch;

    use super::*;

    fn delegation(secret: &str, targets: &[&str]) -> TLSCertificateDelegation {
        TLSCertificateDelegation {
            meta: Meta::default(),
            spec: TlsCertificateDelegationSpec {
                delegations: vec![CertificateDelegation {
                    secret_name: secret.into(),
                    target_namespaces: targets.iter().map(|&target| target.into()).collect(),
                }],
            },
            status: Default::default(),
        }
    }

    #[test]
    fn a_delegation_names_secrets_and_namespaces() {
        let mut b = Builder::new();
        let delegations = b.input("delegations");
        let asked: Table<(CertificateKey, Arc<str>), ()> = b.input("asked");
        let by_namespace = by_namespace(&mut b, delegations);
        let permitted = b.derive("permitted", asked, move |reader, (secret, namespace)| {
            permitted(reader, by_namespace, secret, namespace).then_some(())
        });
        let mut engine = b.build();
        let mut batch = Batch::new();
        for (namespace, delegation) in [
            ("one", delegation("a", &["shop", "blog"])),
            ("all", delegation("*", &["shop"])),
            ("open", delegation("a", &["*"])),
        ] {
            let key = ObjectKey::new(Kind::TLSCertificateDelegation, namespace, "d");
            batch.upsert(delegations, key, delegation);
        }
        let cases = [
            ("one", "a", "shop", true),
            ("one", "a", "blog", true),
            ("one", "a", "other", false),
            ("one", "b", "shop", false),
            ("all", "b", "shop", true),
            ("all", "b", "blog", false),
            ("open", "a", "other", true),
            ("open", "b", "other", false),
            ("none", "a", "shop", false),
            ("none", "a", "none", true),
        ];
        let key = |namespace: &str, name: &str, from: &str| {
            let secret = CertificateKey {
                namespace: namespace.into(),
                name: name.into(),
            };
            (secret, Arc::from(from))
        };
        for (namespace, name, from, _) in cases {
            batch.upsert(asked, key(namespace, name, from), ());
        }
        engine.commit(batch);
        for (namespace, name, from, expected) in cases {
            let found = engine.get(permitted, &key(namespace, name, from)).is_some();
            assert_eq!(found, expected, "{namespace}/{name} from {from}");
        }
    }
}
