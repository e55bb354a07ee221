//! The limit on the ports that serve a host of an object. Each port has its own copy of the host, so a Gateway with many
//! ports would multiply all its routes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use sesame_model::FleetId;

use crate::shared::hosts::AttachedHost;

/// The maximum number of a fleet's ports that serve a host of an object.
pub(crate) const MAX_PORTS: usize = 8;

/// The ports that serve each host of an object, by fleet.
#[derive(Default)]
pub(crate) struct HostPorts {
    ports: BTreeMap<(FleetId, Arc<str>), Vec<u16>>,
    /// Whether some ports don't serve one of the hosts.
    pub(crate) exceeded: bool,
}

impl HostPorts {
    /// Whether this port serves the host: the first ports do.
    pub(crate) fn admit(&mut self, host: &AttachedHost) -> bool {
        let listener = &host.listener.port;
        let number = listener.port.number;
        let key = (listener.fleet.clone(), Arc::clone(&host.domain));
        match self.ports.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(vec![number]);
                true
            }
            Entry::Occupied(entry) if entry.get().contains(&number) => true,
            Entry::Occupied(entry) if entry.get().len() == MAX_PORTS => {
                self.exceeded = true;
                false
            }
            Entry::Occupied(mut entry) => {
                entry.get_mut().push(number);
                true
            }
        }
    }
}
