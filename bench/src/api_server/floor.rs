//! The floor behind an API server: a watch, and behind it the [`Floor`] that pushes resources that were encoded before.
//!
//! In: changes. Out: the same configuration in an Envoy of its own. Of what the watch tells only the name is looked at; what is
//! pushed then is byte for byte what Sesame makes of the same change.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use sesame_control::core::Core;
use sesame_envoy::{Options, XdsAddress};
use sesame_sources::change::Change;
use sesame_testkit::many;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::cluster::{Cluster, Told, Write};
use super::site;
use crate::floor::{Floor, Push};
use crate::objects;
use crate::rig::{self, Rig};

/// What is pushed when an object of this name is told of.
type Armed = Arc<Mutex<Option<(String, Push)>>>;

/// A floor that runs.
pub(crate) struct WatchedFloor {
    rig: Rig,
    scribe: Core,
    armed: Armed,
    /// Holds the stream to its Envoy.
    _floor: Floor,
    /// Watches.
    _runtime: Runtime,
}

impl WatchedFloor {
    /// Starts one with an Envoy that has so many apps, and routes that will lead to Services of so many rounds. Returns the
    /// port at which that Envoy serves.
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
            let told = cluster.watch(&site::within(site::FLOOR, like), runtime.handle())?;
            runtime.spawn(pass_on(told, Arc::clone(&armed), floor.pushes()));
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

    /// Works out what is to be pushed when this change is told of.
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

    /// Ends it, and its Envoy.
    pub(crate) fn close(self) {
        self.rig.close();
    }
}

async fn pass_on(mut told: mpsc::Receiver<Told>, armed: Armed, pushes: mpsc::Sender<Push>) {
    while let Some(told) = told.recv().await {
        let name = told.object.metadata.name.unwrap_or_default();
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
