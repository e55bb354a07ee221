//! The paths of a fleet's files. Pure.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The longest path of a Unix socket, in bytes: `sun_path` without the final zero (unix(7)).
const LONGEST_SOCKET_PATH: usize = if cfg!(target_os = "macos") { 103 } else { 107 };

/// How much of a fleet's name is kept, to recognise it.
const READABLE: usize = 16;

/// The folder of one fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetDir(PathBuf);

impl FleetDir {
    /// The folder of fleet `id` below `run_dir`. Its name is short however long the fleet's is, and differs
    /// for different fleets, whatever characters their names hold.
    pub fn new(run_dir: &Path, id: &str) -> Self {
        let readable: String = id
            .chars()
            .take(READABLE)
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

    /// Where the bootstrap is written, `extension` without a dot.
    pub(super) fn bootstrap(&self, extension: &str) -> PathBuf {
        self.0.join(format!("bootstrap.{extension}"))
    }
}

/// Whether a Unix socket can have this path.
pub(super) fn fits_socket(path: &Path) -> bool {
    path.as_os_str().as_bytes().len() <= LONGEST_SOCKET_PATH
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_names_fit_a_socket() {
        let id = format!("{}/{}", "n".repeat(63), "g".repeat(253));
        let dir = FleetDir::new(Path::new("/tmp/sesame-a1b2c3"), &id);
        assert!(fits_socket(&dir.admin_socket()));
        assert!(!fits_socket(Path::new(&"x".repeat(108))));
    }

    #[test]
    fn names_that_look_alike_differ() {
        let dir = |id| FleetDir::new(Path::new("/run"), id);
        assert_ne!(dir("a/b-c"), dir("a-b/c"));
        assert_eq!(dir("a/b"), dir("a/b"));
    }

    proptest! {
        #[test]
        fn stays_below_the_run_folder(id in "\\PC*") {
            let dir = FleetDir::new(Path::new("/run/sesame"), &id);
            prop_assert_eq!(dir.path().parent(), Some(Path::new("/run/sesame")));
            prop_assert!(dir.path().file_name().is_some_and(|name| name.len() <= READABLE + 17));
        }
    }
}
