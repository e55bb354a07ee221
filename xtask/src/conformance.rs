//! `cargo xtask conformance`: runs the Gateway API's own conformance suite against Sesame in a cluster.
//!
//! In: profiles, features and tests; a cluster from `cargo xtask cluster`, created if it isn't running, or one from a
//! kubeconfig. Out: a line per finished test, a table, the suite's report, and a folder with diagnostics for failures;
//! an error if a test failed or was skipped.

mod install;
mod output;
mod run;
pub(crate) mod suite;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::run::{Done, Wanted};
use crate::deploy;
use crate::install::Channel;
use sesame_tools::cargo;
use sesame_tools::cluster::Cluster;
use sesame_tools::envoy;

/// Number of output lines to print if no test finished.
const LAST_LINES: usize = 30;

/// The profiles for gateways.
const PROFILES: [&str; 5] = [
    "GATEWAY-HTTP",
    "GATEWAY-GRPC",
    "GATEWAY-TLS",
    "GATEWAY-TCP",
    "GATEWAY-UDP",
];

/// Options of `cargo xtask conformance`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// All profiles for gateways, with the experimental channel
    #[arg(long, conflicts_with_all = ["profiles", "channel", "kubeconfig"])]
    all: bool,
    /// Conformance profiles
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PROFILE",
        default_value = PROFILES[0]
    )]
    profiles: Vec<String>,
    /// Extended features to test [default: those in the GatewayClass's status]
    #[arg(long, value_delimiter = ',', value_name = "FEATURE")]
    features: Vec<String>,
    /// Run only this test
    #[arg(long, value_name = "TEST")]
    run: Option<String>,
    /// Channel of the Gateway API to install
    #[arg(long, value_enum, default_value_t = Channel::Standard)]
    channel: Channel,
    /// Copy the suite's report to this file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Additional flag for `sesame serve`, for example `--sesame=--route-shards=always`; can be repeated
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    sesame: Vec<String>,
    /// Use this Envoy instead of the downloaded one
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Use the previous minor version of Envoy
    #[arg(long, conflicts_with = "envoy")]
    previous_envoy: bool,
    /// Keep the cluster
    #[arg(long)]
    keep: bool,
    /// Maximum number of parallel tests
    #[arg(long, value_name = "N", default_value_t = 4)]
    parallel: usize,
    /// Number of consecutive runs; all must pass
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// Name of the cluster
    #[arg(long, value_name = "CLUSTER", default_value = "conformance")]
    name: String,
    /// Use this cluster, in which the Gateway API and Sesame are already installed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "channel", "sesame", "envoy", "previous_envoy", "keep"])]
    kubeconfig: Option<PathBuf>,
    /// With --kubeconfig: an address that Gateways can request
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "kubeconfig",
        requires = "unusable_address"
    )]
    usable_address: Option<String>,
    /// With --kubeconfig: an address that Gateways cannot get
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "kubeconfig",
        requires = "usable_address"
    )]
    unusable_address: Option<String>,
    /// Arguments for the suite: -debug, -skip-tests=…, -cleanup-test-resources=false …
    #[arg(last = true, value_name = "FLAGS")]
    rest: Vec<String>,
}

impl Args {
    fn profiles(&self) -> Vec<String> {
        match self.all {
            true => PROFILES.map(str::to_owned).into(),
            false => self.profiles.clone(),
        }
    }

    fn channel(&self) -> Channel {
        match self.all {
            true => Channel::Experimental,
            false => self.channel,
        }
    }
}

/// Runs the suite.
pub(crate) fn run(args: &Args) -> Result<()> {
    let suite = suite::obtain()?;
    match &args.kubeconfig {
        Some(kubeconfig) => {
            let cluster = Cluster::find(&args.name, Some(kubeconfig))?;
            runs(args, &suite, &cluster)
        }
        None => {
            let envoy = match args.previous_envoy {
                true => Some(envoy::previous()?),
                false => args.envoy.clone(),
            };
            let channel = args.channel();
            let done =
                install::cluster(&args.name, channel, &suite, envoy.as_deref(), &args.sesame)
                    .and_then(|cluster| runs(args, &suite, &cluster));
            if args.keep {
                println!(
                    "The cluster keeps running: `cargo xtask cluster --name {} kubectl get gateways -A`",
                    args.name
                );
            } else {
                Cluster::down(&args.name)?;
            }
            done
        }
    }
}

fn runs(args: &Args, suite: &suite::Suite, cluster: &Cluster) -> Result<()> {
    let folder = folder();
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    let mut bad = Vec::new();
    for number in 1..=args.repeat {
        if args.repeat > 1 {
            println!("Run {number} of {}", args.repeat);
        }
        let folder = folder.join(number.to_string());
        let done = run::run(cluster.command(&suite.program()), &wanted(args), &folder)?;
        print!("\n{}", table::table(&done.ended, done.took));
        if let (Some(to), Some(report)) = (&args.report, &done.report) {
            fs::write(to, report).with_context(|| format!("cannot write {}", to.display()))?;
        }
        let complaints = complaints(&done, args.run.is_some())?;
        if complaints.is_empty() {
            println!("All tests passed; the output is in {}", folder.display());
        } else {
            println!("Diagnostics are in {}", folder.display());
            bad.extend(complaints);
        }
    }
    // A single test or an existing cluster doesn't exercise all permissions.
    if args.run.is_none() && args.kubeconfig.is_none() {
        let logs = [cluster.audit_log()];
        let verdict = deploy::rbac::compare(&deploy::manifests(), &logs, &[])?;
        println!("\nPermissions:\n{verdict}");
        if !verdict.suffices() {
            bad.push("Sesame made requests that the manifests do not permit".to_owned());
        }
    }
    if !bad.is_empty() {
        bail!("{}", bad.join("; "));
    }
    Ok(())
}

/// Prints the suite's report for each profile and returns the run's problems.
fn complaints(done: &Done, alone: bool) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    let bad: Vec<&str> = done.bad().map(|ended| ended.test.as_str()).collect();
    if !bad.is_empty() {
        complaints.push(format!("failed or skipped: {}", bad.join(", ")));
    }
    if done.ended.is_empty() {
        complaints.push(format!(
            "no test finished. The suite's last output:\n{}",
            last_words(&done.setup)
        ));
        return Ok(complaints);
    }
    // For a single test, the report lists all others as skipped.
    if let (Some(report), false) = (&done.report, alone) {
        let (text, bad) = table::profiles(report)?;
        print!("{text}");
        complaints.extend(bad);
    }
    if complaints.is_empty() && !done.success {
        complaints.push("the suite failed although all tests passed".to_owned());
    }
    if complaints.is_empty() && done.report.is_none() {
        complaints.push("the suite wrote no report".to_owned());
    }
    Ok(complaints)
}

/// The end of the suite's output before its cleanup.
fn last_words(setup: &str) -> String {
    let taking_down = |line: &&str| line.contains(": Deleting ");
    let lines: Vec<&str> = setup.lines().collect();
    let end = lines.iter().position(taking_down).unwrap_or(lines.len());
    lines[end.saturating_sub(LAST_LINES)..end].join("\n")
}

fn wanted(args: &Args) -> Wanted {
    let given = args
        .usable_address
        .clone()
        .zip(args.unusable_address.clone());
    let addresses = match args.kubeconfig {
        Some(_) => given,
        None => Some(install::addresses()),
    };
    Wanted {
        profiles: args.profiles(),
        features: args.features.clone(),
        test: args.run.clone(),
        parallel: args.parallel,
        addresses,
        rest: args.rest.clone(),
    }
}

/// The folder for a run's output; the next run empties it.
fn folder() -> PathBuf {
    let program = cargo::built("debug", "xtask");
    let target = Path::new(program.get_program()).ancestors().nth(2);
    target.unwrap_or(Path::new("target")).join("conformance")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::output::{Ended, Outcome};
    use super::*;

    fn done(outcomes: &[Outcome], success: bool, report: Option<&str>) -> Done {
        let ended = |(index, outcome): (usize, &Outcome)| Ended {
            test: format!("T{index}"),
            outcome: *outcome,
            provisional: false,
            took: Duration::ZERO,
            lines: String::new(),
        };
        Done {
            ended: outcomes.iter().enumerate().map(ended).collect(),
            took: Duration::ZERO,
            report: report.map(str::to_owned),
            setup: "first\nlast".to_owned(),
            success,
        }
    }

    #[test]
    fn the_last_output_precedes_the_cleanup() {
        let before: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let setup = before.join("\n") + "\n  apply.go:1: Deleting a\nmore: Deleting b\nend";
        let words = last_words(&setup);
        assert_eq!(words.lines().count(), LAST_LINES);
        assert!(
            words.starts_with("line 70\n") && words.ends_with("line 99"),
            "{words}"
        );
        assert_eq!(last_words("panic"), "panic");
    }

    const GOOD: &str = "profiles: [{name: P, core: {result: success}}]";
    const PARTIAL: &str = "profiles: [{name: P, core: {result: partial}}]";

    #[test]
    fn every_problem_fails_the_run() {
        let passed = [Outcome::Passed, Outcome::Unsupported];
        let none: [&str; 0] = [];
        assert_eq!(
            complaints(&done(&passed, true, Some(GOOD)), false).unwrap(),
            none
        );
        assert_eq!(
            complaints(&done(&passed, true, Some(PARTIAL)), true).unwrap(),
            none
        );
        for (bad, expected) in [
            (
                done(&[Outcome::Failed], false, None),
                "failed or skipped: T0",
            ),
            (
                done(&[Outcome::Skipped], true, Some(GOOD)),
                "failed or skipped: T0",
            ),
            (
                done(&[], false, None),
                "no test finished. The suite's last output:\nfirst\nlast",
            ),
            (done(&passed, true, Some(PARTIAL)), "P: core partial"),
            (
                done(&passed, false, Some(GOOD)),
                "the suite failed although all tests passed",
            ),
            (done(&passed, true, None), "the suite wrote no report"),
        ] {
            assert_eq!(complaints(&bad, false).unwrap(), [expected]);
        }
    }
}
