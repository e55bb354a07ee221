//! Translation as a state machine: changed inputs in, changed outputs out.
//!
//! In: changed objects, fleet states, failed writes, resources that Envoys rejected. Out: the commit, and each fleet's
//! changed resources. Doesn't do IO, read a clock or start threads: the caller does.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_api::{Kind, LoggingConfiguration, Object, ObjectKey, Release};
use sesame_engine::{Batch, Builder, Commit, Engine};
use sesame_envoy::{Assembler, Options, Part, RejectedVersion, ResourceChange, Sharding, Suspect};
use sesame_model::{
    FleetId, FleetState, ListenerKey, ListenerSettings, RouteTableKey, UpgradeProgress,
    VirtualHostKey,
};
use sesame_translate::configuration;
use sesame_translate::fleet::Rejected;
use sesame_translate::inputs::Inputs;
use sesame_translate::pipeline::{self, Outputs, Pipeline};
use sesame_translate::settings::{Mode, Settings};

use crate::class;

/// A changed input.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An object was added or changed.
    Upsert(Object),
    /// An object was removed.
    Remove(ObjectKey),
    /// The state of a fleet; `None` if the fleet is gone.
    Fleet(FleetId, Option<FleetState>),
    /// The progress in upgrading fleets; `None` if it is unknown.
    Upgrades(Option<UpgradeProgress>),
    /// An Envoy rejected a resource, with its message; `None` if it accepted the resource.
    Rejection(Rejected, Option<String>),
    /// Serves the last accepted version of a host or chain, or refuses its requests or connections, until it changes. With
    /// Envoy's message, it is the cause of a rejection; otherwise it is only suspected.
    Hold(Suspect, Option<String>),
    /// Serves the current version of a held host or chain.
    ReleasePart(Part),
    /// The last valid settings of a fleet's listeners; `None` if the fleet is gone.
    ValidListenerSettings(FleetId, Option<Arc<ListenerSettings>>),
    /// Why the Service of an XBackend can't be written; `None` once it can.
    PodServiceFailure(ObjectKey, Option<String>),
    /// The date, in days since 1970. Without it, statuses don't warn of certificates that expire.
    Today(i64),
    /// The installed Gateway API; `None` if unknown.
    Release(Option<Release>),
    /// The kinds that the API server doesn't serve.
    Absent(BTreeSet<Kind>),
}

/// The outcome of some inputs.
pub struct Step {
    /// The stages that ran, and their changes.
    pub commit: Commit,
    /// Changed resources, sorted by fleet, type and name.
    pub resources: Vec<ResourceChange>,
    /// The held parts that have changed. They are no longer held.
    pub changed: Vec<Part>,
}

/// The engine with all stages, and the assembler of their resources.
pub struct Core {
    engine: Engine,
    pipeline: Pipeline,
    assembler: Assembler,
    settings: Settings,
    /// Whether the user has defined the GatewayClass `sesame`, which replaces the built-in one; always true in a
    /// cluster.
    user_defines_class: bool,
    /// Whether there has been a commit, even an empty one.
    committed: bool,
}

impl Core {
    /// Creates a local core without objects.
    pub fn new(options: Options) -> Self {
        Self::local(Settings::new(Mode::Local), options)
    }

    /// Creates a local core without objects, with these settings.
    pub fn local(settings: Settings, options: Options) -> Self {
        Self::of(settings, options)
    }

    /// Creates a core without objects, for a cluster. Doesn't add a GatewayClass.
    pub fn in_cluster(settings: Settings, sharding: Sharding) -> Self {
        let options = Options {
            port_offset: 0,
            sharding,
        };
        Self::of(settings, options)
    }

    fn of(settings: Settings, options: Options) -> Self {
        let mut builder = Builder::new();
        let pipeline = pipeline::stages(&mut builder);
        let outputs = pipeline.outputs;
        let inputs = sesame_envoy::Inputs {
            listeners: outputs.listeners,
            route_tables: outputs.route_tables,
            virtual_hosts: outputs.virtual_hosts,
            clusters: outputs.clusters,
            endpoints: outputs.endpoints,
            destinations: outputs.destinations,
            datagrams: outputs.datagrams,
            certificates: outputs.certificates,
            trust_bundles: outputs.trust_bundles,
            fleet_clusters: outputs.fleet_clusters,
            fleet_destinations: outputs.fleet_destinations,
            fleet_certificates: outputs.fleet_certificates,
            fleet_trust_bundles: outputs.fleet_trust_bundles,
        };
        let encoded = sesame_envoy::stages(&mut builder, inputs, options);
        Self {
            assembler: Assembler::new(&inputs, &encoded, options),
            engine: builder.build(),
            pipeline,
            user_defines_class: settings.in_cluster(),
            settings,
            committed: false,
        }
    }

    /// Applies all inputs as one change, without a visible intermediate state. The last input of a key wins.
    pub fn apply(&mut self, inputs: impl IntoIterator<Item = Input>) -> Step {
        let commit = self.commit(inputs);
        let resources = self.assemble(&commit);
        Step {
            commit,
            resources,
            changed: self.assembler.take_changed(),
        }
    }

    /// The first half of [`apply`](Self::apply); its cost is proportional to the change.
    pub fn commit(&mut self, inputs: impl IntoIterator<Item = Input>) -> Commit {
        let tables = self.pipeline.inputs;
        let mut batch = Batch::new();
        if !self.committed {
            self.set_settings(&mut batch);
        }
        for input in inputs {
            match input {
                Input::Upsert(object) => {
                    self.user_defines_class |= class::is_builtin(&object.key());
                    if let Some(settings) = self.configured(&object) {
                        self.settings = settings;
                        self.set_settings(&mut batch);
                    }
                    tables.upsert(&mut batch, object);
                }
                Input::Remove(key) if !self.settings.in_cluster() && class::is_builtin(&key) => {
                    self.user_defines_class = false;
                    self.set_builtin_class(&mut batch);
                }
                Input::Remove(key) => tables.remove(&mut batch, &key),
                Input::Fleet(fleet, state) => tables.set_fleet(&mut batch, fleet, state),
                Input::Upgrades(progress) => tables.set_upgrades(&mut batch, progress),
                Input::Rejection(rejected, message) => {
                    tables.set_rejection(&mut batch, rejected, message);
                }
                Input::Hold(suspect, message) => {
                    self.assembler.hold(&suspect);
                    if message.is_some() {
                        set_rejected_part(tables, &mut batch, suspect.part, message);
                    }
                }
                Input::ReleasePart(part) => {
                    self.assembler.release(&part);
                    set_rejected_part(tables, &mut batch, part, None);
                }
                Input::ValidListenerSettings(fleet, settings) => {
                    tables.set_valid_listener_settings(&mut batch, fleet, settings);
                }
                Input::PodServiceFailure(xbackend, message) => {
                    tables.set_pod_service_failure(&mut batch, xbackend, message);
                }
                Input::Today(today) => tables.set_today(&mut batch, today),
                Input::Release(release) => tables.set_release(&mut batch, release),
                Input::Absent(kinds) => tables.set_absent(&mut batch, kinds),
            }
        }
        self.committed = true;
        self.engine.commit(batch)
    }

    /// Applies the settings, and updates the built-in class that depends on them.
    fn set_settings(&self, batch: &mut Batch) {
        let tables = self.pipeline.inputs;
        tables.set_settings(batch, self.settings.clone());
        if !self.user_defines_class {
            self.set_builtin_class(batch);
        }
    }

    fn set_builtin_class(&self, batch: &mut Batch) {
        let tables = self.pipeline.inputs;
        match &self.settings.controller_name {
            Some(name) => tables.upsert(batch, class::builtin(name)),
            None => tables.remove(batch, &class::key()),
        }
    }

    /// The settings in an object, if it is the instance's configuration and valid. While it is invalid or gone, the last
    /// valid settings apply.
    fn configured(&self, object: &Object) -> Option<Settings> {
        let Object::SesameConfiguration(configuration) = object else {
            return None;
        };
        let name = configuration.meta.namespaced_name();
        (self.settings.configuration.as_ref() == Some(&name))
            .then(|| configuration::settings(&self.settings, configuration).ok())
            .flatten()
    }

    /// The controller name of our GatewayClasses, if we serve any.
    pub(crate) fn controller_name(&self) -> Option<&Arc<str>> {
        self.settings.controller_name.as_ref()
    }

    /// The logs that the instance's configuration asks for.
    pub(crate) fn logging(&self) -> &LoggingConfiguration {
        &self.settings.logging
    }

    /// Whether there has been a commit. An empty one, as in an empty cluster, counts.
    pub(crate) fn committed(&self) -> bool {
        self.committed
    }

    /// The second half of [`apply`](Self::apply); must be called with every commit, in order. It joins route tables;
    /// its cost is proportional to the size of the joined tables or shards.
    pub fn assemble(&mut self, commit: &Commit) -> Vec<ResourceChange> {
        self.assembler.apply(commit)
    }

    /// The hosts or chains that may be the cause of a rejection.
    pub(crate) fn suspects(&self, rejected: RejectedVersion<'_>) -> Vec<Suspect> {
        self.assembler.suspects(rejected)
    }

    /// Number of listeners replaced so far. Their connections may still need resources, which only
    /// [`settle`](Self::settle) removes.
    pub(crate) fn replaced(&self) -> u64 {
        self.assembler.replaced()
    }

    /// Removes the resources that only replaced listeners need. Call it once their connections have drained.
    pub fn settle(&mut self) -> Vec<ResourceChange> {
        self.assembler.settle()
    }

    /// All resources of a fleet, sorted by type and name; `None` if there is no such fleet.
    pub fn resources(&self, fleet: &FleetId) -> Option<Vec<ResourceChange>> {
        self.engine.get(self.outputs().fleets, fleet)?;
        Some(self.assembler.resources(fleet))
    }

    /// The tables, for inspection.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The parts that are joined into resources, for inspection.
    pub fn assembler(&self) -> &Assembler {
        &self.assembler
    }

    /// The output tables.
    pub fn outputs(&self) -> &Outputs {
        &self.pipeline.outputs
    }

    /// The uid of an object that gets a status; `None` if there is no such object.
    pub(crate) fn uid(&self, key: &ObjectKey) -> Option<String> {
        self.pipeline.inputs.uid(&self.engine, key)
    }

    /// Whether an object is the built-in GatewayClass, which has no reported status.
    pub fn is_builtin_class(&self, key: &ObjectKey) -> bool {
        key.kind == Kind::GatewayClass && &*key.name == class::NAME && !self.user_defines_class
    }
}

/// Records why an Envoy rejected a part; `None` if it hasn't.
fn set_rejected_part(tables: Inputs, batch: &mut Batch, part: Part, message: Option<String>) {
    match part {
        Part::Host(host) => tables.set_rejected_host(batch, host, message),
        Part::Chain(ListenerKey { fleet, port }, name) => {
            let host = VirtualHostKey {
                table: RouteTableKey {
                    fleet: fleet.clone(),
                    port: port.number,
                },
                domain: Arc::clone(&name),
            };
            tables.set_rejected_host(batch, host, message.clone());
            tables.set_rejection(batch, Rejected::chain(fleet, port, &name), message);
        }
    }
}
