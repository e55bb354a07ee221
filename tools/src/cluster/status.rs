//! Prints a cluster's status.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::layout::Layout;
use super::{Cluster, components, process};

/// PIDs of the running components.
pub(super) fn running(layout: &Layout) -> BTreeMap<String, i32> {
    let Some(first) = process::read(&layout.first_process()) else {
        return BTreeMap::new();
    };
    let children = format!("/proc/{first}/task/{first}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    children
        .split_whitespace()
        .filter_map(|pid| {
            // The first argument is the program's full path, whereas `comm` is truncated. Zombies have no arguments.
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let program = line.split(|byte| *byte == 0).next()?;
            let program = String::from_utf8_lossy(program).into_owned();
            let name = Path::new(&program).file_name()?.to_str()?;
            Some((name.to_owned(), pid.parse().ok()?))
        })
        .collect()
}

/// Prints the status; returns whether all components are running.
pub(super) fn print(layout: &Layout, cluster: &Cluster) -> bool {
    let (text, all) = components_of(layout);
    // Standard output may be closed.
    let _ = std::io::stdout().write_all(text.as_bytes());
    for question in [
        &["get", "nodes", "-o", "wide"][..],
        &["get", "pods,services", "--all-namespaces"],
    ] {
        // kubectl prints its own errors.
        let _ = cluster.kubectl().args(question).status();
    }
    all
}

/// A line for each component, and whether all of them are running.
fn components_of(layout: &Layout) -> (String, bool) {
    let running = running(layout);
    let mut text = format!(
        "cluster {}\n  kubeconfig   {} (valid only in its network)\n  logs         {}\n",
        layout.name(),
        layout.kubeconfig().display(),
        layout.logs().display()
    );
    let mut all = true;
    for component in components::all(layout) {
        let state = match running.get(component.name) {
            Some(pid) => format!("running, PID {pid}"),
            None if layout.held().join(component.name).exists() => "stopped".to_owned(),
            None => "not running".to_owned(),
        };
        all &= running.contains_key(component.name);
        text += &format!("  {:24} {state}\n", component.name);
    }
    (text, all)
}
