//! What the tests of the whole share.
//!
//! - [`world`]: a core with all that it has put out.

pub mod world;
