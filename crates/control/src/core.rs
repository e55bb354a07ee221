//! Translation as a machine: what changes goes in, what follows comes out.
//!
//! In: changed objects, what is known of fleets, what Envoys refused. Out: the commit, and each fleet's changed
//! resources. No IO, no time, no threads: whoever owns it brings those.

use sesame_api::{Object, ObjectKey};
use sesame_engine::{Batch, Builder, Commit, Engine};
use sesame_envoy::{Assembler, Options, ResourceChange, Sharding};
use sesame_model::FleetId;
use sesame_translate::fleet::{FleetState, Rejected};
use sesame_translate::pipeline::{self, Outputs, Pipeline};
use sesame_translate::settings::{Mode, Settings};

use crate::class;

/// One thing that is so from now on.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An object exists and looks like this.
    Upsert(Object),
    /// An object is gone.
    Remove(ObjectKey),
    /// How a fleet is; `None`: it is gone.
    Fleet(FleetId, Option<FleetState>),
    /// What an Envoy said to a resource; `None`: it took it.
    Rejection(Rejected, Option<String>),
    /// Which version of the Gateway API the cluster has, as the CRDs' annotation `gateway.networking.k8s.io/bundle-version`
    /// says it; `None`: it can't be told.
    ApiVersion(Option<String>),
}

/// What followed from some inputs.
pub struct Step {
    /// What ran and changed.
    pub commit: Commit,
    /// What Envoys should have, sorted by fleet, type and name.
    pub resources: Vec<ResourceChange>,
}

/// The engine with all stages, and the assembler behind it.
pub struct Core {
    engine: Engine,
    pipeline: Pipeline,
    assembler: Assembler,
    /// The class that nobody wrote has to be put in.
    unborn: bool,
    /// Somebody wrote the class of that name, or nobody may leave that out.
    class_written: bool,
    /// No class is there without being written.
    in_cluster: bool,
    /// There has been a commit, even if there was nothing in it.
    committed: bool,
}

impl Core {
    /// Without objects, for Envoys on this machine.
    pub fn new(options: Options) -> Self {
        Self::of(Settings::new(Mode::Local), options)
    }

    /// Without objects, for Envoys in a cluster. No class is there without being written.
    pub fn in_cluster(settings: Settings, sharding: Sharding) -> Self {
        let options = Options {
            port_offset: 0,
            sharding,
        };
        Self::of(settings, options)
    }

    fn of(settings: Settings, options: Options) -> Self {
        let in_cluster = settings.in_cluster();
        let mut builder = Builder::new();
        let pipeline = pipeline::stages(&mut builder, settings);
        let outputs = pipeline.outputs;
        let inputs = sesame_envoy::Inputs {
            listeners: outputs.listeners,
            route_tables: outputs.route_tables,
            virtual_hosts: outputs.virtual_hosts,
            clusters: outputs.clusters,
            endpoints: outputs.endpoints,
            certificates: outputs.certificates,
            fleet_clusters: outputs.fleet_clusters,
            fleet_certificates: outputs.fleet_certificates,
        };
        let encoded = sesame_envoy::stages(&mut builder, inputs, options);
        Self {
            assembler: Assembler::new(&inputs, &encoded, options),
            engine: builder.build(),
            pipeline,
            unborn: !in_cluster,
            class_written: in_cluster,
            in_cluster,
            committed: false,
        }
    }

    /// Takes all of it as one change: nobody ever sees a part of it. Of inputs about the same thing the last counts.
    pub fn apply(&mut self, inputs: impl IntoIterator<Item = Input>) -> Step {
        let commit = self.commit(inputs);
        let resources = self.assemble(&commit);
        Step { commit, resources }
    }

    /// The first half of [`apply`](Self::apply): its cost is that of the change.
    pub fn commit(&mut self, inputs: impl IntoIterator<Item = Input>) -> Commit {
        let into = self.pipeline.inputs;
        let mut batch = Batch::new();
        if std::mem::take(&mut self.unborn) {
            into.upsert(&mut batch, class::object());
        }
        for input in inputs {
            match input {
                Input::Upsert(object) => {
                    self.class_written |= class::is_it(&object.key());
                    into.upsert(&mut batch, object);
                }
                Input::Remove(key) if !self.in_cluster && class::is_it(&key) => {
                    self.class_written = false;
                    into.upsert(&mut batch, class::object());
                }
                Input::Remove(key) => into.remove(&mut batch, &key),
                Input::Fleet(fleet, state) => into.set_fleet(&mut batch, fleet, state),
                Input::Rejection(rejected, message) => {
                    into.set_rejection(&mut batch, rejected, message);
                }
                Input::ApiVersion(version) => into.set_api_version(&mut batch, version),
            }
        }
        self.committed = true;
        self.engine.commit(batch)
    }

    /// Whether there has been a commit. One of nothing, as in an empty cluster, counts.
    pub(crate) fn committed(&self) -> bool {
        self.committed
    }

    /// The other half, to be given every commit in turn: it joins route tables, which costs as much as they,
    /// or their shards, are long.
    pub fn assemble(&mut self, commit: &Commit) -> Vec<ResourceChange> {
        self.assembler.apply(commit)
    }

    /// How many times so far a listener was replaced whose connections may still need what only [`settle`](Self::settle)
    /// takes away.
    pub(crate) fn replaced(&self) -> u64 {
        self.assembler.replaced()
    }

    /// These connections are gone: what Envoys don't need any more.
    pub fn settle(&mut self) -> Vec<ResourceChange> {
        self.assembler.settle()
    }

    /// All that the Envoys of a fleet have, sorted by type and name; `None` if there is no such fleet.
    pub fn resources(&self, fleet: &FleetId) -> Option<Vec<ResourceChange>> {
        self.engine.get(self.outputs().fleets, fleet)?;
        Some(self.assembler.resources(fleet))
    }

    /// The tables, to be looked at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What the fleets' resources are joined from, to be looked at.
    pub fn assembler(&self) -> &Assembler {
        &self.assembler
    }

    /// Which tables to look at.
    pub fn outputs(&self) -> &Outputs {
        &self.pipeline.outputs
    }

    /// The API server's id of an object that gets a status, if it is there.
    pub(crate) fn uid(&self, key: &ObjectKey) -> Option<String> {
        self.pipeline.inputs.uid(&self.engine, key)
    }

    /// Whether a GatewayClass is the one that nobody wrote: its status is nobody's business.
    pub fn is_unwritten_class(&self, name: &str) -> bool {
        name == class::NAME && !self.class_written
    }
}
