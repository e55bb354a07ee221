//! The client certificate of the instance: its default fleet presents it to backends with TLS.

use std::sync::Arc;

use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{CertificateKey, ClusterKey};

use crate::inputs::Inputs;
use crate::settings::Settings;
use crate::shared::certificates::{self, CertificateState};
use crate::shared::client_certificates::{
    ClientCertificate, ClientCertificates, Invalid, is_secured,
};

/// The tables of the certificate.
#[derive(Clone, Copy)]
pub(crate) struct OwnClientCertificate {
    /// The certificate by the fleet that presents it.
    pub(crate) by_fleet: ClientCertificates,
    /// Why it can't be used; no row if it can, or if there is none.
    pub(crate) unusable: Table<(), String>,
}

fn secret(settings: &Settings) -> Option<CertificateKey> {
    let secret = settings.ingress.client_certificate.as_ref()?;
    Some(CertificateKey {
        namespace: Arc::clone(&secret.namespace),
        name: Arc::clone(&secret.name),
    })
}

/// Why the default fleet can't connect to a cluster, if its client certificate is the reason.
pub(crate) fn problem(
    reader: &mut Reader<'_>,
    unusable: Table<(), String>,
    cluster: &ClusterKey,
) -> Option<String> {
    let reason = is_secured(cluster).then(|| reader.get(unusable, &()))??;
    Some(format!(
        "is not connected to, since the client certificate for backends with TLS can't be used: {reason} (clientCertificate in \
         Sesame's configuration)"
    ))
}

/// The Secret that the settings refer to.
pub(crate) fn by_secret(b: &mut Builder, inputs: &Inputs) -> Index<(), Settings, CertificateKey> {
    let name = "settings by client certificate";
    b.index(inputs.settings, name, |(), settings| {
        Vec::from_iter(secret(settings))
    })
}

/// Declares the tables.
pub(crate) fn stages(
    b: &mut Builder,
    inputs: &Inputs,
    states: Table<CertificateKey, CertificateState>,
) -> OwnClientCertificate {
    let settings = inputs.settings;
    let unusable = b.derive(
        "unusable client certificate",
        settings,
        move |reader, ()| {
            let secret = secret(&*reader.get(settings, &())?)?;
            certificates::check(reader, states, &secret).err()
        },
    );
    let by_fleet = b.derive_many("own client certificate", settings, move |reader, ()| {
        let Some(settings) = reader.get(settings, &()) else {
            return Vec::new();
        };
        let presented = secret(&settings).map(|secret| {
            let presented = match reader.exists(unusable, &()) {
                true => Err(Invalid),
                false => Ok(secret),
            };
            let certificate = ClientCertificate {
                with_policy: Some(presented.clone()),
                without_policy: Some(presented),
            };
            (settings.default_fleet(), certificate)
        });
        Vec::from_iter(presented)
    });
    OwnClientCertificate { by_fleet, unusable }
}
