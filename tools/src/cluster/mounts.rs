//! The node's mounts and cgroups.
//!
//! In: the cluster's layout. Out: mounts in the node's mount namespace, which disappear with its last process; cgroups.
//! It must not change the host's mounts. Raises the host's limit on inotify instances.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::layout::Layout;

/// The host's cgroup hierarchies (v1), or its single hierarchy (v2).
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Host-wide sysctls, with the values that the kubelet requires. The kubelet sees copies, so it doesn't change the
/// host's.
const SETTINGS: &[(&str, &str)] = &[
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// The host's inotify limit per user, and the value that a node needs: each Envoy has four instances, and all Envoys
/// run as the same user.
const INOTIFY_INSTANCES: (&str, u32) = ("/proc/sys/fs/inotify/max_user_instances", 1024);

/// Raises the host's limit on inotify instances if it is too low for a node.
fn raise_inotify_limit() -> Result<()> {
    let (path, needed) = INOTIFY_INSTANCES;
    let limit = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    if limit.trim().parse().unwrap_or(0) < needed {
        fs::write(path, needed.to_string()).with_context(|| format!("cannot raise {path}"))?;
    }
    Ok(())
}

/// Creates the node's mounts.
pub(super) fn make(layout: &Layout) -> Result<()> {
    raise_inotify_limit()?;
    let none: Option<&str> = None;
    // Stops mount propagation in both directions.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("cannot make mounts private")?;
    file_system("proc", Path::new("/proc"), None)?;
    sys()?;
    file_system("tmpfs", Path::new("/run"), Some("mode=755"))?;
    for folder in ["/run/lock", "/run/netns"] {
        fs::create_dir_all(folder)?;
    }
    for (source, target) in [(layout.lib(), "/var/lib"), (layout.logs(), "/var/log")] {
        fs::create_dir_all(&source)?;
        bind(&source, Path::new(target))?;
    }
    let copies = Path::new("/run/settings");
    for (name, value) in SETTINGS {
        let setting = Path::new("/proc/sys").join(name);
        if !setting.exists() {
            continue;
        }
        let copy = copies.join(name);
        fs::create_dir_all(copy.parent().unwrap_or(copies))?;
        fs::write(&copy, format!("{value}\n"))?;
        bind(&copy, &setting)?;
    }
    Ok(())
}

/// Mounts a `/sys` for the node's network namespace, with the host's cgroups.
fn sys() -> Result<()> {
    let keep = tempfile::tempdir()?;
    bind(Path::new(CONTROL_GROUPS), keep.path())?;
    file_system("sysfs", Path::new("/sys"), None)?;
    bind(keep.path(), Path::new(CONTROL_GROUPS))?;
    umount2(keep.path(), MntFlags::MNT_DETACH).context("cannot unmount")?;
    Ok(())
}

fn file_system(kind: &str, target: &Path, options: Option<&str>) -> Result<()> {
    mount(Some(kind), target, Some(kind), MsFlags::empty(), options)
        .with_context(|| format!("cannot mount {kind} at {}", target.display()))
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    let none: Option<&str> = None;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(source), target, none, flags, none)
        .with_context(|| format!("cannot mount {} at {}", source.display(), target.display()))
}

/// Creates the parent cgroups of pods.
pub(super) fn control_groups(layout: &Layout) -> Result<()> {
    for group in groups(&layout.cgroup())? {
        fs::create_dir_all(&group)
            .with_context(|| format!("cannot create the cgroup {}", group.display()))?;
        // In v1, a new cpuset is empty.
        let parent = group.parent().unwrap_or(&group);
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if is_v1() && group.join(file).exists() {
                fs::write(group.join(file), fs::read(parent.join(file))?)?;
            }
        }
    }
    Ok(())
}

/// Removes the cluster's cgroups recursively; returns whether all are gone. Cgroups whose processes are still exiting
/// can't be removed yet.
pub(super) fn remove_control_groups(layout: &Layout) -> Result<bool> {
    let mut gone = true;
    for group in groups(&layout.cgroup())? {
        remove(&group);
        gone &= !group.exists();
    }
    Ok(gone)
}

fn remove(group: &Path) {
    let inner = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in inner.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path());
    }
    // The caller checks whether it still exists.
    let _ = fs::remove_dir(group);
}

/// The cgroup with this name in each hierarchy.
fn groups(name: &str) -> Result<Vec<PathBuf>> {
    let root = Path::new(CONTROL_GROUPS);
    if !is_v1() {
        return Ok(vec![root.join(name)]);
    }
    let mut groups = Vec::new();
    for entry in fs::read_dir(root).context("no cgroups are mounted")? {
        let hierarchy = entry?.path();
        // Some hierarchies have a second name, which is a symbolic link.
        if !hierarchy.is_symlink() && hierarchy.join("cgroup.procs").exists() {
            groups.push(hierarchy.join(name));
        }
    }
    Ok(groups)
}

fn is_v1() -> bool {
    !Path::new(CONTROL_GROUPS)
        .join("cgroup.controllers")
        .exists()
}
