//! A cluster with the Gateway API and Sesame in it, as a user would install them.
//!
//! In: a cluster's name, a channel of the Gateway API, the suite's backend. Out: a cluster in which Sesame is ready, under the
//! rights that its manifests give it.

use anyhow::Result;

use super::suite::Suite;
use crate::cluster::{self, Cluster};
use crate::image;
use crate::install::{self, Channel};

/// What is chosen about Envoys.
const PARAMETERS: &str = include_str!("parameters.yaml");

/// An address of the cluster's pool that is handed out to those only that ask for it, and one that is outside of the pool.
pub(crate) fn addresses() -> (String, String) {
    let pool = cluster::LOAD_BALANCERS;
    let network = pool.rsplit_once('.').map_or(pool, |(network, _)| network);
    (format!("{network}.200"), "203.0.113.1".to_owned())
}

/// The cluster, with everything in it. `flags` are for `sesame serve`.
pub(crate) fn cluster(
    name: &str,
    channel: Channel,
    suite: &Suite,
    flags: &[String],
) -> Result<Cluster> {
    // Built before the cluster is there, which takes half of the processor by itself.
    let mut archives = install::archives()?;
    archives.push(image::store("echo-basic", &suite.backend()?)?);
    let cluster = Cluster::up(name)?;
    cluster.load(&archives)?;
    install::gateway_api(&cluster, channel)?;
    install::manifests(&cluster)?;
    install::flags(&cluster, flags)?;
    // Under a name of its own, so that applying the manifests again takes nothing of it away.
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
    fn the_usable_address_is_of_the_pool() {
        let (usable, unusable) = addresses();
        let (network, _) = cluster::LOAD_BALANCERS.rsplit_once('.').unwrap();
        assert!(usable.starts_with(network), "{usable}");
        assert!(!unusable.starts_with(network), "{unusable}");
        assert!(usable.parse::<std::net::Ipv4Addr>().is_ok());
    }
}
