//! Installs Sesame's dynamic module for Envoy ([`sesame_shard::MODULE`]) as a file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sesame_shard::{MODULE, MODULE_FILE};

/// The environment variable for the folder in which Envoy looks for modules.
pub const SEARCH_PATH: &str = "ENVOY_DYNAMIC_MODULES_SEARCH_PATH";

/// Writes the module into an existing folder. Returns `false` if Envoy can't load it from there: the module isn't built
/// for this platform, or the folder is mounted `noexec`.
///
/// A running Envoy keeps the file that it has already loaded.
///
/// # Errors
/// The file can't be written.
pub fn install(folder: &Path) -> io::Result<bool> {
    let Some(module) = MODULE else {
        return Ok(false);
    };
    if !allows_exec(folder)? {
        return Ok(false);
    }
    let path = folder.join(MODULE_FILE);
    if fs::read(&path).is_ok_and(|existing| existing == module) {
        return Ok(true);
    }
    // Replaced by a rename, since a running Envoy has the old file mapped.
    let temporary = folder.join(format!("{MODULE_FILE}.new"));
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(&temporary)?;
    file.write_all(module)?;
    drop(file);
    fs::rename(&temporary, &path)?;
    Ok(true)
}

/// Whether files in the folder can be executed, and therefore loaded.
#[cfg(target_os = "linux")]
fn allows_exec(folder: &Path) -> io::Result<bool> {
    use nix::sys::statvfs::{FsFlags, statvfs};
    Ok(!statvfs(folder)?.flags().contains(FsFlags::ST_NOEXEC))
}

/// The module is built for Linux only.
#[cfg(not(target_os = "linux"))]
fn allows_exec(_folder: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_missing_or_modified_module_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MODULE_FILE);
        for before in [None, Some(&b"something else"[..]), MODULE] {
            if let Some(before) = before {
                fs::write(&path, before).unwrap();
            }
            assert!(install(folder.path()).unwrap());
            assert_eq!(Some(&*fs::read(&path).unwrap()), MODULE);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(MODULE.is_none() || install(&folder.path().join("gone")).is_err());
    }
}
