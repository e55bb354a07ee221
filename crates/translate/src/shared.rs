//! Shared by all configuration sources: listeners, ports, hosts, connections and datagrams, which merge the rows of all
//! sources; the fleet of objects without a Gateway; hostnames and wildcards, references, grants and delegations,
//! certificates and when they expire, client certificates, CAs, CRLs, JWKS, Services and their annotations, the Services of
//! XBackends; durations; regular expressions, and the time that a host's conditions take; hosts that Envoys reject; external
//! authorization; objects of Contour's group.

pub(crate) mod authorities;
pub mod certificates;
pub(crate) mod client_certificates;
pub(crate) mod connections;
pub(crate) mod contour;
pub(crate) mod covering;
pub(crate) mod datagrams;
pub(crate) mod default_fleet;
pub(crate) mod delegation;
mod der;
pub(crate) mod durations;
pub mod expiry;
pub(crate) mod external_auth;
pub(crate) mod grants;
pub(crate) mod headers;
pub(crate) mod held;
pub(crate) mod host_findings;
pub(crate) mod host_ports;
pub mod hostname;
pub mod hosts;
pub(crate) mod jwks;
pub mod listeners;
pub(crate) mod namespaces;
pub(crate) mod open_listeners;
pub(crate) mod overlaps;
pub mod pod_services;
pub(crate) mod ports;
pub mod precedence;
pub mod regex;
pub(crate) mod revocations;
pub(crate) mod scans;
pub mod service_annotations;
pub mod services;
pub(crate) mod shares;
pub(crate) mod wildcard_budget;
pub(crate) mod wildcards;
