//! Shared code for tests of the full translation.
//!
//! - [`allocator`]: counts allocated bytes.
//! - [`cases`]: the files under `tests/cases`, one case each.
//! - [`mutation`]: invalid and odd objects.
//! - [`outcome`]: the outcome of a translation, as in the cases.
//! - [`world`]: a core with all its resources.
//! - [`yaml`]: compact YAML.

pub mod allocator;
pub mod cases;
pub mod mutation;
pub mod outcome;
pub mod world;
pub mod yaml;
