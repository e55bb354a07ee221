//! Where things are in a pod: agreed between the pod's template, Envoy's bootstrap and the process beside Envoy.

use std::collections::BTreeSet;
use std::time::Duration;

use sesame_model::FleetParameters;

use super::spec::{Port, Transport};

/// The folder shared by Envoy and the process beside it.
pub const RUN: &str = "/run/sesame";
/// Envoy's admin interface: a Unix socket.
pub const ADMIN_SOCKET: &str = "/run/sesame/admin.sock";
/// Where the process beside Envoy takes orders: a Unix socket.
pub const SIDECAR_SOCKET: &str = "/run/sesame/sidecar.sock";
/// The folder of Envoy's bootstrap and of the files beside it.
pub const CONFIG: &str = "/etc/envoy";
/// The bootstrap's file in its folder and its key in the ConfigMap.
pub(super) const BOOTSTRAP_FILE: &str = "bootstrap.json";
/// The folder of Envoy's certificate, its key and who vouches for Sesame: `tls.crt`, `tls.key`, `ca.crt`. The kubelet
/// replaces all three at once, by a symbolic link.
pub const CERTIFICATES: &str = "/etc/envoy-certificates";

/// Who runs the pod's processes: nobody in particular, and not root.
pub(super) const USER: u32 = 65532;

/// How long an Envoy that is to end goes on as if nothing were, unless its owner says otherwise: about what it takes
/// until every node and load balancer knows.
pub const DRAIN_DELAY: Duration = Duration::from_secs(5);
/// How long it then waits at most for its clients.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The first choice of the port at which the process beside Envoy answers.
const SIDECAR_PORT: u16 = 19_001;

/// The port at which the process beside Envoy answers `/ready`: one that no listener has.
pub(super) fn sidecar_port(ports: &BTreeSet<Port>) -> u16 {
    let taken = |number| {
        ports.contains(&Port {
            number,
            transport: Transport::Tcp,
        })
    };
    // A Gateway has far fewer listeners than there are ports.
    (SIDECAR_PORT..=u16::MAX)
        .chain(1..SIDECAR_PORT)
        .find(|number| !taken(*number))
        .unwrap_or(SIDECAR_PORT)
}

/// The heap at which an Envoy should start to refuse requests, in bytes: what is left of its memory limit when stacks,
/// buffers of the kernel and the binary's own pages are taken off.
pub fn heap_limit(parameters: &FleetParameters) -> Option<u64> {
    parameters.memory_limit.map(|limit| limit / 10 * 8)
}

/// Worker threads: as many as Envoy may use processors. Without a limit it would take one for each of the node's, each
/// with connections of its own to every backend.
pub(super) fn concurrency(parameters: &FleetParameters) -> u64 {
    let whole = |thousandths: u64| thousandths.div_ceil(1000).max(1);
    match (parameters.cpu_limit, parameters.cpu_request) {
        (Some(limit), _) => whole(limit),
        (None, Some(request)) => whole(request).max(2),
        (None, None) => 2,
    }
}
