//! Unique loopback addresses, so that tests can use fixed ports.

use std::net::{IpAddr, Ipv4Addr};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// A loopback address that is unique in this run, and most likely among concurrent runs.
///
/// # Panics
/// After 762 calls.
pub fn new_ip() -> IpAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let id = process::id();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let (range, last) = (number / 254, number % 254 + 1);
    assert!(range < 3, "too many tests for three address ranges");
    let [.., third, fourth] = id.to_be_bytes();
    let second = [64, 128, 192][usize::from(range)] | (third & 63);
    Ipv4Addr::new(127, second, fourth, last.to_le_bytes()[0]).into()
}
