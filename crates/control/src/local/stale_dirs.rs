//! Removes stale run folders: those of killed processes.
//!
//! In: the folder of this run. Out: folders of dead runs next to it are removed. Folders that might not be Sesame's are
//! kept.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::net::UnixStream;

/// Prefix of the name of a run's folder, followed by letters and digits.
pub(super) const PREFIX: &str = "sesame-";
/// Name of the socket in each folder.
pub(super) const SOCKET: &str = "xds.sock";
/// Number of letters and digits after the prefix.
const SUFFIX_LEN: usize = 6;
/// Minimum age of a stale socket. A younger one may belong to a run that is about to listen on it.
const MIN_AGE: Duration = Duration::from_secs(60);

/// Removes folders next to `run_dir` that belong to the same user and have a socket on which no process listens.
pub(super) async fn sweep(run_dir: &Path, now: SystemTime) -> io::Result<()> {
    let Some(parent) = run_dir.parent() else {
        return Ok(());
    };
    let uid = fs::symlink_metadata(run_dir)?.uid();
    for entry in fs::read_dir(parent)?.flatten() {
        let path = entry.path();
        let is_candidate = entry.file_name().to_str().is_some_and(is_run_dir);
        if !is_candidate || path == run_dir || !is_stale(&path, uid, now).await {
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => {
                tracing::debug!(path = %path.display(), "removed a stale run folder")
            }
            Err(error) => {
                tracing::debug!(
                    %error,
                    path = %path.display(),
                    "cannot remove a stale run folder"
                );
            }
        }
    }
    Ok(())
}

fn is_run_dir(name: &str) -> bool {
    let suffix = name.strip_prefix(PREFIX);
    suffix.is_some_and(|suffix| {
        suffix.len() == SUFFIX_LEN && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

async fn is_stale(folder: &Path, uid: u32, now: SystemTime) -> bool {
    let socket = folder.join(SOCKET);
    let (Ok(folder), Ok(file)) = (fs::symlink_metadata(folder), fs::symlink_metadata(&socket))
    else {
        return false;
    };
    let old_enough = |file: &Metadata| {
        let since = file
            .modified()
            .ok()
            .and_then(|at| now.duration_since(at).ok());
        since.is_some_and(|age| age >= MIN_AGE)
    };
    folder.is_dir()
        && folder.uid() == uid
        && file.uid() == uid
        && file.file_type().is_socket()
        && old_enough(&file)
        // Doesn't block, even if the listener's queue is full.
        && matches!(UnixStream::connect(&socket).await, Err(error) if error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn only_stale_run_folders_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            let listener = UnixListener::bind(folder.join(SOCKET)).unwrap();
            (folder, listener)
        };
        let own = make("sesame-000000");
        let alive = make("sesame-aLive1");
        let (dead, _) = make("sesame-dEad12");
        fs::write(dead.join("bootstrap.pb"), "x").unwrap();
        let (other_name, _) = make("sesame-notes-1");
        let no_socket = parent.path().join("sesame-abcdef");
        fs::create_dir(&no_socket).unwrap();
        let file = parent.path().join("sesame-file12");
        fs::write(&file, "x").unwrap();
        let link = parent.path().join("sesame-link12");
        std::os::unix::fs::symlink(&other_name, &link).unwrap();

        // The socket is too young.
        let now = SystemTime::now();
        sweep(&own.0, now).await.unwrap();
        assert!(dead.exists());
        sweep(&own.0, now + MIN_AGE * 2).await.unwrap();
        assert!(!dead.exists());
        for path in [&own.0, &alive.0, &other_name, &no_socket, &file, &link] {
            assert!(path.exists(), "{path:?}");
        }
        assert!(other_name.join(SOCKET).exists());
    }
}
