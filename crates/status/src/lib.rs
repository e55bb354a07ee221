//! Statuses, written back to the objects that they are about.
//!
//! In: what each object's status should be, and what it is. Out: patches, as few as can be. It must not know how a
//! status comes about, nor what an Envoy is.
