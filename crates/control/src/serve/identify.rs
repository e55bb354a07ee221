//! What this replica shows to Envoys.
//!
//! In: settings, Secrets or a folder. Out: an identity for the discovery server, which follows what it is read from.

use std::path::PathBuf;

use sesame_fleet::kube::identity::{self, FleetOwner};
use sesame_model::FleetId;
use sesame_xds::tls;

use super::start::{Parts, StartError};
use super::{Config, Envoys, SERVICE};

/// The Secret with which unmanaged Envoys show who they are, in Sesame's namespace.
pub const UNMANAGED_SECRET: &str = "sesame-envoy";

/// What to show to Envoys, from a folder or from Secrets that are kept from now on.
pub(super) async fn identify(
    config: &Config,
    client: &kube::Client,
    parts: &mut Parts,
) -> Result<(tls::Identity, Option<identity::Handle>), StartError> {
    if let Some(folder) = &config.certificates {
        let (identity, follow) =
            tls::files::open(PathBuf::clone(folder), tls::files::PERIOD).await?;
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
    let mut settings = identity::Config::new(&config.namespace, names);
    settings
        .fleet_namespaces
        .clone_from(&config.watch_namespaces);
    let (handle, mut shown) = identity::start(client.clone(), settings);
    if let Envoys::Unmanaged { .. } = config.envoys {
        let owner = FleetOwner {
            namespace: config.namespace.clone(),
            secret_name: UNMANAGED_SECRET.to_owned(),
            ..FleetOwner::default()
        };
        handle.fleet(FleetId::unmanaged(), Some(owner));
    }
    let identity = tls::Identity::pending();
    let replaced = identity.clone();
    parts.forever(async move {
        loop {
            let files = shown.borrow_and_update().clone().map(|shown| shown.files);
            if let Some(files) = files {
                let pem = tls::Pem {
                    chain: files.certified.certificate,
                    private_key: files.certified.private_key,
                    authorities: files.authorities,
                };
                match replaced.replace(&pem) {
                    Ok(()) => tracing::info!("Envoys are shown a certificate"),
                    Err(error) => {
                        tracing::error!(%error, "the certificate for Envoys can't be used")
                    }
                }
            }
            if shown.changed().await.is_err() {
                return;
            }
        }
    });
    Ok((identity, Some(handle)))
}
