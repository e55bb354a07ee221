//! A cluster with the Gateway API and Sesame in it, as a user would install them.
//!
//! In: a cluster's name, a channel of the Gateway API, the suite's backend. Out: a cluster in which Sesame is ready, under the
//! rights that its manifests give it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::suite::Suite;
use crate::cluster::{self, Cluster};
use crate::deploy;
use crate::image;
use crate::progress::Step;
use crate::wheel::last_lines;

/// Where the manifests put Sesame, and how they call it.
const NAMESPACE: &str = "sesame-system";
const DEPLOYMENT: &str = "deployment/sesame";

/// How long Sesame may take until it is ready, for kubectl.
const READY: &str = "--timeout=180s";

/// A channel of the Gateway API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Channel {
    /// What is stable.
    Standard,
    /// With what is being tried.
    Experimental,
}

impl Channel {
    /// As the folder of its definitions is called.
    fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Experimental => "experimental",
        }
    }
}

/// An address of the cluster's pool that is handed out to those only that ask for it, and one that is outside of the pool.
pub(crate) fn addresses() -> (String, String) {
    let pool = cluster::LOAD_BALANCERS;
    let network = pool.rsplit_once('.').map_or(pool, |(network, _)| network);
    (format!("{network}.200"), "203.0.113.1".to_owned())
}

/// The cluster, with everything in it.
pub(crate) fn cluster(name: &str, channel: Channel, suite: &Suite) -> Result<Cluster> {
    // Built before the cluster is there, which takes half of the processor by itself.
    let archives = [
        image::store("sesame", &image::sesame(image::Profile::Release)?)?,
        image::store("envoy", &image::envoy(None)?)?,
        image::store("echo-basic", &suite.backend()?)?,
    ];
    let cluster = Cluster::up(name)?;
    cluster.load(&archives)?;

    let step = Step::new(format!(
        "Installing the Gateway API, {} channel",
        channel.name()
    ));
    let definitions = cluster::definitions()?.join(channel.name());
    apply(&cluster, &definitions)?;
    kubectl(
        &cluster,
        &[
            "wait",
            "--for=condition=Established",
            "crd",
            "--all",
            "--timeout=60s",
        ],
    )?;
    step.done();

    let step = Step::new("Installing Sesame");
    // One that is there already runs what the image was before.
    let before = kubectl(
        &cluster,
        &[
            "-n",
            NAMESPACE,
            "get",
            DEPLOYMENT,
            "--ignore-not-found",
            "-o",
            "name",
        ],
    )?;
    apply(&cluster, &deploy::manifests())?;
    if !before.is_empty() {
        kubectl(
            &cluster,
            &["-n", NAMESPACE, "rollout", "restart", DEPLOYMENT],
        )?;
    }
    let ready = kubectl(
        &cluster,
        &["-n", NAMESPACE, "rollout", "status", DEPLOYMENT, READY],
    )
    .and_then(|_| {
        let accepted = [
            "wait",
            "--for=condition=Accepted",
            "gatewayclass/sesame",
            "--timeout=60s",
        ];
        kubectl(&cluster, &accepted)
    });
    if let Err(error) = ready {
        bail!(
            "Sesame doesn't become ready: {error:#}\n{}",
            state(&cluster)
        );
    }
    step.done();
    Ok(cluster)
}

fn apply(cluster: &Cluster, what: &Path) -> Result<String> {
    let what = what.to_str().context("a path is not UTF-8")?;
    kubectl(
        cluster,
        &["apply", "--server-side", "--force-conflicts", "-f", what],
    )
}

/// What kubectl prints.
fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<String> {
    let mut command: Command = cluster.kubectl();
    let output = command
        .args(args)
        .output()
        .context("kubectl can't be run")?;
    if !output.status.success() {
        bail!(
            "`kubectl {}` failed: {}",
            args.join(" "),
            last_lines(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What stands in Sesame's namespace and what it said last, for somebody who must find out why.
fn state(cluster: &Cluster) -> String {
    let questions: [&[&str]; 3] = [
        &["-n", NAMESPACE, "get", "pods", "-o", "wide"],
        &["-n", NAMESPACE, "get", "events"],
        &[
            "-n",
            NAMESPACE,
            "logs",
            DEPLOYMENT,
            "--tail=20",
            "--all-pods=true",
        ],
    ];
    let answers = questions
        .map(|question| kubectl(cluster, question).unwrap_or_else(|error| format!("{error:#}")));
    answers.join("\n\n")
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
