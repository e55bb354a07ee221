//! The limit on the ports that serve a host of an object. Each port has its own copy of the host, so a Gateway with many
//! ports would multiply all its routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_model::FleetId;

use crate::shared::hosts::AttachedHost;

/// The maximum number of a fleet's ports that serve a host of an object.
pub(crate) const MAX_PORTS: usize = 8;

/// The number of ports that a port counts as if one of its listeners has [checks](crate::shared::listeners::ListenerPoint::checks), which are large.
pub(crate) const CHECKED: usize = 4;

/// The ports that serve each host of an object, by fleet.
#[derive(Default)]
pub(crate) struct HostPorts {
    ports: BTreeMap<(FleetId, Arc<str>), Ports>,
    /// Whether some ports don't serve one of the hosts.
    pub(crate) exceeded: bool,
}

#[derive(Default)]
struct Ports {
    numbers: Vec<u16>,
    /// Each port counts as one, or as [`CHECKED`].
    count: usize,
}

impl HostPorts {
    /// Whether this port serves the host: the first ports do. `checked`: one of the port's listeners has checks.
    pub(crate) fn admit(&mut self, host: &AttachedHost, checked: bool) -> bool {
        let listener = &host.listener.port;
        let number = listener.port.number;
        let key = (listener.fleet.clone(), Arc::clone(&host.domain));
        let ports = self.ports.entry(key).or_default();
        if ports.numbers.contains(&number) {
            return true;
        }
        let count = ports.count + if checked { CHECKED } else { 1 };
        if count > MAX_PORTS {
            self.exceeded = true;
            return false;
        }
        ports.numbers.push(number);
        ports.count = count;
        true
    }
}
