//! Reading files for as long as somebody listens.
//!
//! In: the configuration. Out: a first [`ChangeSet`] with everything, then one for each time that
//! something changed. One thread of its own does all file IO: it blocks, and must not hold up others.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::{mpsc, oneshot};

use super::inbox::{Inbox, Touched, Woken};
use super::problem::Problem;
use super::read::{self, Identity};
use super::table::Table;
use super::{ChangeSet, FilesConfig};
use crate::change::Change;

/// Looking at everything may take one part in this many of the time.
const RESCAN_SHARE: u32 = 50;

/// Why watching ended though somebody listens.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The thread that reads could not be started.
    #[error("the thread that reads files could not be started")]
    Start(#[source] std::io::Error),
    /// The thread that reads is gone.
    #[error("the thread that reads files ended early")]
    Ended,
}

/// Sends everything in the files, then every change.
///
/// Returns when the receiver is dropped, or after the first set if [`FilesConfig::watch`] is off.
/// Dropping the future ends the watch. While `tx` is full, changes gather and are sent together later.
///
/// # Errors
/// If the reading thread can't be started, or died. A path that can't be read is no error but a
/// [`Problem`] of the sets.
pub async fn watch(config: FilesConfig, tx: mpsc::Sender<ChangeSet>) -> Result<(), WatchError> {
    watch_by(config, tx, true).await
}

/// [`watch`], with the file system's events or without.
async fn watch_by(
    config: FilesConfig,
    tx: mpsc::Sender<ChangeSet>,
    events: bool,
) -> Result<(), WatchError> {
    let inbox = Arc::new(Inbox::default());
    let _stop = StopOnDrop(inbox.clone());
    let (done, ended) = oneshot::channel();
    let sender = tx.clone();
    std::thread::Builder::new()
        .name("files".to_owned())
        .spawn(move || {
            Reader::new(config, inbox, events, sender).run();
            // Nobody waits for this any more if the future was dropped.
            let _ = done.send(());
        })
        .map_err(WatchError::Start)?;
    tokio::select! {
        () = tx.closed() => Ok(()),
        ended = ended => ended.map_err(|_| WatchError::Ended),
    }
}

struct StopOnDrop(Arc<Inbox>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The reading thread.
struct Reader {
    table: Table,
    inbox: Arc<Inbox>,
    watches: Watches,
    tx: mpsc::Sender<ChangeSet>,
    config: FilesConfig,
    next_rescan: Instant,
    /// The problems that were sent last.
    problems: Vec<Problem>,
}

impl Reader {
    fn new(
        config: FilesConfig,
        inbox: Arc<Inbox>,
        events: bool,
        tx: mpsc::Sender<ChangeSet>,
    ) -> Self {
        let watches = Watches::new(events && config.watch, &inbox);
        Self {
            table: Table::new(config.clone()),
            inbox,
            watches,
            tx,
            config,
            next_rescan: Instant::now(),
            problems: Vec::new(),
        }
    }

    fn run(mut self) {
        let detected = Instant::now();
        let changes = self.whole(|table, visit| table.first(&mut std::io::stdin(), visit));
        self.problems = self.table.problems();
        let mut open = self.send(changes, detected);
        while open && self.config.watch {
            let deadline = match self.table.due() {
                Some(due) => due.min(self.next_rescan),
                None => self.next_rescan,
            };
            open = match self.inbox.wait(deadline) {
                Woken::Stopped => false,
                Woken::Touched(touched) => {
                    let detected = touched.first;
                    let changes = self.touched(touched);
                    self.tell(changes, detected)
                }
                Woken::TimeOut => {
                    let detected = Instant::now();
                    let changes = if self.next_rescan <= detected {
                        self.whole(Table::rescan)
                    } else {
                        self.table.settle()
                    };
                    self.tell(changes, detected)
                }
            };
        }
    }

    /// Looks at everything by `look`, and plans when to do so again.
    fn whole(
        &mut self,
        look: impl FnOnce(&mut Table, &mut super::table::Visit<'_>) -> Vec<Change>,
    ) -> Vec<Change> {
        let start = Instant::now();
        self.watches.begin();
        let watches = &mut self.watches;
        let changes = look(&mut self.table, &mut |folder, id| watches.want(folder, id));
        self.watches.end();
        self.inbox.expect(self.table.odd_names());
        let pause = self.config.rescan.max(start.elapsed() * RESCAN_SHARE);
        self.next_rescan = Instant::now() + pause;
        changes
    }

    fn touched(&mut self, touched: Touched) -> Vec<Change> {
        let paths: Option<Vec<PathBuf>> = touched
            .paths
            .iter()
            .map(|path| self.watches.as_given(path))
            .collect();
        match paths {
            Some(paths) if !touched.everything => {
                let start = Instant::now();
                for path in &touched.paths {
                    self.watches.distrust(path);
                }
                self.watches.begin();
                let watches = &mut self.watches;
                let mut visited = false;
                let changes = self.table.touch(paths, &mut |folder, id| {
                    visited = true;
                    watches.want(folder, id);
                });
                if visited {
                    self.watches.end();
                    self.inbox.expect(self.table.odd_names());
                    let pause = self.config.rescan.max(start.elapsed() * RESCAN_SHARE);
                    self.next_rescan = Instant::now() + pause;
                }
                changes
            }
            _ => self.whole(Table::rescan),
        }
    }

    /// Sends what changed, if anything did. Answers whether somebody still listens.
    fn tell(&mut self, changes: Vec<Change>, detected: Instant) -> bool {
        let problems = self.table.problems();
        if changes.is_empty() && problems == self.problems {
            return !self.tx.is_closed();
        }
        self.problems = problems;
        self.send(changes, detected)
    }

    fn send(&self, changes: Vec<Change>, detected: Instant) -> bool {
        let work = self.table.work();
        tracing::debug!(changes = changes.len(), ?work, "files changed");
        let set = ChangeSet {
            changes,
            problems: self.problems.clone(),
            skipped: self.table.skipped(),
            detected,
        };
        self.tx.blocking_send(set).is_ok()
    }
}

/// The folders that the file system tells us about.
struct Watches {
    watcher: Option<RecommendedWatcher>,
    active: HashMap<Identity, Watched>,
    /// Watched paths as the watcher names them, and as they were given.
    given: HashMap<PathBuf, PathBuf>,
    round: u64,
    warned: bool,
}

struct Watched {
    path: PathBuf,
    /// The last round in which the folder was wanted.
    round: u64,
}

impl Watches {
    fn new(events: bool, inbox: &Arc<Inbox>) -> Self {
        let watcher = events.then(|| {
            let inbox = inbox.clone();
            notify::recommended_watcher(move |event| inbox.put(event))
        });
        let watcher = match watcher.transpose() {
            Ok(watcher) => watcher,
            Err(error) => {
                tracing::warn!(%error, "no events of the file system: changes are seen by looking again");
                None
            }
        };
        Self {
            watcher,
            active: HashMap::new(),
            given: HashMap::new(),
            round: 0,
            warned: false,
        }
    }

    /// Begins a round in which every folder is wanted that is still needed.
    fn begin(&mut self) {
        self.round += 1;
    }

    fn want(&mut self, folder: &Path, identity: Identity) {
        let round = self.round;
        let (Some(watcher), Ok(path)) = (&mut self.watcher, std::path::absolute(folder)) else {
            return;
        };
        if let Some(watched) = self.active.get_mut(&identity) {
            // Another name of the same folder needs no second watch. But if the folder was moved here, its
            // events would still bear the old name.
            let is_there =
                |old: &Path| std::fs::metadata(old).is_ok_and(|m| read::identity(&m) == identity);
            if watched.path == path || is_there(&watched.path) {
                watched.round = round;
                return;
            }
            let _ = watcher.unwatch(&watched.path);
            self.given.remove(&watched.path);
            self.active.remove(&identity);
        }
        if self.given.remove(&path).is_some() {
            // Another folder has taken the place of the one that was watched.
            let _ = watcher.unwatch(&path);
            self.active.retain(|_, watched| watched.path != path);
        }
        match watcher.watch(&path, RecursiveMode::NonRecursive) {
            Ok(()) => {
                self.given.insert(path.clone(), folder.to_owned());
                self.active.insert(identity, Watched { path, round });
            }
            Err(error) if !self.warned => {
                self.warned = true;
                tracing::warn!(
                    folder = %folder.display(), %error,
                    "no events of this folder, and maybe others: changes are seen by looking again"
                );
            }
            Err(_) => {}
        }
    }

    /// Ends a round: what was not wanted in it is given up.
    fn end(&mut self) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let (round, given) = (self.round, &mut self.given);
        self.active.retain(|_, watched| {
            let keep = watched.round == round;
            if !keep {
                // Fails if the folder is gone, and the watch with it.
                let _ = watcher.unwatch(&watched.path);
                given.remove(&watched.path);
            }
            keep
        });
    }

    /// Gives a folder up if something happened to the folder itself. If it is there it is wanted again;
    /// but it may be another, and even have the same inode.
    fn distrust(&mut self, path: &Path) {
        if self.given.remove(path).is_some() {
            self.active.retain(|_, watched| watched.path != path);
            if let Some(watcher) = &mut self.watcher {
                // Fails if the folder is gone, and the watch with it.
                let _ = watcher.unwatch(path);
            }
        }
    }

    /// An event's path under the name by which its folder was given.
    fn as_given(&self, path: &Path) -> Option<PathBuf> {
        if let Some(folder) = self.given.get(path) {
            return Some(folder.clone());
        }
        let folder = self.given.get(path.parent()?)?;
        Some(folder.join(path.file_name()?))
    }
}

#[cfg(test)]
mod tests;
