//! The objects with CA certificates that policies, XBackends and Gateways refer to.

use std::sync::Arc;

use sesame_api::{Kind, NamespacedName, ObjectKey};
use sesame_engine::{Builder, Keys, Reader, Table};
use sesame_model::{CertificateKey, TrustBundle, TrustBundleKey};

use crate::gateway_api::{backend_tls, frontend, xbackend};
use crate::inputs::Inputs;
use crate::shared::authorities::{self, AUTHORITIES, AuthorityState, TRUST_BUNDLE};
use crate::shared::jwks::{self, JwksEntry, JwksState};
use crate::shared::revocations::{self, RevocationState};

/// Declares their states. The arguments are the Secrets that HTTPProxies and ExtensionServices refer to.
pub(super) fn states(
    b: &mut Builder,
    inputs: &Inputs,
    [proxies, extensions]: [Keys<ObjectKey>; 2],
) -> Table<ObjectKey, AuthorityState> {
    let inputs = *inputs;
    let policies = b.index(
        inputs.backend_tls_policies,
        "backend_tls_policies by authority",
        |_, policy| backend_tls::referenced_authorities(policy),
    );
    let gateways = b.index(inputs.gateways, "gateways by authority", |_, gateway| {
        frontend::referenced_authorities(gateway)
    });
    let backends = b.index(inputs.xbackends, "xbackends by authority", |_, backend| {
        xbackend::referenced_authorities(backend)
    });
    let referenced = b.union_keys(
        "referenced authorities",
        [
            policies.into(),
            gateways.into(),
            backends.into(),
            proxies,
            extensions,
        ],
    );
    b.derive("authority state", referenced, move |reader, key| {
        Some(read(reader, &inputs, key))
    })
}

/// Declares the CRLs in these Secrets.
pub(super) fn revocations(
    b: &mut Builder,
    inputs: &Inputs,
    secrets: Keys<CertificateKey>,
) -> Table<CertificateKey, RevocationState> {
    let inputs = *inputs;
    b.derive(
        "revocation state",
        secrets,
        move |reader, key: &CertificateKey| {
            let name = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(&key.name));
            let secret = reader.get(inputs.secrets, &name);
            Some(revocations::read(secret.as_deref()))
        },
    )
}

/// Declares the JWKS in these entries of Secrets.
pub(super) fn jwks(
    b: &mut Builder,
    inputs: &Inputs,
    entries: Keys<JwksEntry>,
) -> Table<JwksEntry, JwksState> {
    let inputs = *inputs;
    b.derive(
        "jwks state",
        entries,
        move |reader, (key, entry): &JwksEntry| {
            let name = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(&key.name));
            let secret = reader.get(inputs.secrets, &name);
            Some(jwks::read(secret.as_deref(), entry))
        },
    )
}

/// Declares the trust bundles from Secrets.
pub(super) fn of_secrets(
    b: &mut Builder,
    states: Table<ObjectKey, AuthorityState>,
) -> Table<TrustBundleKey, TrustBundle> {
    b.derive_many(
        "trust bundle of secret",
        states,
        move |reader, key: &ObjectKey| {
            if key.kind != Kind::Secret {
                return Vec::new();
            }
            let bundle = authorities::bundle(reader, states, [key.clone()]);
            let name = CertificateKey {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
            };
            let row = bundle.map(|bundle| (TrustBundleKey::Secret(name), bundle));
            row.into_iter().collect()
        },
    )
}

fn read(reader: &mut Reader<'_>, inputs: &Inputs, key: &ObjectKey) -> AuthorityState {
    let name = key.namespaced_name();
    match key.kind {
        Kind::Secret => match reader.get(inputs.secrets, &name) {
            Some(secret) => {
                let text = secret.data.get(AUTHORITIES);
                authorities::read(text.map_or(&[], |text| text), AUTHORITIES)
            }
            None => AuthorityState::Missing,
        },
        Kind::ClusterTrustBundle => match reader.get(inputs.cluster_trust_bundles, &key.name) {
            Some(text) => authorities::read(text.as_bytes(), TRUST_BUNDLE),
            None if inputs.is_absent(reader, key.kind) => AuthorityState::Unserved,
            None => AuthorityState::Missing,
        },
        _ => match reader.get(inputs.config_maps, &name) {
            Some(config) => {
                let text = config.authorities.as_deref();
                authorities::read(text.unwrap_or_default().as_bytes(), AUTHORITIES)
            }
            None => AuthorityState::Missing,
        },
    }
}
