//! `cargo xtask nightly`: the checks that take too long for every change, one after the other.
//!
//! In: names of checks. Out: a line for each of their commands; an error if one failed.

use std::time::Instant;

use anyhow::{Result, ensure};
use clap::{Parser as _, ValueEnum as _};

use crate::{Command, fuzz};

/// The number of changes of a SesameConfiguration.
const CHANGES: &str = "500";
/// The number of random sets of objects that real Envoys get.
const SETS: &str = "20000";

/// Options of `cargo xtask nightly`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only this check; can be repeated
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Check>,
    /// Duration of each fuzz target
    #[arg(long, value_name = "N", default_value_t = 3600)]
    fuzz_seconds: u32,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Check {
    /// Hundreds of changes of a SesameConfiguration under load
    Configuration,
    /// All conformance profiles with the previous version of Envoy
    Conformance,
    /// Hostile tenants, clients and Envoys
    Hostile,
    /// The memory of 100 copies of hostile objects
    Copies,
    /// Thousands of random sets of objects for real Envoys
    Sets,
    /// Every fuzz target
    Fuzz,
}

/// Runs the checks.
pub(crate) fn run(args: &Args) -> Result<()> {
    let checks = match args.only.as_slice() {
        [] => Check::value_variants(),
        only => only,
    };
    let (mut lines, mut failed) = (Vec::new(), 0);
    for check in checks {
        for command in check.commands(args.fuzz_seconds) {
            let name = command.join(" ");
            eprintln!("nightly: {name}");
            let begun = Instant::now();
            let outcome = parsed(&command).and_then(|command| command.run());
            let took = begun.elapsed().as_secs();
            lines.push(match outcome {
                Ok(()) => format!("ok      {name} ({took} s)"),
                Err(error) => {
                    failed += 1;
                    format!("FAILED  {name} ({took} s): {error:#}")
                }
            });
        }
    }
    // At the end, since the commands print a lot.
    println!("{}", lines.join("\n"));
    ensure!(failed == 0, "{failed} of {} checks failed", lines.len());
    Ok(())
}

/// Parses the arguments of `cargo xtask`.
fn parsed(command: &[String]) -> Result<Command> {
    let program = "cargo xtask".to_owned();
    Ok(Command::try_parse_from(
        [&program].into_iter().chain(command),
    )?)
}

impl Check {
    /// Its commands: the arguments of `cargo xtask`.
    fn commands(self, fuzz_seconds: u32) -> Vec<Vec<String>> {
        let words = |words: &[&str]| -> Vec<String> {
            words.iter().map(|word| (*word).to_owned()).collect()
        };
        // Runs one test target of the package with tests of the whole.
        let test = |options: &[&str], target| {
            let target = ["--", "-p", "sesame-tests", "--test", target];
            words(&[&["test"], options, &target].concat())
        };
        match self {
            Self::Configuration => vec![words(&["e2e", "--changes", CHANGES, "configuration"])],
            Self::Conformance => vec![words(&["conformance", "--all", "--previous-envoy"])],
            Self::Hostile => vec![words(&["e2e", "hostile"])],
            Self::Copies => vec![test(&["--hostile="], "hostile")],
            Self::Sets => vec![test(&["--cases", SETS], "envoy_accepts")],
            Self::Fuzz => {
                let seconds = fuzz_seconds.to_string();
                let target = |name| words(&["fuzz", name, "--seconds", seconds.as_str()]);
                fuzz::targets().map(target).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_commands_are_valid() {
        for check in Check::value_variants() {
            let commands = check.commands(60);
            assert!(!commands.is_empty());
            for command in commands {
                if let Err(error) = parsed(&command) {
                    panic!("{command:?}: {error}");
                }
            }
        }
    }
}
