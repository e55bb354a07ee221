//! What every source of configuration reads alike: hostnames, references and grants, certificates, Services.

pub mod certificates;
pub(crate) mod grants;
pub mod hostname;
pub(crate) mod namespaces;
pub mod parameters;
pub mod precedence;
pub mod regex;
pub mod services;
