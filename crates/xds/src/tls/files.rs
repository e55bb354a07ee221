//! An identity from a folder, for a Sesame outside the cluster.
//!
//! The files are polled, not watched: they are small, many mounts lose change notifications, and files replaced one at
//! a time don't match for a while, so retries are needed anyway.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::identity::{Identity, IdentityError, Pem};

/// The files in the folder, all PEM: certificate chain, private key and CA bundle.
pub const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

/// The default polling interval.
pub const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Why a folder doesn't contain a valid identity.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A file can't be read.
    #[error("cannot read {}: {source}; the folder must contain {}", path.display(), FILES.join(", "))]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The files are invalid.
    #[error("invalid certificates in {}: {source}", dir.display())]
    Invalid {
        /// The folder.
        dir: PathBuf,
        /// The cause.
        source: IdentityError,
    },
}

/// Reads the files in a folder.
///
/// # Errors
///
/// Returns an error if a file can't be read.
pub async fn read(dir: &Path) -> Result<Pem, FilesError> {
    let file = async |name: &str| {
        let path = dir.join(name);
        let text = tokio::fs::read_to_string(&path).await;
        text.map_err(|source| FilesError::Read { path, source })
    };
    let [chain, private_key, ca_bundle] = FILES;
    Ok(Pem {
        chain: file(chain).await?,
        private_key: file(private_key).await?,
        ca_bundle: file(ca_bundle).await?,
    })
}

/// Opens the identity in a folder, and returns it with a future that keeps it up to date and never completes. Later
/// errors are logged, and the last valid identity stays in use.
///
/// # Errors
///
/// Returns an error if the folder doesn't contain a valid identity.
pub async fn open(
    dir: PathBuf,
    interval: Duration,
) -> Result<(Identity, impl Future<Output = ()> + Send + use<>), FilesError> {
    let first = read(&dir).await?;
    let identity = Identity::pending();
    replace(&identity, &first, &dir)?;
    let follow = follow(dir, interval, identity.clone(), first);
    Ok((identity, follow))
}

fn replace(identity: &Identity, pem: &Pem, dir: &Path) -> Result<(), FilesError> {
    identity.replace(pem).map_err(|source| FilesError::Invalid {
        dir: dir.to_owned(),
        source,
    })
}

async fn follow(dir: PathBuf, interval: Duration, identity: Identity, mut seen: Pem) {
    let mut logged = None;
    loop {
        tokio::time::sleep(interval).await;
        let result = match read(&dir).await {
            Ok(pem) if pem == seen => continue,
            Ok(pem) => {
                seen = pem;
                replace(&identity, &seen, &dir)
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => {
                logged = None;
                tracing::info!(dir = %dir.display(), "the xDS server now uses new certificates");
            }
            Err(error) => {
                let error = error.to_string();
                if logged.as_ref() != Some(&error) {
                    tracing::warn!("{error}; the previous certificates stay in use");
                    logged = Some(error);
                }
            }
        }
    }
}
