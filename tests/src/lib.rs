//! What the tests of the whole share.
//!
//! - [`cases`]: the files under `tests/cases`, one case each.
//! - [`mutation`]: objects as nobody should write them.
//! - [`outcome`]: a translation in the form that the cases have below their line.
//! - [`world`]: a core with all that it has put out.
//! - [`yaml`]: text with structure, short enough to be read.

pub mod cases;
pub mod mutation;
pub mod outcome;
pub mod world;
pub mod yaml;
