//! Running Envoys: a fleet is a set of Envoys with the same configuration, and this crate keeps them alive.
//!
//! In: which fleets there should be, with the bootstrap of each. Out: processes, and events about them.
//! It must know neither what a bootstrap says nor where the fleets come from: no Gateway, no listener, no xDS.

pub mod local;
