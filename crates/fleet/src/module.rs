//! Sesame's module for Envoy ([`sesame_shard::MODULE`]) as a file beside it.
//!
//! In: a folder. Out: the file in it. It must not know what the module does.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sesame_shard::{MODULE, MODULE_FILE};

/// The variable that names to an Envoy the folder with its modules.
pub const SEARCH_PATH: &str = "ENVOY_DYNAMIC_MODULES_SEARCH_PATH";

/// Puts the module into a folder that is there. `false`: no Envoy could load it from there, because this is not a
/// machine that it is made for or because nothing in this folder may be executed.
///
/// An Envoy that has it loaded goes on with what it has.
///
/// # Errors
/// If the file can't be written.
pub fn install(folder: &Path) -> io::Result<bool> {
    let Some(module) = MODULE else {
        return Ok(false);
    };
    if !lets_execute(folder)? {
        return Ok(false);
    }
    let place = folder.join(MODULE_FILE);
    if fs::read(&place).is_ok_and(|there| there == module) {
        return Ok(true);
    }
    // Written beside it and moved there: whoever runs the old one must not find other code in its pages.
    let new = folder.join(format!("{MODULE_FILE}.new"));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(&new)?;
    file.write_all(module)?;
    drop(file);
    fs::rename(&new, &place)?;
    Ok(true)
}

/// Whether what lies in a folder may be executed, and so loaded.
#[cfg(target_os = "linux")]
fn lets_execute(folder: &Path) -> io::Result<bool> {
    use nix::sys::statvfs::{FsFlags, statvfs};
    Ok(!statvfs(folder)?.flags().contains(FsFlags::ST_NOEXEC))
}

/// There is no module elsewhere.
#[cfg(not(target_os = "linux"))]
fn lets_execute(_folder: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn it_lies_there_once_and_is_mended() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join(MODULE_FILE);
        for before in [None, Some(&b"something else"[..]), MODULE] {
            if let Some(before) = before {
                fs::write(&place, before).unwrap();
            }
            assert!(install(folder.path()).unwrap());
            assert_eq!(Some(&*fs::read(&place).unwrap()), MODULE);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(MODULE.is_none() || install(&folder.path().join("gone")).is_err());
    }
}
