//! Envoys in a cluster: the objects that run them, kept as they should be.
//!
//! In: what fleets there should be. Out: Kubernetes objects, and what has become of them. It must not know what a
//! route is, nor what an Envoy is configured with.
