//! `cargo xtask conformance`: the Gateway API's own conformance suite, against Sesame in a cluster.
//!
//! In: which profiles, features and tests; a cluster of `cargo xtask cluster`, made for it unless it is there, or one that a
//! kubeconfig names. Out: a line for each test as it ends, a table, the suite's report, and a folder with all that is known of
//! failures; an error if anything failed or was skipped.

mod install;
mod output;
mod run;
mod suite;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::run::{Done, Wanted};
use crate::cargo;
use crate::cluster::Cluster;
use crate::deploy;
use crate::install::Channel;

/// Lines that are shown of a run in which no test came to its end.
const LAST_LINES: usize = 30;

/// Options of `cargo xtask conformance`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Profiles of the suite
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PROFILE",
        default_value = "GATEWAY-HTTP"
    )]
    profiles: Vec<String>,
    /// Features that are tested besides the profiles' core (those in the GatewayClass's status unless told)
    #[arg(long, value_delimiter = ',', value_name = "FEATURE")]
    features: Vec<String>,
    /// Run this one test
    #[arg(long, value_name = "TEST")]
    run: Option<String>,
    /// The Gateway API's channel that is installed
    #[arg(long, value_enum, default_value_t = Channel::Standard)]
    channel: Channel,
    /// Write the suite's report there, too
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// A flag for `sesame serve` beside those of the manifests, `--sesame=--route-shards=always`; may be repeated
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    sesame: Vec<String>,
    /// Leave the cluster as it is at the end
    #[arg(long)]
    keep: bool,
    /// How many tests may run at the same time, of those that allow it
    #[arg(long, value_name = "N", default_value_t = 4)]
    parallel: usize,
    /// Run it so many times, one after the other; it fails if one of them does
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// The cluster's name
    #[arg(long, value_name = "CLUSTER", default_value = "conformance")]
    name: String,
    /// Use this cluster, with the Gateway API and Sesame in it as they are
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "channel", "sesame", "keep"])]
    kubeconfig: Option<PathBuf>,
    /// With --kubeconfig: an address that a Gateway can ask for
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "kubeconfig",
        requires = "unusable_address"
    )]
    usable_address: Option<String>,
    /// With --kubeconfig: an address that no Gateway gets
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "kubeconfig",
        requires = "usable_address"
    )]
    unusable_address: Option<String>,
    /// Handed on to the suite: -debug, -skip-tests=…, -cleanup-test-resources=false …
    #[arg(last = true, value_name = "FLAGS")]
    rest: Vec<String>,
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
            let done = install::cluster(&args.name, args.channel, &suite, &args.sesame)
                .and_then(|cluster| runs(args, &suite, &cluster));
            if args.keep {
                println!(
                    "The cluster goes on: `cargo xtask cluster kubectl --name {} -- get gateways -A`",
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
        fs::remove_dir_all(&folder).with_context(|| format!("can't empty {}", folder.display()))?;
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
            fs::write(to, report).with_context(|| format!("can't write {}", to.display()))?;
        }
        let complaints = complaints(&done, args.run.is_some())?;
        if complaints.is_empty() {
            println!("All is well; the output is in {}", folder.display());
        } else {
            println!("What is known of it is in {}", folder.display());
            bad.extend(complaints);
        }
    }
    // Of one test alone, or of Sesame's rights elsewhere, nothing can be said.
    if args.run.is_none() && args.kubeconfig.is_none() {
        let logs = [cluster.audit_log()];
        let verdict = deploy::rbac::compare(&deploy::manifests(), &logs, &[])?;
        println!("\nRights under which this happened:\n{verdict}");
        if !verdict.suffices() {
            bad.push("Sesame asked for what the shipped roles don't grant".to_owned());
        }
    }
    if !bad.is_empty() {
        bail!("{}", bad.join("; "));
    }
    Ok(())
}

/// What is wrong with a run, if anything is. Shows what the suite's report says of the profiles.
fn complaints(done: &Done, alone: bool) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    let bad: Vec<&str> = done.bad().map(|ended| ended.test.as_str()).collect();
    if !bad.is_empty() {
        complaints.push(format!("failed or skipped: {}", bad.join(", ")));
    }
    if done.ended.is_empty() {
        complaints.push(format!(
            "no test ended. At last the suite said:\n{}",
            last_words(&done.setup)
        ));
        return Ok(complaints);
    }
    // Of one test alone the report says that the others were skipped.
    if let (Some(report), false) = (&done.report, alone) {
        let (text, bad) = table::profiles(report)?;
        print!("{text}");
        complaints.extend(bad);
    }
    if complaints.is_empty() && !done.success {
        complaints.push("the suite says that it failed, though all tests passed".to_owned());
    }
    if complaints.is_empty() && done.report.is_none() {
        complaints.push("the suite wrote no report".to_owned());
    }
    Ok(complaints)
}

/// What the suite said before it began to take everything down.
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
        profiles: args.profiles.clone(),
        features: args.features.clone(),
        test: args.run.clone(),
        parallel: args.parallel,
        addresses,
        rest: args.rest.clone(),
    }
}

/// Where runs leave what is known of them; emptied by the next.
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
    fn last_words_come_before_the_taking_down() {
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
    fn all_must_be_well() {
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
                "no test ended. At last the suite said:\nfirst\nlast",
            ),
            (done(&passed, true, Some(PARTIAL)), "P: core partial"),
            (
                done(&passed, false, Some(GOOD)),
                "the suite says that it failed, though all tests passed",
            ),
            (done(&passed, true, None), "the suite wrote no report"),
        ] {
            assert_eq!(complaints(&bad, false).unwrap(), [expected]);
        }
    }
}
