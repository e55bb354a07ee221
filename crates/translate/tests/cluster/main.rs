//! Translation for a cluster: what is different from one's own machine. What objects mean besides is in the cases of the
//! repository's tests.

mod managed;
mod parameters;
mod rig;
mod statuses;
mod unmanaged;
