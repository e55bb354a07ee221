//! Sesame in this process, as `sesame local` runs it, but for its source: objects come from here instead of files.
//!
//! In: changes of objects. Out: an Envoy that serves them, and the word that it does.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sesame_control::event::Event;
use sesame_control::files::{ChangeSet, FilesConfig};
use sesame_control::local::{Config, Events, Local};
use sesame_sources::change::Change;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Sets of changes on their way.
const QUEUE: usize = 64;

/// How long Envoy may take to acknowledge anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the names of Sesame's threads begin.
pub(crate) const THREADS: [&str; 2] = ["sesame", "translate"];

/// Sesame, running.
#[derive(Debug)]
pub(crate) struct Sesame {
    local: Local,
    sets: mpsc::Sender<ChangeSet>,
    events: Events,
    /// Changes that were handed in, and those that were translated.
    handed: usize,
    translated: usize,
    /// The revision by which this many changes were translated.
    revisions: BTreeMap<usize, u64>,
    served: u64,
    runtime: Runtime,
}

impl Sesame {
    /// Starts with an Envoy of one worker thread.
    pub(crate) fn start(envoy: &Path) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .thread_name("sesame")
            .enable_all()
            .build()?;
        let (sets, incoming) = mpsc::channel(QUEUE);
        let mut config = Config::new(FilesConfig::new([""; 0]), envoy);
        config.concurrency = Some(1);
        config.drain = Duration::ZERO;
        let (local, events) = runtime.block_on(Local::start_fed(config, incoming))?;
        Ok(Self {
            local,
            sets,
            events,
            handed: 0,
            translated: 0,
            revisions: BTreeMap::new(),
            served: 0,
            runtime,
        })
    }

    /// Hands in what belongs together. The number that comes back is for [`Sesame::served`].
    pub(crate) fn change(&mut self, changes: Vec<Change>) -> Result<usize> {
        self.handed += changes.len();
        let set = ChangeSet {
            changes,
            problems: Vec::new(),
            skipped: BTreeMap::new(),
            detected: Instant::now(),
        };
        self.sets.blocking_send(set).context("Sesame has ended")?;
        Ok(self.handed)
    }

    /// Waits until Envoy has everything up to this number.
    pub(crate) fn served(&mut self, number: usize) -> Result<()> {
        loop {
            let revision = self.revisions.range(number..).next();
            if revision.is_some_and(|(_, revision)| self.served >= *revision) {
                self.revisions = self.revisions.split_off(&number);
                return Ok(());
            }
            let events = &mut self.events;
            let next = async { timeout(PATIENCE, events.recv()).await };
            match self.runtime.block_on(next) {
                Ok(Ok(Event::Change {
                    revision,
                    objects,
                    more,
                    ..
                })) => {
                    self.translated += objects.len() + more;
                    self.revisions.insert(self.translated, revision);
                }
                Ok(Ok(Event::Served { revision, .. })) => self.served = revision,
                Ok(Ok(Event::Rejected { name, message, .. })) => {
                    bail!("Envoy refused {name}: {message}")
                }
                Ok(Ok(Event::EnvoyFailed { message, .. })) => bail!("{message}"),
                Ok(Ok(_)) => {}
                Ok(Err(_)) => bail!("events are lost"),
                Err(_) => bail!("Envoy doesn't acknowledge"),
            }
        }
    }

    /// Ends it, and its Envoy.
    pub(crate) fn close(self) {
        self.runtime.block_on(self.local.shutdown());
    }
}
