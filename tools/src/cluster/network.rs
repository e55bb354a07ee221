//! The node's isolated network.
//!
//! In: addresses. Out: devices, routes and rules in the node's network namespace, which disappear with it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::layout::{Layout, NODE_ADDRESS, NODE_NETWORK};
use crate::wheel::last_lines;

/// The device for the node's address and default route. It drops all packets, as it is one end of a veth pair whose
/// other end doesn't use ARP. Not every kernel has dummy devices.
const DEVICES: &[&str] = &[
    "link set lo up",
    "link add node0 type veth peer name node0-end",
    "link set node0 arp off up",
    "link set node0-end arp off up",
];

/// The namespace's sysctls, and whether they are optional.
const SETTINGS: &[(&str, &str, bool)] = &[
    ("net/ipv6/conf/node0-end/disable_ipv6", "1", true),
    ("net/ipv4/ip_forward", "1", false),
    // Traffic between pods through a Service must return along the same path.
    ("net/bridge/bridge-nf-call-iptables", "1", true),
];

/// Sets up the network.
pub(super) fn make(layout: &Layout) -> Result<()> {
    for line in DEVICES {
        ip(&line.split(' ').collect::<Vec<_>>())?;
    }
    ip(&["address", "add", NODE_NETWORK, "dev", "node0"])?;
    ip(&[
        "route",
        "add",
        "default",
        "dev",
        "node0",
        "src",
        NODE_ADDRESS,
    ])?;
    for (name, value, optional) in SETTINGS {
        let path = Path::new("/proc/sys").join(name);
        if path.exists() || !optional {
            fs::write(&path, value).with_context(|| format!("cannot set {}", path.display()))?;
        }
    }
    run(Command::new("nft")
        .arg("-f")
        .arg(layout.settings().join("refuse.nft")))
}

fn ip(args: &[&str]) -> Result<()> {
    run(Command::new("ip").args(args))
}

fn run(command: &mut Command) -> Result<()> {
    // PATH may lack the folders with admin programs.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = command
        .env("PATH", path)
        .output()
        .with_context(|| format!("cannot run {:?}", command.get_program()))?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        last_lines(&output.stderr)
    );
    Ok(())
}
