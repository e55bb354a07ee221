//! An identity kept in a folder, for a Sesame that runs outside of a cluster.
//!
//! In: a folder with the files of [`FILES`]. Out: an identity that follows them. It must not know who writes
//! the files.
//!
//! They are looked at every few seconds, not watched: they are small, notice of changes is lost on many
//! mounts, and whoever replaces them one after the other passes through states that don't fit together, which
//! have to be tried again anyhow.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::identity::{Identity, IdentityError, Pem};

/// The files of the folder: the certificate chain, its private key, the authorities, all PEM.
pub const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

/// How often the folder is looked at, unless a test is in a hurry.
pub const PERIOD: Duration = Duration::from_secs(5);

/// Why a folder gives no identity.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A file can't be read.
    #[error("cannot read {}: {source}; the folder must have {}", path.display(), FILES.join(", "))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The files are there and can't be used.
    #[error("the certificates in {} can't be used: {source}", dir.display())]
    Unusable {
        /// The folder.
        dir: PathBuf,
        /// Why not.
        source: IdentityError,
    },
}

/// Reads a folder.
///
/// # Errors
///
/// A file can't be read.
pub async fn read(dir: &Path) -> Result<Pem, FilesError> {
    let file = async |name: &str| {
        let path = dir.join(name);
        let text = tokio::fs::read_to_string(&path).await;
        text.map_err(|source| FilesError::Read { path, source })
    };
    let [chain, private_key, authorities] = FILES;
    Ok(Pem {
        chain: file(chain).await?,
        private_key: file(private_key).await?,
        authorities: file(authorities).await?,
    })
}

/// The identity of a folder, and what keeps it up to date: a future that doesn't end, to be run beside the
/// server. What can't be read or used later is logged, and the last good identity stays.
///
/// # Errors
///
/// The folder gives no identity now.
pub async fn open(
    dir: PathBuf,
    period: Duration,
) -> Result<(Identity, impl Future<Output = ()> + Send + use<>), FilesError> {
    let first = read(&dir).await?;
    let identity = Identity::new(&first).map_err(|source| FilesError::Unusable {
        dir: dir.clone(),
        source,
    })?;
    let following = follow(dir, period, identity.clone(), first);
    Ok((identity, following))
}

async fn follow(dir: PathBuf, period: Duration, identity: Identity, mut seen: Pem) {
    let mut complaint = None;
    loop {
        tokio::time::sleep(period).await;
        let result = match read(&dir).await {
            Ok(pem) if pem == seen => continue,
            Ok(pem) => {
                let replaced = identity.replace(&pem);
                seen = pem;
                replaced.map_err(|source| FilesError::Unusable {
                    dir: dir.clone(),
                    source,
                })
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => {
                complaint = None;
                tracing::info!(dir = %dir.display(), "new certificates for discovery");
            }
            Err(error) => {
                let error = error.to_string();
                if complaint.as_ref() != Some(&error) {
                    tracing::warn!("{error}; the certificates read before stay in use");
                    complaint = Some(error);
                }
            }
        }
    }
}
