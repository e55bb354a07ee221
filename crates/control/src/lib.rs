//! The rooms, wired: from a source of objects to running Envoys, and to data for whoever looks.
//!
//! In: objects and settings, as plain values. Out: what Envoys get, statuses, events. It must not know how a
//! command line is written or a terminal drawn, and it translates nothing itself: that is `sesame-translate`'s.
//!
//! - [`translate()`]: once, without Envoys and without a network.

mod class;
mod core;
mod plan;
mod translate;

pub use self::translate::{ObjectStatus, Options, Resources, Translation, translate};
