//! The baseline server with an API server: a watch, and the [`Floor`] that pushes pre-encoded resources.
//!
//! In: changes. Out: the same configuration in a separate Envoy. Only the name of an event's object selects what to
//! push; the resources equal Sesame's byte for byte.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use sesame_control::core::Core;
use sesame_envoy::{Options, XdsAddress};
use sesame_sources::change::Change;
use sesame_testkit::many;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::cluster::{Cluster, Observed, Write};
use super::site;
use crate::floor::{Floor, Push};
use crate::objects;
use crate::rig::{self, Rig};

/// The resources to push on the next event for an object with this name.
type Armed = Arc<Mutex<Option<(String, Push)>>>;

/// A running baseline server.
pub(crate) struct WatchedFloor {
    rig: Rig,
    scribe: Core,
    armed: Armed,
    /// Keeps the stream to its Envoy open.
    _floor: Floor,
    /// Runs the watches.
    _runtime: Runtime,
}

impl WatchedFloor {
    /// Starts a baseline server and an Envoy with `apps` apps, plus the Services for the routes that `rounds` rounds
    /// create. Also returns the Envoy's port.
    pub(crate) fn start(
        cluster: &Cluster,
        envoy: Option<&std::path::Path>,
        apps: usize,
        rounds: usize,
        backends: [SocketAddr; 2],
    ) -> Result<(Self, u16)> {
        let [blue, _] = backends;
        let port = rig::free_port()?;
        let rig = Rig::new(envoy)?;
        let mut scribe = Core::new(Options::default());
        let site = objects::site(port, apps, |_| blue);
        let others = site::extras(backends)
            .into_iter()
            .chain(site::prepared(rounds, blue));
        let others: Vec<_> = others.collect();
        let inputs = site
            .into_iter()
            .map(Change::Upsert)
            .chain(objects::upserts(&others))
            .map(objects::input)
            .chain([objects::ready()]);
        let first = scribe.apply(inputs);
        let socket = rig.socket("floor");
        let floor = Floor::start(&socket, Push::new(&first.resources))?;
        rig.envoy(&objects::fleet(), "floor", XdsAddress::Unix(socket))?;

        let runtime = rig::runtime("floor-watch")?;
        let armed = Armed::default();
        for like in [
            many::route("any", "any.example.com", &[]),
            many::slice("any", blue),
        ] {
            let event = cluster.watch(&site::within(site::FLOOR, like), runtime.handle())?;
            runtime.spawn(pass_on(event, Arc::clone(&armed), floor.pushes()));
        }
        let floor = Self {
            rig,
            scribe,
            armed,
            _floor: floor,
            _runtime: runtime,
        };
        Ok((floor, port))
    }

    /// Encodes the resources to push on this change's event.
    pub(crate) fn arm(&mut self, write: &Write) {
        let (value, changes) = match write {
            Write::Create(value) | Write::Change(value) => {
                (value, objects::upserts(std::slice::from_ref(value)))
            }
            Write::Delete(value) => (value, objects::removals(std::slice::from_ref(value))),
        };
        let step = self.scribe.apply(changes.into_iter().map(objects::input));
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        let armed = (name.to_owned(), Push::new(&step.resources));
        *self.armed.lock().unwrap_or_else(PoisonError::into_inner) = Some(armed);
    }

    /// Stops the baseline server and its Envoy.
    pub(crate) fn close(self) {
        self.rig.close();
    }
}

async fn pass_on(mut event: mpsc::Receiver<Observed>, armed: Armed, pushes: mpsc::Sender<Push>) {
    while let Some(event) = event.recv().await {
        let name = event.object.metadata.name.unwrap_or_default();
        let push = {
            let mut armed = armed.lock().unwrap_or_else(PoisonError::into_inner);
            armed.take_if(|(awaited, _)| *awaited == name)
        };
        if let Some((_, push)) = push
            && pushes.send(push).await.is_err()
        {
            return;
        }
    }
}
