//! Watches files until the receiver is gone.
//!
//! In: the configuration. Out: a first [`ChangeSet`] with all objects, then one per change. A dedicated thread does all
//! file IO.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::{mpsc, oneshot};

use super::error::FileError;
use super::read::Identity;
use super::set::{FileSet, RefreshTime};
use super::{ChangeSet, FilesConfig};

/// Refreshes take at most this share of the time: 1/[`POLL_SHARE`] for polling, 1/[`EVENT_SHARE`] after events.
const POLL_SHARE: u32 = 50;
const EVENT_SHARE: u32 = 4;

/// A save often causes several events. It counts as complete once no further event follows for this long. Short, since
/// this time delays every change; [`FileSet`] copes with saves that take longer.
const QUIET: Duration = Duration::from_micros(300);

/// The quiet period after a write to a file that is still open.
const QUIET_WHILE_OPEN: Duration = Duration::from_millis(50);

/// The maximum wait for a quiet period.
const MAX_DEBOUNCE: Duration = Duration::from_millis(250);

/// Capacity of the event channel.
const CAPACITY: usize = 1024;

/// Why a watch failed.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The reader thread can't be started.
    #[error("cannot start the file reader thread")]
    Start(#[source] std::io::Error),
    /// The reader thread panicked.
    #[error("the file reader thread panicked")]
    Ended,
}

/// Sends all objects in the files, then all changes.
///
/// Returns when the receiver is dropped, or after the first set if [`FilesConfig::watch`] is off. Dropping the future
/// ends the watch. While `tx` is full, changes are merged.
///
/// # Errors
/// If the reader thread can't be started or panics. A path that can't be read is a [`FileError`] in the sets.
pub async fn watch(config: FilesConfig, tx: mpsc::Sender<ChangeSet>) -> Result<(), WatchError> {
    watch_by(config, tx, true).await
}

/// [`watch`], with or without file system events.
async fn watch_by(
    config: FilesConfig,
    tx: mpsc::Sender<ChangeSet>,
    events: bool,
) -> Result<(), WatchError> {
    let (signals, inbox) = sync_channel(CAPACITY);
    let flags = Arc::new(Flags::default());
    let _stop = StopOnDrop(flags.clone(), signals.clone());
    let (done, ended) = oneshot::channel();
    let sender = tx.clone();
    let reader = move || {
        Reader {
            watcher: FolderWatcher {
                enabled: events && config.watch,
                flags: flags.clone(),
                signals,
                watcher: None,
                folders: BTreeMap::new(),
                outdated: false,
            },
            set: FileSet::new(config.clone()),
            config,
            flags,
            inbox,
            tx: sender,
        }
        .run();
        let _ = done.send(());
    };
    std::thread::Builder::new()
        .name("files".to_owned())
        .spawn(reader)
        .map_err(WatchError::Start)?;
    tokio::select! {
        () = tx.closed() => Ok(()),
        ended = ended => ended.map_err(|_| WatchError::Ended),
    }
}

/// An event at a path.
struct Signal {
    at: Instant,
    /// The quiet period to wait for after the event.
    quiet: Duration,
    path: Option<PathBuf>,
}

#[derive(Default)]
struct Flags {
    stop: AtomicBool,
    /// Whether events were dropped.
    lost: AtomicBool,
}

struct StopOnDrop(Arc<Flags>, SyncSender<Signal>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        // Wakes the thread. If the channel is full, it is already awake.
        let _ = self.1.try_send(Signal {
            at: Instant::now(),
            quiet: Duration::ZERO,
            path: None,
        });
    }
}

/// The reader thread.
struct Reader {
    config: FilesConfig,
    set: FileSet,
    watcher: FolderWatcher,
    flags: Arc<Flags>,
    inbox: Receiver<Signal>,
    tx: mpsc::Sender<ChangeSet>,
}

impl Reader {
    fn run(mut self) {
        let mut detected = Instant::now();
        let mut last: Option<Vec<FileError>> = None;
        loop {
            let start = Instant::now();
            let changes = match last {
                None => self.set.first(&mut std::io::stdin()),
                Some(_) => self.set.refresh(RefreshTime::now()),
            };
            let errors = self.set.errors();
            if !changes.is_empty() || last.as_ref() != Some(&errors) {
                let counters = self.set.counters();
                tracing::debug!(changes = changes.len(), ?counters, "files changed");
                last = Some(errors.clone());
                let set = ChangeSet {
                    changes,
                    errors,
                    detected,
                };
                if self.tx.blocking_send(set).is_err() {
                    return;
                }
            }
            if !self.config.watch {
                return;
            }
            if self.watcher.watch(self.set.folders()) {
                // The folders may have changed before they were watched.
                detected = Instant::now();
                continue;
            }
            let (took, end) = (start.elapsed(), Instant::now());
            let poll = end + self.config.rescan.max(took * POLL_SHARE);
            let deadline = self.set.due().map_or(poll, |due| due.min(poll));
            match self.wait(deadline, end + took * EVENT_SHARE) {
                Some(at) => detected = at,
                None => return,
            }
        }
    }

    /// Waits until `deadline`, or for events and a quiet period after them; in the latter case, until `not_before` or
    /// later. Returns the time of the first event, or `None` if the watch ends.
    fn wait(&mut self, deadline: Instant, not_before: Instant) -> Option<Instant> {
        let mut debounce = Debounce::default();
        loop {
            let ready = debounce.ready().map(|ready| ready.max(not_before));
            let left = ready
                .unwrap_or(deadline)
                .checked_duration_since(Instant::now());
            let signal = match left {
                Some(left) => self.inbox.recv_timeout(left),
                None => Err(RecvTimeoutError::Timeout),
            };
            if self.flags.stop.load(Ordering::Relaxed) || self.tx.is_closed() {
                return None;
            }
            match signal {
                Ok(Signal { at, quiet, path }) => {
                    debounce.add(at, quiet);
                    self.watcher.outdated |=
                        path.is_some_and(|path| self.watcher.folders.contains_key(&path));
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        self.watcher.outdated |= self.flags.lost.swap(false, Ordering::Relaxed);
        Some(debounce.first.unwrap_or_else(Instant::now))
    }
}

/// Waits until a save is complete.
#[derive(Debug, Default)]
struct Debounce {
    first: Option<Instant>,
    quiet: Option<Instant>,
}

impl Debounce {
    fn add(&mut self, at: Instant, quiet: Duration) {
        self.first.get_or_insert(at);
        self.quiet = Some(at + quiet);
    }

    fn ready(&self) -> Option<Instant> {
        Some(self.quiet?.min(self.first? + MAX_DEBOUNCE))
    }
}

/// The quiet period to wait for after an event. `None` if the event doesn't change a file.
fn quiet(kind: EventKind) -> Option<Duration> {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(QUIET),
        EventKind::Access(_) => None,
        EventKind::Create(CreateKind::File) | EventKind::Modify(ModifyKind::Data(_)) => {
            Some(QUIET_WHILE_OPEN)
        }
        _ => Some(QUIET),
    }
}

/// Watches folders for events.
struct FolderWatcher {
    enabled: bool,
    flags: Arc<Flags>,
    signals: SyncSender<Signal>,
    watcher: Option<RecommendedWatcher>,
    /// The watched folders.
    folders: BTreeMap<PathBuf, Identity>,
    /// Whether a folder was removed or replaced, possibly by one with the same inode.
    outdated: bool,
}

impl FolderWatcher {
    /// Watches these folders unless already watched. Returns whether it set up new watches.
    fn watch(&mut self, folders: &BTreeMap<PathBuf, Identity>) -> bool {
        let watched = !self.outdated && *folders == self.folders;
        if watched || !self.enabled {
            return false;
        }
        self.outdated = false;
        self.folders.clone_from(folders);
        self.watcher = None;
        let (flags, signals) = (self.flags.clone(), self.signals.clone());
        let result = notify::recommended_watcher(move |event| handle(event, &flags, &signals));
        let result = result.and_then(|mut watcher| {
            let mut paths = folders.keys();
            let watched =
                paths.try_for_each(|path| watcher.watch(path, RecursiveMode::NonRecursive));
            self.watcher = Some(watcher);
            watched
        });
        if let Err(error) = result {
            tracing::warn!(%error, "some files cannot be watched; polling instead");
        }
        true
    }
}

/// Sends a signal for each path of an event.
fn handle(event: notify::Result<notify::Event>, flags: &Flags, signals: &SyncSender<Signal>) {
    let at = Instant::now();
    let (mut lost, quiet, paths) = match event {
        Ok(event) if event.need_rescan() => (true, Some(QUIET), Vec::new()),
        Ok(event) => (false, quiet(event.kind), event.paths),
        Err(_) => (true, Some(QUIET), Vec::new()),
    };
    let Some(quiet) = quiet else {
        return;
    };
    for path in paths.into_iter().map(Some).chain(lost.then_some(None)) {
        let full = signals.try_send(Signal { at, quiet, path });
        lost |= matches!(full, Err(TrySendError::Full(_)));
    }
    if lost {
        flags.lost.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
