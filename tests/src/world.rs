//! A core with all that it has put out, as the server of an Envoy would have it.

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

/// A core, and every resource of every fleet.
pub struct World {
    core: Core,
    resources: BTreeMap<ResourceKey, Bytes>,
}

impl World {
    /// Without objects.
    pub fn new(options: Options) -> Self {
        Self::of(Core::new(options))
    }

    /// With a core that has no objects.
    pub fn of(core: Core) -> Self {
        let mut world = Self {
            core,
            resources: BTreeMap::new(),
        };
        // Brings what is there without being written.
        world.apply([]);
        world
    }

    /// Takes all of it as one change.
    ///
    /// # Panics
    /// If a resource is said to change and doesn't, or to go and wasn't there.
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

    /// What Envoys should have.
    pub fn resources(&self) -> &BTreeMap<ResourceKey, Bytes> {
        &self.resources
    }
}

/// As an input of a core.
pub fn input(change: Change) -> Input {
    match change {
        Change::Upsert(object) => Input::Upsert(*object),
        Change::Remove(key) => Input::Remove(key),
    }
}

/// What is different between two worlds: a line each. Nothing if nobody can tell them apart by what they put out.
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
        listeners,
        route_tables,
        virtual_hosts,
        clusters,
        endpoints,
        certificates,
        fleet_clusters,
        fleet_certificates,
        class_status,
        gateway_status,
        http_route_status,
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

/// How many random cases to try: what `SESAME_CASES` says, or `usual`.
///
/// # Panics
/// If `SESAME_CASES` is no number.
pub fn cases(usual: u32) -> u32 {
    match env::var("SESAME_CASES") {
        Ok(text) => text.parse().expect("SESAME_CASES is a number"),
        Err(_) => usual,
    }
}
