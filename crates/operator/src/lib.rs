//! The operator: runs an instance of Sesame for each SesameConfiguration that describes one.
//!
//! In: SesameConfigurations in all namespaces. Out: the objects of instances (a Deployment, Services, permissions), and
//! the condition `Available` of each configuration. Must not depend on how an instance translates objects.
//!
//! An instance runs in the namespace of its configuration. The operator has none of an instance's permissions: it may
//! bind ClusterRoles that are installed along with it, and no others. A finalizer on the configuration removes the
//! instance before the configuration, together with the Envoys that the instance runs in other namespaces.

mod apply;
mod conflict;
mod instance;
mod objects;
mod reconcile;
mod removal;
mod status;
mod uninstall;

pub use self::reconcile::run;
pub use self::uninstall::{UninstallError, uninstall};

/// Settings that all instances share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorConfig {
    /// The image of Sesame.
    pub image: String,
    /// The image of Envoy.
    pub envoy_image: String,
    /// The release of Sesame, for the label `app.kubernetes.io/version`.
    pub version: String,
}
