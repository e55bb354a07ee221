//! Translation for a cluster, where it differs from local mode. The repository's `tests/cases` cover what both share.

mod managed;
mod parameters;
mod rig;
mod settings;
mod statuses;
mod unmanaged;
