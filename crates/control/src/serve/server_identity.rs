//! The xDS server's certificate.
//!
//! In: settings, Secrets or a folder. Out: an identity for the xDS server, replaced when its source changes.

use std::path::PathBuf;

use sesame_fleet::kube::identity::{self, FleetSecret};
use sesame_model::FleetId;
use sesame_xds::tls;

use super::start::{Spawner, StartError};
use super::{Envoys, SERVICE, ServeConfig};

/// The Secret in Sesame's namespace with the client certificate of unmanaged Envoys.
pub const UNMANAGED_SECRET: &str = "sesame-envoy";

/// The identity, from a folder that is polled or from Secrets whose certificates are renewed.
pub(super) async fn start(
    config: &ServeConfig,
    client: &kube::Client,
    spawner: &mut Spawner,
) -> Result<(tls::Identity, Option<identity::Handle>), StartError> {
    if let Some(folder) = &config.certificates {
        let (identity, reload) =
            tls::files::open(PathBuf::clone(folder), tls::files::POLL_INTERVAL).await?;
        spawner.spawn(reload);
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
    settings.fleet_namespaces = match config.envoys {
        Envoys::Managed { .. } => config.fleet_namespaces(),
        Envoys::Unmanaged { .. } => config.watch_namespaces.clone(),
    };
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
    let current = identity.clone();
    spawner.spawn(async move {
        loop {
            let files = received.borrow_and_update().clone();
            if let Some(files) = files {
                let pem = tls::Pem {
                    chain: files.certificate,
                    private_key: files.private_key,
                    ca_bundle: files.ca_bundle,
                };
                match current.replace(&pem) {
                    Ok(()) => tracing::info!("the xDS server now uses a new certificate"),
                    Err(error) => {
                        tracing::error!(%error, "the xDS server's certificate is invalid")
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
