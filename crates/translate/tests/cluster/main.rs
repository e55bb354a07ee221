//! Translation for a cluster, where it differs from local mode. `tests/cases` in the repository root covers the rest.

mod configuration;
mod default_fleet;
mod limits;
mod listener_sets;
mod listener_settings;
mod managed;
mod parameters;
mod pod_services;
mod rig;
mod settings;
mod statuses;
mod unmanaged;
mod wildcards;
