//! The bootstrap of an unmanaged Envoy.
//!
//! In: Sesame's address and the Envoy's fleet. Out: a bootstrap as JSON. Doesn't read or write files.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sesame_envoy::{Admin, BootstrapOptions, XdsAddress};

/// The longest portable Unix socket path, in bytes: `sun_path` without the terminating null byte (unix(7)).
const MAX_SOCKET_PATH: usize = 103;

/// Why a bootstrap can't be generated. The message says how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The path is too long for a Unix socket.
    #[error(
        "the path {0:?} is longer than {MAX_SOCKET_PATH} bytes, the limit for a Unix socket: choose a shorter path"
    )]
    LongPath(PathBuf),
    /// A value can't be represented in JSON.
    #[error("cannot encode the bootstrap as JSON: {0}")]
    Render(#[from] sesame_envoy::RenderError),
}

/// A bootstrap in protobuf's JSON form, as Envoy reads it.
///
/// # Errors
/// If a path is too long for a Unix socket.
pub fn bootstrap(options: &BootstrapOptions) -> Result<Value, BootstrapError> {
    if let XdsAddress::Unix(path) = &options.xds {
        check_socket_path(path)?;
    }
    if let Admin::Unix(path) = &options.admin {
        check_socket_path(path)?;
    }
    Ok(sesame_envoy::to_json(&sesame_envoy::bootstrap(options))?)
}

fn check_socket_path(path: &Path) -> Result<(), BootstrapError> {
    if path.as_os_str().as_bytes().len() > MAX_SOCKET_PATH {
        return Err(BootstrapError::LongPath(path.to_owned()));
    }
    Ok(())
}
