//! What hosts report about the objects with routes for them.

use crate::shared::{held, overlaps, scans, wildcard_budget};

/// The findings, each by object.
#[derive(Clone, Copy)]
pub(crate) struct HostFindings {
    /// Matches that don't get requests, since another object has the same match and takes precedence.
    pub(crate) overlaps: overlaps::ByLoser,
    /// Matches that aren't served because of their regular expressions.
    pub(crate) refusals: scans::ByObject,
    /// Objects that aren't served on wildcard hosts because of their size.
    pub(crate) left_out: wildcard_budget::ByObject,
    /// Hosts that Envoys rejected.
    pub(crate) held: held::ByObject,
}
