//! A cluster for the suite.
//!
//! In: a cluster's name, a Gateway API channel, the suite's backend. Out: a cluster in which Sesame is ready, with the
//! manifests' permissions.

use std::path::Path;

use anyhow::Result;

use super::suite::Suite;
use crate::install::{self, Channel};
use sesame_tools::cluster::{self, Cluster};
use sesame_tools::image;

/// Parameters for Envoys.
const PARAMETERS: &str = include_str!("parameters.yaml");

/// An address from the cluster's pool that is assigned only on request, and one outside the pool.
pub(crate) fn addresses() -> (String, String) {
    let pool = cluster::LOAD_BALANCERS;
    let network = pool.rsplit_once('.').map_or(pool, |(network, _)| network);
    (format!("{network}.200"), "203.0.113.1".to_owned())
}

/// Starts the cluster and installs everything. `envoy` is an executable, if not the downloaded one; `flags` are passed to
/// `sesame serve`.
pub(crate) fn cluster(
    name: &str,
    channel: Channel,
    suite: &Suite,
    envoy: Option<&Path>,
    flags: &[String],
) -> Result<Cluster> {
    // Build first: a running cluster uses half of the CPU time.
    let mut archives = install::archives(envoy)?;
    archives.push(image::store("echo-basic", &suite.backend()?)?);
    let cluster = Cluster::up(name)?;
    cluster.load(&archives)?;
    install::gateway_api(&cluster, channel)?;
    install::manifests(&cluster)?;
    install::flags(&cluster, flags)?;
    // Use a separate field manager, so that applying the manifests again keeps the parameters.
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=conformance",
        "-f",
        "-",
    ];
    install::kubectl_fed(&cluster, &apply, PARAMETERS)?;
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usable_address_is_in_the_pool() {
        let (usable, unusable) = addresses();
        let (network, _) = cluster::LOAD_BALANCERS.rsplit_once('.').unwrap();
        assert!(usable.starts_with(network), "{usable}");
        assert!(!unusable.starts_with(network), "{unusable}");
        assert!(usable.parse::<std::net::Ipv4Addr>().is_ok());
    }
}
