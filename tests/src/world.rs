//! A core with all its resources, as an xDS server sees them.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Debug;

use sesame_control::FleetId;
use sesame_control::core::{Core, Input, Step};
use sesame_engine::{Key, Table, Value};
use sesame_envoy::{Bytes, Options};
use sesame_testkit::generate::Change;

/// A resource's fleet, type and name.
pub type ResourceKey = (FleetId, &'static str, String);

/// A core and every resource of every fleet.
pub struct World {
    core: Core,
    resources: BTreeMap<ResourceKey, Bytes>,
}

impl World {
    /// A world without objects.
    pub fn new(options: Options) -> Self {
        Self::of(Core::new(options))
    }

    /// A world for a core without objects.
    pub fn of(core: Core) -> Self {
        let mut world = Self {
            core,
            resources: BTreeMap::new(),
        };
        // Some resources exist even without objects.
        world.apply([]);
        world
    }

    /// Applies all inputs as one change.
    ///
    /// # Panics
    /// If a resource is reported as changed but isn't.
    pub fn apply(&mut self, inputs: impl IntoIterator<Item = Input>) -> Step {
        let step = self.core.apply(inputs);
        for change in &step.resources {
            let key = (change.fleet.clone(), change.type_url, change.name.clone());
            let before = match &change.body {
                Some(body) => self.resources.insert(key.clone(), body.clone()),
                None => self.resources.remove(&key),
            };
            assert_ne!(before, change.body, "{key:?} did not change");
        }
        step
    }

    /// The core.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// All resources.
    pub fn resources(&self) -> &BTreeMap<ResourceKey, Bytes> {
        &self.resources
    }
}

/// Converts a change to an input for a core.
pub fn input(change: Change) -> Input {
    match change {
        Change::Upsert(object) => Input::Upsert(*object),
        Change::Remove(key) => Input::Remove(key),
    }
}

/// The differences between the outputs of two worlds, one per line.
pub fn differences(a: &World, b: &World) -> Vec<String> {
    let mut out = Vec::new();
    macro_rules! tables {
        ($($table:ident),+ $(,)?) => {$({
            let of = |world: &World| rows(world, world.core.outputs().$table);
            compare(stringify!($table), &of(a), &of(b), &mut out);
        })+};
    }
    tables!(
        fleets,
        listener_settings,
        listeners,
        route_tables,
        virtual_hosts,
        clusters,
        endpoints,
        destinations,
        datagrams,
        certificates,
        fleet_clusters,
        fleet_destinations,
        fleet_certificates,
        pod_services,
        statuses,
        notices,
    );
    compare("resources", &a.resources, &b.resources, &mut out);
    out
}

fn rows<K: Key, V: Value>(world: &World, table: Table<K, V>) -> BTreeMap<K, std::sync::Arc<V>> {
    let rows = world.core.engine().iter(table);
    rows.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn compare<K: Ord + Debug, V: PartialEq + Debug>(
    name: &str,
    a: &BTreeMap<K, V>,
    b: &BTreeMap<K, V>,
    out: &mut Vec<String>,
) {
    let keys: std::collections::BTreeSet<&K> = a.keys().chain(b.keys()).collect();
    for key in keys {
        let (in_a, in_b) = (a.get(key), b.get(key));
        if in_a != in_b {
            out.push(format!("{name} {key:?}:\n  {in_a:?}\n  {in_b:?}"));
        }
    }
}

/// The number of random cases to try: `SESAME_CASES`, or `default`.
///
/// # Panics
/// If `SESAME_CASES` is not a number.
pub fn cases(default: u32) -> u32 {
    match env::var("SESAME_CASES") {
        Ok(text) => text.parse().expect("SESAME_CASES is a number"),
        Err(_) => default,
    }
}
