//! Reads a file: its text, and the [`Stamp`] that reveals later changes. Never blocks on a pipe or a device, and never
//! reads more than the limit.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_128;

/// Device and inode.
pub(super) type Identity = (u64, u64);

/// The fields of a stat that change with the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) identity: Identity,
    pub(super) size: u64,
    /// Seconds and nanoseconds of the last content change (mtime).
    modified: (i64, i64),
    /// The same for the last inode change (ctime), which also changes when permissions change or `modified` is set
    /// back.
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            identity: identity(metadata),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The time of the last change.
    pub(super) fn time(&self) -> SystemTime {
        let (seconds, nanoseconds) = self.modified.max(self.changed);
        let seconds = u64::try_from(seconds).unwrap_or_default();
        let nanoseconds = u64::try_from(nanoseconds).unwrap_or_default();
        UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
    }

    /// Whether the file system seems to store only whole seconds.
    pub(super) fn coarse(&self) -> bool {
        self.modified.1 == 0 && self.changed.1 == 0
    }
}

pub(super) fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// The content of a file.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) text: String,
    /// Hash of the bytes.
    pub(super) hash: u128,
    /// The stat from before reading.
    pub(super) stamp: Stamp,
    /// Whether the file changed while it was read, so the content may mix two versions.
    pub(super) torn: bool,
}

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("no such file")]
    Missing,
    #[error("cannot be read: {0}")]
    Io(io::Error),
    #[error("not a regular file")]
    NotRegular,
    #[error("larger than {0} bytes")]
    TooLarge(u64),
    #[error("not UTF-8: invalid byte at offset {0}")]
    NotText(usize),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Io(error),
        }
    }
}

/// Reads a regular file of at most `limit` bytes.
pub(super) fn read_file(path: &Path, limit: u64) -> Result<Content, ReadError> {
    // Check before opening, since opening a device can have side effects.
    if !std::fs::metadata(path)?.is_file() {
        return Err(ReadError::NotRegular);
    }
    // Opening a pipe with this flag doesn't wait for a writer.
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ReadError::NotRegular);
    }
    if metadata.len() > limit {
        return Err(ReadError::TooLarge(limit));
    }
    let stamp = Stamp::of(&metadata);
    let bytes = read_all(&mut file, limit, metadata.len())?;
    let torn = torn(&file, stamp, bytes.len());
    let hash = xxh3_128(&bytes);
    Ok(Content {
        text: text(bytes)?,
        hash,
        stamp,
        torn,
    })
}

fn torn(file: &File, before: Stamp, read: usize) -> bool {
    let same = |metadata: Metadata| Stamp::of(&metadata) == before && before.size == read as u64;
    !file.metadata().is_ok_and(same)
}

/// Reads a stream, such as standard input, to its end.
pub(super) fn read_stream(stream: &mut dyn Read, limit: u64) -> Result<String, ReadError> {
    text(read_all(stream, limit, 0)?)
}

fn read_all(stream: &mut dyn Read, limit: u64, expected: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::with_capacity(usize::try_from(expected.min(limit)).unwrap_or(0));
    // Reading one byte beyond the limit reveals that it is exceeded.
    stream
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(ReadError::TooLarge(limit));
    }
    Ok(bytes)
}

fn text(bytes: Vec<u8>) -> Result<String, ReadError> {
    String::from_utf8(bytes).map_err(|error| ReadError::NotText(error.utf8_error().valid_up_to()))
}
