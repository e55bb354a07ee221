//! Events of the file system on their way to the one who reads.
//!
//! In: events as they happen, from any thread. Out: the set of paths that were touched, once things have
//! calmed down. Memory is bounded: of too many paths only "look at everything" is kept.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind};

use super::scan::{is_eligible, is_hidden};

/// How long it must be quiet after an event. A save is often several events in a row.
const QUIET: Duration = Duration::from_millis(5);
/// The same while a file that was written to is still open: more is likely to be written.
const QUIET_WHILE_OPEN: Duration = Duration::from_millis(50);
/// When to look though it never gets quiet.
const LONGEST: Duration = Duration::from_millis(250);
/// Paths that are kept apart.
const MOST_PATHS: usize = 4096;

/// What happened.
#[derive(Debug)]
pub(super) struct Touched {
    /// Paths, as the watcher names them.
    pub(super) paths: HashSet<PathBuf>,
    /// The paths don't tell all.
    pub(super) everything: bool,
    /// When the first of these events came.
    pub(super) first: Instant,
}

/// Why waiting ended.
#[derive(Debug)]
pub(super) enum Woken {
    Touched(Touched),
    TimeOut,
    Stopped,
}

/// Collects events until somebody takes them.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    paths: HashSet<PathBuf>,
    everything: bool,
    /// Files that were written to and not closed yet.
    open: HashSet<PathBuf>,
    /// When the first and the last event came.
    span: Option<(Instant, Instant)>,
    /// Names that matter though nothing in them says so.
    odd_names: HashSet<OsString>,
    stopped: bool,
}

impl Inbox {
    /// A panic elsewhere leaves the state as it was: every change of it is a single step.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event in, or the news that events were lost.
    pub(super) fn put(&self, event: notify::Result<notify::Event>) {
        let mut state = self.lock();
        if state.take(event, Instant::now()) {
            self.changed.notify_all();
        }
    }

    /// Makes whoever waits, and whoever will, stop.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Names files that matter whatever they are called.
    pub(super) fn expect(&self, odd_names: HashSet<OsString>) {
        self.lock().odd_names = odd_names;
    }

    /// Waits until something happened and it is quiet again, or until `deadline`.
    pub(super) fn wait(&self, deadline: Instant) -> Woken {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return Woken::Stopped;
            }
            let now = Instant::now();
            let ready = state.ready();
            if ready.is_some_and(|ready| ready <= now)
                && let Some(touched) = state.touched()
            {
                return Woken::Touched(touched);
            }
            if ready.is_none() && deadline <= now {
                return Woken::TimeOut;
            }
            let until = ready.unwrap_or(deadline).saturating_duration_since(now);
            state = match self.changed.wait_timeout(state, until) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

impl State {
    /// When what happened may be taken.
    fn ready(&self) -> Option<Instant> {
        let (first, last) = self.span?;
        let quiet = if self.open.is_empty() {
            QUIET
        } else {
            QUIET_WHILE_OPEN
        };
        Some((last + quiet).min(first + LONGEST))
    }

    fn touched(&mut self) -> Option<Touched> {
        let (first, _) = self.span.take()?;
        self.open.clear();
        Some(Touched {
            paths: std::mem::take(&mut self.paths),
            everything: std::mem::take(&mut self.everything),
            first,
        })
    }

    /// Answers whether the event matters.
    fn take(&mut self, event: notify::Result<notify::Event>, now: Instant) -> bool {
        let relevant = match event {
            Ok(event) if event.need_rescan() => {
                self.everything = true;
                true
            }
            Ok(event) => {
                let kind = event.kind;
                let relevant = event.paths.into_iter().map(|path| self.path(kind, path));
                // Every path must be looked at, so no short cut.
                relevant.fold(false, |any, one| any | one)
            }
            Err(_) => {
                self.everything = true;
                true
            }
        };
        if relevant {
            let (first, _) = self.span.unwrap_or((now, now));
            self.span = Some((first, now));
        }
        relevant
    }

    fn path(&mut self, kind: EventKind, path: PathBuf) -> bool {
        let (structural, open) = match kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => (false, Some(false)),
            // Reading is no change, and we read ourselves.
            EventKind::Access(_) => return false,
            EventKind::Create(CreateKind::File) => (true, Some(true)),
            EventKind::Modify(ModifyKind::Data(_)) => (false, Some(true)),
            EventKind::Modify(ModifyKind::Metadata(_)) => (false, None),
            _ => (true, Some(false)),
        };
        if !self.matters(&path, structural) {
            return false;
        }
        match open {
            Some(true) if self.open.len() < MOST_PATHS => {
                self.open.insert(path.clone());
            }
            Some(false) => {
                self.open.remove(&path);
            }
            _ => {}
        }
        if self.paths.len() < MOST_PATHS {
            self.paths.insert(path);
        } else {
            self.everything = true;
        }
        true
    }

    /// Whether an event at a path can be about a file of ours. What comes and goes may be a folder or a
    /// link whatever its name is.
    fn matters(&self, path: &Path, structural: bool) -> bool {
        let Some(name) = path.file_name() else {
            return true;
        };
        if is_eligible(name) || self.odd_names.contains(name) {
            return true;
        }
        // `..data` is the link that a ConfigMap volume replaces.
        structural && (!is_hidden(name) || name.as_encoded_bytes().starts_with(b".."))
    }
}

#[cfg(test)]
mod tests;
