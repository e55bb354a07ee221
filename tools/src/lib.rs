//! Tools for building and testing Sesame, used by `cargo xtask`: Envoy, Go, images and a Kubernetes cluster, all
//! without a container engine.
//!
//! In: the workspace, Python packages, Go modules. Out: programs in the cache folder, image archives, a running
//! cluster. They must not depend on how Sesame is installed or tested.

// Command-line tools print.
#![allow(clippy::print_stdout, clippy::print_stderr)]

pub mod cargo;
pub mod cluster;
pub mod envoy;
pub mod go;
pub mod image;
pub mod progress;
pub mod wheel;
