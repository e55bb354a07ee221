//! Reading one file without being hurt by it.
//!
//! In: a path. Out: its text and a [`Stamp`] that tells later whether it changed. Never blocks on a pipe
//! or device, never reads more than the limit.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

/// Which file on which device.
pub(super) type Identity = (u64, u64);

/// What is compared to tell whether a file changed, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) identity: Identity,
    pub(super) size: u64,
    /// Seconds and nanoseconds of the last change of the content.
    modified: (i64, i64),
    /// The same of the inode: tells of contents replaced with the old time restored, and of permissions.
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

    /// Seconds since the epoch of the last change, of content or inode.
    pub(super) fn seconds(&self) -> i64 {
        self.modified.0.max(self.changed.0)
    }
}

/// Device and inode.
pub(super) fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// The content of a file.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) text: String,
    /// Hash of the bytes.
    pub(super) hash: u128,
    /// As it was before reading.
    pub(super) stamp: Stamp,
    /// It changed while it was read, so it may be half old and half new.
    pub(super) torn: bool,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("there is no such file")]
    Missing,
    #[error("it is another name of a file that is read, or beyond a limit")]
    LeftOut,
    #[error("it cannot be read: {0}")]
    Io(io::Error),
    #[error("it is no regular file")]
    NotRegular,
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    #[error("it is not UTF-8 text: byte {0} belongs to no character")]
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
    // Asked before opening, since opening a device can do something already.
    if !std::fs::metadata(path)?.is_file() {
        return Err(ReadError::NotRegular);
    }
    // If it became a pipe meanwhile, this flag keeps `open` from waiting for its writer.
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
    // One byte more than allowed tells that there is more.
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
