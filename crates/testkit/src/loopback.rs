//! Unique loopback addresses, so that tests can use fixed ports.

use std::net::{IpAddr, Ipv4Addr};
use std::process;
use std::sync::atomic::{AtomicU8, Ordering};

/// A loopback address that is unique in this run, and most likely among concurrent runs.
///
/// # Panics
/// After 254 calls.
pub fn new_ip() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let id = process::id();
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(last < u8::MAX, "too many tests for one address range");
    let [.., third, fourth] = id.to_be_bytes();
    Ipv4Addr::new(127, 64 | (third & 63), fourth, last).into()
}
