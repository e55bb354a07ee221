//! What an Envoy starts with that somebody else runs.
//!
//! In: where Sesame is and which fleet the Envoy belongs to. Out: a bootstrap as JSON. It touches no file.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sesame_envoy::{Admin, BootstrapOptions, XdsAddress};

/// The longest path of a Unix socket that works everywhere, in bytes: `sun_path` without the final zero (unix(7)).
const LONGEST_SOCKET_PATH: usize = 103;

/// Why there is no bootstrap. The message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// A Unix socket can't have this path.
    #[error(
        "the path of a Unix socket can have {LONGEST_SOCKET_PATH} bytes, and {0:?} is longer: choose a shorter one"
    )]
    LongPath(PathBuf),
    /// A value has no form in JSON.
    #[error("the bootstrap can't be written as JSON: {0}")]
    Render(#[from] sesame_envoy::RenderError),
}

/// A bootstrap in protobuf's JSON form, as Envoy reads it.
///
/// # Errors
/// If a path is too long for a Unix socket.
pub fn bootstrap(options: &BootstrapOptions) -> Result<Value, BootstrapError> {
    if let XdsAddress::Unix(path) = &options.xds {
        fits(path)?;
    }
    if let Admin::Unix(path) = &options.admin {
        fits(path)?;
    }
    Ok(sesame_envoy::to_json(&sesame_envoy::bootstrap(options))?)
}

fn fits(path: &Path) -> Result<(), BootstrapError> {
    if path.as_os_str().as_bytes().len() > LONGEST_SOCKET_PATH {
        return Err(BootstrapError::LongPath(path.to_owned()));
    }
    Ok(())
}
