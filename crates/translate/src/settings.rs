//! Where the Envoys are: what is decided once, when Sesame starts.
//!
//! In: nothing. Out: plain data, and the answers that follow from it.

use sesame_api::NamespacedName;
use sesame_model::FleetId;

/// What holds for a whole translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who runs the Envoys.
    pub mode: Mode,
    /// Whether the Envoys of a cluster can bind IPv6 addresses: false where the nodes' kernels have none, since one address
    /// that can't be bound costs the listener.
    pub ipv6: bool,
}

/// Who runs the Envoys, and what follows for Gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Sesame, as processes beside it. Each Gateway has a fleet, which binds the addresses of its
    /// [`FleetState`](crate::fleet::FleetState) and no others.
    Local,
    /// Sesame, in a cluster. Each Gateway has a fleet, which binds every address of its pods: that of the Gateway is
    /// somebody else's, and may come later.
    Managed,
    /// Somebody else. There is one fleet, [`FleetId::unmanaged`], and it serves one Gateway.
    Unmanaged {
        /// The Gateway; `None`: the oldest one of the oldest GatewayClass of ours.
        gateway: Option<NamespacedName>,
    },
}

impl Settings {
    /// For Envoys in that mode, with IPv6.
    pub fn new(mode: Mode) -> Self {
        Self { mode, ipv6: true }
    }

    /// Whether the Envoys are in a cluster.
    pub fn in_cluster(&self) -> bool {
        self.mode != Mode::Local
    }

    /// The fleet that serves a Gateway, if one does.
    pub fn fleet_of(&self, gateway: &NamespacedName) -> FleetId {
        match self.mode {
            Mode::Local | Mode::Managed => FleetId::of_gateway(&gateway.namespace, &gateway.name),
            Mode::Unmanaged { .. } => FleetId::unmanaged(),
        }
    }
}
