//! What runs in a cluster.
//!
//! In: a layout. Out: lines for people.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::layout::Layout;
use super::{Cluster, components, process};

/// The components that run, and their processes.
pub(super) fn running(layout: &Layout) -> BTreeMap<String, i32> {
    let Some(first) = process::read(&layout.first_process()) else {
        return BTreeMap::new();
    };
    let children = format!("/proc/{first}/task/{first}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    children
        .split_whitespace()
        .filter_map(|pid| {
            // The first argument is the program, whole; the process's name is cut off, and one that has ended has none.
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let program = line.split(|byte| *byte == 0).next()?;
            let program = String::from_utf8_lossy(program).into_owned();
            let name = Path::new(&program).file_name()?.to_str()?;
            Some((name.to_owned(), pid.parse().ok()?))
        })
        .collect()
}

/// Prints what there is to know. Says whether all components run.
pub(super) fn print(layout: &Layout, cluster: &Cluster) -> bool {
    let running = running(layout);
    let mut all = true;
    println!("cluster {}", layout.name());
    println!(
        "  kubeconfig   {} (usable in its network alone)",
        layout.kubeconfig().display()
    );
    println!("  logs         {}", layout.logs().display());
    for component in components::all(layout) {
        let state = match running.get(component.name) {
            Some(pid) => format!("runs as process {pid}"),
            None if layout.held().join(component.name).exists() => "is held".to_owned(),
            None => "doesn't run".to_owned(),
        };
        all &= running.contains_key(component.name);
        println!("  {:24} {state}", component.name);
    }
    for question in [
        &["get", "nodes", "-o", "wide"][..],
        &["get", "pods", "--all-namespaces"],
        &["get", "services", "--all-namespaces"],
        &[
            "get",
            "gateways,gatewayclasses",
            "--all-namespaces",
            "--ignore-not-found",
        ],
    ] {
        println!();
        // What it has to say it says itself; kinds that aren't installed are no reason to stop.
        let _ = cluster.kubectl().args(question).status();
    }
    all
}
