//! What a cluster is called, where its files lie, and its addresses.
//!
//! In: a name. Out: paths and addresses. All addresses exist in the cluster's own network alone, so that they are the same for
//! every cluster, and clusters beside each other don't meet.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sesame_fleet::local::binary;

/// The node.
pub(crate) const NODE_ADDRESS: &str = "10.77.0.1";
/// The node's network.
pub(super) const NODE_NETWORK: &str = "10.77.0.1/24";
/// What Services of type LoadBalancer get, from the lowest. One that asks for an address gets it, if it is free.
pub(crate) const LOAD_BALANCERS: &str = "10.77.1.0/24";
/// What Services get.
pub(super) const SERVICES: &str = "10.77.64.0/18";
/// The first address of [`SERVICES`] is the API server's.
pub(super) const API_SERVICE: &str = "10.77.64.1";
/// The Service by which pods look names up.
pub(super) const DNS_SERVICE: &str = "10.77.64.10";
/// What pods get.
pub(super) const PODS: &str = "10.77.128.0/18";

/// What holds a pod's namespaces open.
pub(super) const PAUSE_IMAGE: &str = "localhost/sesame/pause:1";

/// The longest name. Nodes and cgroups are called by it, and sockets lie below it.
const LONGEST_NAME: usize = 30;

/// Folders that the node sees something else in.
const HIDDEN: &[&str] = &["/var/lib", "/var/log", "/run", "/proc", "/sys"];

/// A cluster's name and its folder, which lives as long as the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    name: String,
    home: PathBuf,
}

impl Layout {
    /// Of the cluster of a name, in the cache folder.
    pub(super) fn of(name: &str) -> Result<Self> {
        let cache =
            binary::cache_dir().context("there is no cache folder: set HOME or SESAME_CACHE")?;
        Self::below(&cache.join("cluster/run"), name)
    }

    /// Of the cluster of a name in a folder of clusters.
    pub(super) fn below(shelf: &Path, name: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(
            (1..=LONGEST_NAME).contains(&name.len())
                && name.chars().all(plain)
                && !name.starts_with('-')
                && !name.ends_with('-'),
            "a cluster can't be called {name:?}: at most {LONGEST_NAME} small letters, digits and hyphens inside of it"
        );
        if let Some(hidden) = HIDDEN.iter().find(|hidden| shelf.starts_with(hidden)) {
            anyhow::bail!(
                "clusters can't be kept in {}: a node sees other files in {hidden}; set SESAME_CACHE to another folder",
                shelf.display()
            );
        }
        Ok(Self {
            name: name.to_owned(),
            home: shelf.join(name),
        })
    }

    /// The name, which is the node's too.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The folder of all its files.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// The control group of its pods, below the root of each hierarchy.
    pub(super) fn cgroup(&self) -> String {
        format!("sesame-cluster-{}", self.name)
    }

    /// Certificates, keys and kubeconfigs.
    pub(super) fn pki(&self) -> PathBuf {
        self.home.join("pki")
    }

    /// The components' settings.
    pub(super) fn settings(&self) -> PathBuf {
        self.home.join("settings")
    }

    /// A log for each component.
    pub(super) fn logs(&self) -> PathBuf {
        self.home.join("log")
    }

    /// What the node has in `/var/lib`.
    pub(super) fn lib(&self) -> PathBuf {
        self.home.join("lib")
    }

    /// A file here keeps the component of its name from running.
    pub(super) fn held(&self) -> PathBuf {
        self.home.join("held")
    }

    /// Which process is the node's first.
    pub(super) fn first_process(&self) -> PathBuf {
        self.home.join("first-process")
    }

    /// Where what it runs was built: modules may change while it does.
    pub(super) fn built(&self) -> PathBuf {
        self.home.join("built")
    }

    /// There when the archives of images have been imported.
    pub(super) fn images_imported(&self) -> PathBuf {
        self.home.join("images-imported")
    }

    /// For people: all rights.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.home.join("kubeconfig")
    }

    /// What was asked of the API server by whom.
    pub(super) fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_a_node_can_be_called() {
        let shelf = Path::new("/cache/run");
        for good in ["sesame", "a", "a-1", &"a".repeat(30)] {
            assert_eq!(Layout::below(shelf, good).unwrap().name(), good);
        }
        for bad in ["", "A", "a b", "-a", "a-", "../a", "a.b", &"a".repeat(31)] {
            assert!(Layout::below(shelf, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn services_of_ours_have_addresses_of_services() {
        let (network, bits) = SERVICES.split_once('/').unwrap();
        assert_eq!(bits, "18");
        let number = |text: &str| u32::from(text.parse::<std::net::Ipv4Addr>().unwrap());
        assert_eq!(
            number(API_SERVICE),
            number(network) + 1,
            "the API server insists on it"
        );
        assert_eq!(number(DNS_SERVICE) >> 14, number(network) >> 14);
    }

    #[test]
    fn a_folder_that_the_node_can_not_see_is_refused() {
        let error = Layout::below(Path::new("/run/x"), "a").unwrap_err();
        assert!(error.to_string().contains("SESAME_CACHE"), "{error}");
        assert!(Layout::below(Path::new("/running/x"), "a").is_ok());
    }
}
