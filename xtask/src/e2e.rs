//! `cargo xtask e2e`: Sesame in a cluster from its installation to its removal, while requests are made all the time.
//!
//! In: which tests. Out: a line of figures for each, and what is known of those that failed. The cluster is made for it, and
//! goes at the end.

mod drift;
mod envoys;
mod installs;
mod load;
mod network;
mod outage;
mod parameters;
mod replicas;
mod scene;
mod shop;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::ValueEnum as _;

use self::scene::Scene;
use crate::cluster::Cluster;
use crate::deploy;
use crate::install::{self, Channel};

/// Options of `cargo xtask e2e`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which tests (all unless told, in this order)
    #[arg(value_enum, value_name = "TEST")]
    tests: Vec<Test>,
    /// For how long the API server is away, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    outage: u64,
    /// Leave the cluster as it is at the end
    #[arg(long)]
    keep: bool,
    /// The cluster's name
    #[arg(long, value_name = "CLUSTER", default_value = "e2e")]
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Test {
    /// Installed by the chart, used, removed: nothing is left
    Helm,
    /// Installed by the manifests, used, removed: nothing is left
    Manifests,
    /// What owners choose: labels, kinds of workloads and Services, and slips
    Parameters,
    /// What somebody edits or deletes is put back
    Drift,
    /// Envoys are replaced, and become more and fewer
    Envoys,
    /// The leader is killed in the middle of changes
    Leader,
    /// Sesame is replaced in the middle of changes
    Rollout,
    /// Another version of Sesame comes and goes, and the Envoys with it
    Upgrade,
    /// The API server is away
    Outage,
    /// What Sesame was allowed and what it did
    Rights,
}

/// Runs the tests.
pub(crate) fn run(args: &Args) -> Result<()> {
    let archives = install::archives()?;
    let cluster = Cluster::up(&args.name)?;
    let done = cluster
        .load(&archives)
        .and_then(|()| install::gateway_api(&cluster, Channel::Standard))
        .and_then(|()| Scene::new(cluster, Duration::from_secs(args.outage)))
        .and_then(|scene| all(args, &scene));
    if args.keep {
        println!(
            "The cluster goes on: `cargo xtask cluster --name {} kubectl get gateways -A`",
            args.name
        );
    } else {
        Cluster::down(&args.name)?;
    }
    done
}

fn all(args: &Args, scene: &Scene) -> Result<()> {
    let tests = match args.tests.as_slice() {
        [] => Test::value_variants(),
        tests => tests,
    };
    installs::renew(scene)?;
    let mut failed = Vec::new();
    for test in tests {
        let name = test.name();
        let begun = Instant::now();
        let outcome = test.run(scene, args.tests.is_empty());
        let took = begun.elapsed().as_secs_f32();
        match outcome {
            Ok(figures) => println!("ok      {name} ({took:.0} s): {figures}"),
            Err(error) => {
                println!("FAILED  {name} ({took:.0} s): {error:#}");
                eprintln!("{}", known(scene));
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

impl Test {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn run(self, scene: &Scene, all: bool) -> Result<String> {
        match self {
            Self::Helm => return installs::helm(scene),
            Self::Manifests => return installs::manifests(scene),
            Self::Rights => return rights(scene, all),
            _ => installs::ensure_installed(scene)?,
        }
        match self {
            Self::Helm | Self::Manifests | Self::Rights => bail!("this has run"),
            Self::Parameters => parameters::chosen(scene),
            Self::Drift => drift::drift(scene),
            Self::Envoys => envoys::envoys(scene),
            Self::Leader => replicas::leader(scene),
            Self::Rollout => replicas::rollout(scene),
            Self::Upgrade => replicas::upgrade(scene),
            Self::Outage => outage::outage(scene),
        }
    }
}

/// What Sesame was allowed and what it did, in all tests before. After all tests there is no right that was not used.
fn rights(scene: &Scene, all: bool) -> Result<String> {
    let verdict = deploy::rbac::compare(&deploy::manifests(), &[scene.cluster.audit_log()], &[])?;
    let good = match all {
        true => verdict.fits(),
        false => verdict.suffices(),
    };
    ensure!(good, "{verdict}");
    Ok(verdict.to_string())
}

/// What a failure may be due to.
fn known(scene: &Scene) -> String {
    let questions: [&[&str]; 2] = [
        &["gateways,httproutes,deployments,daemonsets,services,pods"],
        &["events", "--field-selector", "type=Warning"],
    ];
    let answers = questions.map(|question| {
        let get = ["-n", shop::NAMESPACE, "get"];
        let answer = scene.kubectl(&[&get, question].concat());
        answer.unwrap_or_else(|error| format!("{error:#}"))
    });
    format!("{}\n{}", answers.join("\n"), install::state(&scene.cluster))
}
