//! Sesame in this process: the engine on a thread of its own, and the discovery server behind it.
//!
//! In: changes of objects. Out: resources for an Envoy, and the word that it has them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sesame_control::core::{Core, Input};
use sesame_envoy::ResourceChange;
use sesame_xds::{Config, Event, Events, FleetId, Registry, Resource, ResourceType, Update};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::objects;
use crate::rig;

/// Changes on their way to the engine.
const QUEUE: usize = 1024;

/// How long Envoy may take to acknowledge anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// The names of Sesame's threads begin so.
pub(crate) const THREADS: &str = "sesame";

/// Sesame, running.
#[derive(Debug)]
pub(crate) struct Sesame {
    changes: Option<SyncSender<Vec<Input>>>,
    handed: u64,
    acked: u64,
    engine: Option<JoinHandle<()>>,
    bytes: Arc<AtomicU64>,
    events: Events,
    runtime: Runtime,
}

impl Sesame {
    /// Starts serving on a Unix socket.
    pub(crate) fn start(socket: PathBuf) -> Result<Self> {
        let runtime = rig::runtime("sesame-xds")?;
        let registry = Registry::new(Config::default());
        let events = registry.events();
        let server = registry.clone();
        runtime.spawn(async move {
            if let Err(error) = server.serve_unix(&socket, std::future::pending()).await {
                eprintln!("{error}");
            }
        });
        let (changes, incoming) = sync_channel(QUEUE);
        let bytes = Arc::new(AtomicU64::new(0));
        let engine = thread::Builder::new()
            .name("sesame-engine".to_owned())
            .spawn({
                let bytes = Arc::clone(&bytes);
                move || run(&incoming, &registry, &bytes)
            })?;
        Ok(Self {
            changes: Some(changes),
            handed: 0,
            acked: 0,
            engine: Some(engine),
            bytes,
            events,
            runtime,
        })
    }

    /// Hands in what belongs together. The number that comes back is for [`Sesame::acked`].
    pub(crate) fn change(&mut self, inputs: Vec<Input>) -> Result<u64> {
        let changes = self.changes.as_ref().context("Sesame has ended")?;
        changes.send(inputs).context("the engine has ended")?;
        self.handed += 1;
        Ok(self.handed)
    }

    /// Waits until Envoy has everything up to this number.
    pub(crate) fn acked(&mut self, number: u64) -> Result<()> {
        while self.acked < number {
            let events = &mut self.events;
            let next = async { timeout(PATIENCE, events.next()).await };
            match self.runtime.block_on(next) {
                Ok(Event::Acked { revision, .. }) => self.acked = revision,
                Ok(Event::Rejected { name, message, .. }) => {
                    bail!("Envoy refused {name}: {message}")
                }
                Ok(_) => {}
                Err(_) => bail!("Envoy doesn't acknowledge"),
            }
        }
        Ok(())
    }

    /// Bytes of all resources that were handed to the discovery server so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Sesame {
    fn drop(&mut self) {
        // The engine ends when nothing more can come.
        self.changes = None;
        if let Some(engine) = self.engine.take() {
            // It fails only if it panicked, and said so then.
            let _ = engine.join();
        }
    }
}

/// Takes what is queued as one change, again and again. The revision of a change is the number of its last part.
fn run(incoming: &Receiver<Vec<Input>>, registry: &Registry, bytes: &AtomicU64) {
    let mut core = Core::new(0);
    let fleet = FleetId::new(objects::fleet().as_str());
    let mut revision = 0;
    while let Ok(mut inputs) = incoming.recv() {
        revision += 1;
        while let Ok(more) = incoming.try_recv() {
            revision += 1;
            inputs.extend(more);
        }
        let step = core.apply(inputs);
        let pushed: usize = step.resources.iter().map(size).sum();
        bytes.fetch_add(pushed as u64, Ordering::Relaxed);
        registry.apply(&fleet, update(step.resources, revision));
    }
}

fn size(change: &ResourceChange) -> usize {
    change.body.as_ref().map_or(0, |body| body.len())
}

fn update(changes: Vec<ResourceChange>, revision: u64) -> Update {
    let mut update = Update {
        revision,
        ..Update::default()
    };
    for change in changes {
        let Some(resource_type) = ResourceType::from_type_url(change.type_url) else {
            continue;
        };
        match change.message() {
            Some(message) => {
                let resource = Resource::new(change.name, message);
                update.upserts.push((resource_type, resource));
            }
            None => update.removals.push((resource_type, change.name.into())),
        }
    }
    update
}
