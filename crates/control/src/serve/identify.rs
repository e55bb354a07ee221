//! The discovery server's certificate.
//!
//! In: settings, Secrets or a folder. Out: an identity for the discovery server, renewed when its source changes.

use std::path::PathBuf;

use sesame_fleet::kube::identity::{self, FleetSecret};
use sesame_model::FleetId;
use sesame_xds::tls;

use super::start::{Parts, StartError};
use super::{Envoys, SERVICE, ServeConfig};

/// The Secret in Sesame's namespace with the client certificate of unmanaged Envoys.
pub const UNMANAGED_SECRET: &str = "sesame-envoy";

/// The identity, from a folder or from Secrets that are renewed from now on.
pub(super) async fn identify(
    config: &ServeConfig,
    client: &kube::Client,
    parts: &mut Parts,
) -> Result<(tls::Identity, Option<identity::Handle>), StartError> {
    if let Some(folder) = &config.certificates {
        let (identity, follow) =
            tls::files::open(PathBuf::clone(folder), tls::files::POLL_INTERVAL).await?;
        parts.forever(follow);
        return Ok((identity, None));
    }
    let mut names = vec![format!("{SERVICE}.{}.svc", config.namespace)];
    if let Envoys::Managed {
        xds_host: Some(host),
        ..
    } = &config.envoys
    {
        names.push(host.clone());
    }
    let mut settings = identity::CaConfig::new(&config.namespace, names);
    settings
        .fleet_namespaces
        .clone_from(&config.watch_namespaces);
    let (handle, mut received) = identity::start(client.clone(), settings);
    if let Envoys::Unmanaged { .. } = config.envoys {
        let secret = FleetSecret {
            namespace: config.namespace.clone(),
            name: UNMANAGED_SECRET.to_owned(),
            ..FleetSecret::default()
        };
        handle.set_fleet(FleetId::Unmanaged, Some(secret));
    }
    let identity = tls::Identity::pending();
    let replaced = identity.clone();
    parts.forever(async move {
        loop {
            let files = received.borrow_and_update().clone();
            if let Some(files) = files {
                let pem = tls::Pem {
                    chain: files.certificate,
                    private_key: files.private_key,
                    ca_bundle: files.ca_bundle,
                };
                match replaced.replace(&pem) {
                    Ok(()) => tracing::info!("the discovery server has a certificate"),
                    Err(error) => {
                        tracing::error!(%error, "the discovery server's certificate is invalid")
                    }
                }
            }
            if received.changed().await.is_err() {
                return;
            }
        }
    });
    Ok((identity, Some(handle)))
}
