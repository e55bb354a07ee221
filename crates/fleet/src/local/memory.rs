//! How much memory an Envoy on this machine may use.

use std::fs;

/// The heap size at which an Envoy sheds load, in bytes: half of the machine's memory or of the container's limit, whichever
/// is smaller. `None` if the machine's memory can't be read, as on systems other than Linux.
pub fn heap_limit() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let container = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let machine = machine.as_deref().and_then(total);
    // Without a limit, the file contains "max".
    let container = container.and_then(|text| text.trim().parse().ok());
    Some(machine?.min(container.unwrap_or(u64::MAX)) / 2)
}

/// `MemTotal` of `/proc/meminfo` (proc_meminfo(5)), in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_in_kibibytes() {
        let meminfo = "MemTotal:        4018264 kB\nMemFree:          191160 kB\n";
        assert_eq!(total(meminfo), Some(4_018_264 * 1024));
        assert_eq!(total("MemFree: 191160 kB\n"), None);
    }
}
