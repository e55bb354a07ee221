//! Paths and ports in a pod that the pod template, Envoy's bootstrap and the sidecar share.

use std::collections::BTreeSet;
use std::time::Duration;

use sesame_model::{FleetParameters, Port};

/// The folder shared by Envoy and the sidecar.
pub const RUN_DIR: &str = "/run/sesame";
/// Envoy's admin interface: a Unix socket.
pub const ADMIN_SOCKET: &str = "/run/sesame/admin.sock";
/// The Unix socket on which Envoy's worker threads report readiness.
pub const READINESS_SOCKET: &str = "/run/sesame/readiness.sock";
/// The sidecar's control socket: a Unix socket.
pub const SIDECAR_SOCKET: &str = "/run/sesame/sidecar.sock";
/// The folder of Envoy's bootstrap and of the files that it refers to.
pub const CONFIG_DIR: &str = "/etc/envoy";
/// The name of the bootstrap file, and its key in the ConfigMap.
pub(super) const BOOTSTRAP_FILE: &str = "bootstrap.json";
/// The folder of Envoy's certificate, its key and the CA bundle: `tls.crt`, `tls.key`, `ca.crt`. The kubelet replaces
/// all three atomically with a symbolic link.
pub const CERTIFICATES_DIR: &str = "/etc/envoy-certificates";

/// The user ID of the pod's processes: not root.
pub(super) const USER_ID: u32 = 65532;

/// The default delay before a drain: about the time that nodes and load balancers take to remove the pod.
pub const DRAIN_DELAY: Duration = Duration::from_secs(5);
/// The default drain timeout after that delay.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The sidecar's preferred port.
const SIDECAR_PORT: u16 = 19_001;

/// The sidecar's port: one that no listener uses.
pub(super) fn sidecar_port(ports: &BTreeSet<Port>) -> u16 {
    let taken = |number| ports.contains(&Port::tcp(number));
    // `find` always succeeds: a Gateway has far fewer listeners than there are ports.
    (SIDECAR_PORT..=u16::MAX)
        .chain(1..SIDECAR_PORT)
        .find(|number| !taken(*number))
        .unwrap_or(SIDECAR_PORT)
}

/// The number of worker threads, derived from the CPU limit or else the CPU request. By default, Envoy would start one
/// per CPU of the node, each with its own connections to every backend.
pub(super) fn concurrency(parameters: &FleetParameters) -> u64 {
    let whole = |thousandths: u64| thousandths.div_ceil(1000).max(1);
    match (parameters.cpu_limit, parameters.cpu_request) {
        (Some(limit), _) => whole(limit),
        (None, Some(request)) => whole(request).max(2),
        (None, None) => 2,
    }
}
