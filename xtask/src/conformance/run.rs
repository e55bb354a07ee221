//! One run of the suite.
//!
//! In: a command for the suite's program in a cluster's network, its options, a folder. Out: a line on standard output
//! per finished test, and all results; in the folder, the output, the report, and for each failed test its output and
//! the diagnostics collected by the program.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::output::{Ended, Outcome, Reader};
use super::table;

/// The environment variable with the diagnostics folder.
const EVIDENCE: &str = "SESAME_CONFORMANCE_EVIDENCE";

/// The suite's own timeout.
const TIMEOUT: &str = "90m";

/// Maximum length of a line, in bytes.
const LINE: u64 = 1 << 20;

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) profiles: Vec<String>,
    /// Empty means those in the GatewayClass's status.
    pub(crate) features: Vec<String>,
    /// A single test.
    pub(crate) test: Option<String>,
    /// Maximum number of parallel tests.
    pub(crate) parallel: usize,
    /// An address that Gateways can get, and one that they can't.
    pub(crate) addresses: Option<(String, String)>,
    /// Additional arguments.
    pub(crate) rest: Vec<String>,
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) ended: Vec<Ended>,
    pub(crate) took: Duration,
    /// The suite's report, if it was written.
    pub(crate) report: Option<String>,
    /// The output outside of tests.
    pub(crate) setup: String,
    /// Whether the program succeeded.
    pub(crate) success: bool,
}

impl Done {
    /// Failed and unexpectedly skipped tests.
    pub(crate) fn bad(&self) -> impl Iterator<Item = &Ended> {
        let bad = |ended: &&Ended| matches!(ended.outcome, Outcome::Failed | Outcome::Skipped);
        self.ended.iter().filter(bad)
    }
}

/// Runs the suite.
pub(crate) fn run(mut command: Command, wanted: &Wanted, folder: &Path) -> Result<Done> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // The program runs in another folder.
    let folder = fs::canonicalize(folder)?;
    let report = folder.join("report.yaml");
    let (output, input) = std::io::pipe().context("cannot create a pipe")?;
    command
        .args(arguments(wanted, &report))
        .env(EVIDENCE, &folder)
        .stdin(std::process::Stdio::null())
        .stdout(input.try_clone()?)
        .stderr(input);
    let since = Instant::now();
    let mut child = command.spawn().context("cannot start the suite")?;
    // Drops our copy of the pipe's write end, so that reading stops when the suite exits.
    drop(command);

    let mut log = File::create(folder.join("output.log")).context("cannot write the output")?;
    let mut reader = Reader::default();
    let mut lines = BufReader::new(output);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if lines.by_ref().take(LINE).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        log.write_all(&bytes)?;
        let line = String::from_utf8_lossy(&bytes);
        if let Some(ended) = reader.line(since.elapsed(), line.trim_end())
            && ended.outcome != Outcome::Unsupported
        {
            println!("{}", table::line(ended));
        }
    }
    let success = child.wait().context("cannot wait for the suite")?.success();
    let took = since.elapsed();
    let (ended, setup) = reader.finish(took, wanted.test.as_deref());
    let done = Done {
        ended,
        took,
        report: fs::read_to_string(report).ok(),
        setup,
        success,
    };
    for ended in done.bad() {
        let path = place(&folder, &ended.test);
        fs::create_dir_all(&path)?;
        fs::write(path.join("output.log"), &ended.lines)?;
    }
    fs::write(folder.join("setup.log"), &done.setup)?;
    Ok(done)
}

/// The folder for a test, whose name is untrusted output.
fn place(folder: &Path, test: &str) -> PathBuf {
    let harmless = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    };
    folder.join(test.chars().map(harmless).collect::<String>())
}

/// The suite's flags.
fn arguments(wanted: &Wanted, report: &Path) -> Vec<String> {
    let mut arguments = vec![
        "-test.run=^TestConformance$".to_owned(),
        "-test.v".to_owned(),
        format!("-test.timeout={TIMEOUT}"),
        format!("-test.parallel={}", wanted.parallel),
        "-gateway-class=sesame".to_owned(),
        format!("-conformance-profiles={}", wanted.profiles.join(",")),
        format!("-report-output={}", report.display()),
        "-organization=projectsesame".to_owned(),
        "-project=sesame".to_owned(),
        "-url=https://projectsesame.io".to_owned(),
        "-contact=https://projectsesame.io".to_owned(),
        format!("-version=v{}", env!("CARGO_PKG_VERSION")),
    ];
    if !wanted.features.is_empty() {
        arguments.push(format!("-supported-features={}", wanted.features.join(",")));
    }
    if let Some(test) = &wanted.test {
        arguments.push(format!("-run-test={test}"));
    }
    if let Some((usable, unusable)) = &wanted.addresses {
        arguments.push(format!("-usable-address={usable}"));
        arguments.push(format!("-unusable-address={unusable}"));
    }
    arguments.extend(wanted.rest.iter().cloned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that prints like the suite.
    fn script(text: &str) -> Command {
        let mut command = Command::new("sh");
        // The script receives the suite's flags as parameters.
        command.args(["-c", text, "suite"]);
        command
    }

    #[test]
    fn a_run_writes_everything_to_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"
            echo '=== RUN   TestConformance'
            echo preparing
            echo '=== RUN   TestConformance/Good'
            echo '=== RESULT {"test":"Good","result":"pass"}'
            echo '=== RUN   TestConformance/Bad'
            echo 'of Bad' >&2
            mkdir -p "$SESAME_CONFORMANCE_EVIDENCE/Bad"
            echo kept >"$SESAME_CONFORMANCE_EVIDENCE/Bad/objects.yaml"
            echo '=== RESULT {"test":"Bad","result":"fail"}'
            echo '=== RESULT {"test":"../Strange","result":"fail"}'
            for flag; do case $flag in -report-output=*) echo 'profiles: []' >"${flag#*=}" ;; esac; done
            exit 1
        "#;
        let folder = dir.path().join("run");
        let done = run(script(text), &Wanted::default(), &folder).unwrap();
        assert!(!done.success);
        assert_eq!(done.bad().count(), 2);
        assert_eq!(done.ended.len(), 3);
        assert_eq!(done.report.as_deref(), Some("profiles: []\n"));
        assert_eq!(done.setup, "preparing\n");
        let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
        assert_eq!(read("Bad/output.log"), "of Bad\n");
        assert_eq!(read("Bad/objects.yaml"), "kept\n");
        assert!(read("output.log").contains("=== RUN   TestConformance/Good"));
        assert!(!folder.join("Good").exists());
        assert!(folder.join("---Strange").exists());
    }

    #[test]
    fn missing_options_add_no_flags() {
        let report = Path::new("/r.yaml");
        let mut wanted = Wanted {
            profiles: vec!["A".to_owned(), "B".to_owned()],
            parallel: 3,
            ..Wanted::default()
        };
        let text = arguments(&wanted, report).join(" ");
        assert!(text.contains("-conformance-profiles=A,B "), "{text}");
        assert!(text.contains("-test.parallel=3 "), "{text}");
        assert!(text.contains("-report-output=/r.yaml "), "{text}");
        for absent in ["-supported-features", "-run-test", "usable-address"] {
            assert!(!text.contains(absent), "{text}");
        }
        wanted.features = vec!["Gateway".to_owned(), "HTTPRoute".to_owned()];
        wanted.test = Some("X".to_owned());
        wanted.addresses = Some(("192.0.2.1".to_owned(), "192.0.2.2".to_owned()));
        wanted.rest = vec!["-debug".to_owned()];
        let text = arguments(&wanted, report).join(" ");
        let end = "-supported-features=Gateway,HTTPRoute -run-test=X -usable-address=192.0.2.1 -unusable-address=192.0.2.2 -debug";
        assert!(text.ends_with(end), "{text}");
    }
}
