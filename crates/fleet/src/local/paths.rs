//! The paths of a fleet's files. Pure.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The maximum length of a Unix socket's path, in bytes: `sun_path` without the terminating null byte (unix(7)).
const MAX_SOCKET_PATH: usize = if cfg!(target_os = "macos") { 103 } else { 107 };

/// The number of characters of the fleet's name that the folder's name contains.
const READABLE_LEN: usize = 16;

/// The folder of one fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetDir(PathBuf);

impl FleetDir {
    /// The folder of fleet `id` in `run_dir`. Its name has a limited length and is unique to the fleet.
    pub fn new(run_dir: &Path, id: &str) -> Self {
        let readable: String = id
            .chars()
            .take(READABLE_LEN)
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let hash: String = Sha256::digest(id)
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self(run_dir.join(format!("{readable}-{hash}")))
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The Unix socket of Envoy's admin interface.
    pub fn admin_socket(&self) -> PathBuf {
        self.0.join("admin.sock")
    }

    /// The path of the bootstrap file. `extension` doesn't include the dot.
    pub(super) fn bootstrap(&self, extension: &str) -> PathBuf {
        self.0.join(format!("bootstrap.{extension}"))
    }
}

/// Whether the path is short enough for a Unix socket.
pub(super) fn fits_socket(path: &Path) -> bool {
    path.as_os_str().as_bytes().len() <= MAX_SOCKET_PATH
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_for_the_longest_names_fit_a_socket() {
        let id = format!("{}/{}", "n".repeat(63), "g".repeat(253));
        let dir = FleetDir::new(Path::new("/tmp/sesame-a1b2c3"), &id);
        assert!(fits_socket(&dir.admin_socket()));
        assert!(!fits_socket(Path::new(&"x".repeat(108))));
    }

    #[test]
    fn similar_names_stay_distinct() {
        let dir = |id| FleetDir::new(Path::new("/run"), id);
        assert_ne!(dir("a/b-c"), dir("a-b/c"));
        assert_eq!(dir("a/b"), dir("a/b"));
    }

    proptest! {
        #[test]
        fn paths_stay_below_the_run_folder(id in "\\PC*") {
            let dir = FleetDir::new(Path::new("/run/sesame"), &id);
            prop_assert_eq!(dir.path().parent(), Some(Path::new("/run/sesame")));
            prop_assert!(dir.path().file_name().is_some_and(|name| name.len() <= READABLE_LEN + 17));
        }
    }
}
