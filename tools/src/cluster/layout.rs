//! A cluster's name, paths and addresses.
//!
//! The addresses exist only in the cluster's network namespace, so all clusters use the same ones without interfering.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sesame_fleet::local::binary;

/// The node's address.
pub(crate) const NODE_ADDRESS: &str = "10.77.0.1";
/// The node's network.
pub(super) const NODE_NETWORK: &str = "10.77.0.1/24";
/// The pool for Services of type LoadBalancer, assigned in ascending order. A Service can request a specific free
/// address.
pub const LOAD_BALANCERS: &str = "10.77.1.0/24";
/// The pool for Services.
pub(super) const SERVICES: &str = "10.77.64.0/18";
/// The API server's Service: the first address of [`SERVICES`].
pub(super) const API_SERVICE: &str = "10.77.64.1";
/// The DNS Service.
pub(super) const DNS_SERVICE: &str = "10.77.64.10";
/// The pool for pods.
pub(super) const PODS: &str = "10.77.128.0/18";

/// The image that keeps a pod's namespaces open.
pub(super) const PAUSE_IMAGE: &str = "localhost/sesame/pause:1";

/// Maximum length of a cluster name, which is part of node names, cgroups and socket paths.
const LONGEST_NAME: usize = 30;

/// Folders whose contents differ on the node.
const HIDDEN: &[&str] = &["/var/lib", "/var/log", "/run", "/proc", "/sys"];

/// A cluster's name and its folder, which exists as long as the cluster does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    name: String,
    home: PathBuf,
}

impl Layout {
    /// The layout of a cluster in the cache folder.
    pub(super) fn of(name: &str) -> Result<Self> {
        let cache = binary::cache_dir().context("no cache folder: set HOME or SESAME_CACHE")?;
        Self::below(&cache.join("cluster/run"), name)
    }

    /// The layout of a cluster in the given folder of clusters.
    pub(super) fn below(shelf: &Path, name: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(
            (1..=LONGEST_NAME).contains(&name.len())
                && name.chars().all(plain)
                && !name.starts_with('-')
                && !name.ends_with('-'),
            "invalid cluster name {name:?}: use at most {LONGEST_NAME} lower-case letters, digits and inner hyphens"
        );
        if let Some(hidden) = HIDDEN.iter().find(|hidden| shelf.starts_with(hidden)) {
            anyhow::bail!(
                "cannot store clusters in {}, since {hidden} differs on the node; set SESAME_CACHE to another folder",
                shelf.display()
            );
        }
        Ok(Self {
            name: name.to_owned(),
            home: shelf.join(name),
        })
    }

    /// The name of the cluster and its node.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The folder with all its files.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// The parent cgroup of its pods.
    pub(super) fn cgroup(&self) -> String {
        format!("sesame-cluster-{}", self.name)
    }

    /// Certificates, keys and kubeconfigs.
    pub(super) fn pki(&self) -> PathBuf {
        self.home.join("pki")
    }

    /// The components' configuration files.
    pub(super) fn settings(&self) -> PathBuf {
        self.home.join("settings")
    }

    /// The components' log files.
    pub(super) fn logs(&self) -> PathBuf {
        self.home.join("log")
    }

    /// The node's `/var/lib`.
    pub(super) fn lib(&self) -> PathBuf {
        self.home.join("lib")
    }

    /// Contains a file for each stopped component.
    pub(super) fn held(&self) -> PathBuf {
        self.home.join("held")
    }

    /// The PID file of the node's init process.
    pub(super) fn first_process(&self) -> PathBuf {
        self.home.join("first-process")
    }

    /// Records the folder of its programs, since the modules may change while it is running.
    pub(super) fn built(&self) -> PathBuf {
        self.home.join("built")
    }

    /// Exists once the image archives have been imported.
    pub(super) fn images_imported(&self) -> PathBuf {
        self.home.join("images-imported")
    }

    /// The admin kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.home.join("kubeconfig")
    }

    /// The API server's audit log.
    pub(super) fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_node_names() {
        let shelf = Path::new("/cache/run");
        for good in ["sesame", "a", "a-1", &"a".repeat(30)] {
            assert_eq!(Layout::below(shelf, good).unwrap().name(), good);
        }
        for bad in ["", "A", "a b", "-a", "a-", "../a", "a.b", &"a".repeat(31)] {
            assert!(Layout::below(shelf, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn fixed_services_are_in_the_services_pool() {
        let (network, bits) = SERVICES.split_once('/').unwrap();
        assert_eq!(bits, "18");
        let number = |text: &str| u32::from(text.parse::<std::net::Ipv4Addr>().unwrap());
        assert_eq!(
            number(API_SERVICE),
            number(network) + 1,
            "required by the API server"
        );
        assert_eq!(number(DNS_SERVICE) >> 14, number(network) >> 14);
    }

    #[test]
    fn folders_that_differ_on_the_node_are_rejected() {
        let error = Layout::below(Path::new("/run/x"), "a").unwrap_err();
        assert!(error.to_string().contains("SESAME_CACHE"), "{error}");
        assert!(Layout::below(Path::new("/running/x"), "a").is_ok());
    }
}
