//! One run of the suite.
//!
//! In: the suite's program as a command in a cluster's network, what is wanted of it, a folder. Out: a line on standard output
//! for each test that ends, all that is known of them, and in the folder the whole output, the report, and for each test that
//! failed what was printed for it beside what its program has collected.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::output::{Ended, Outcome, Reader};
use super::table;

/// Where the suite's program puts what it collects of failures.
const EVIDENCE: &str = "SESAME_CONFORMANCE_EVIDENCE";

/// After this the suite gives up: it is hung.
const TIMEOUT: &str = "90m";

/// The longest line that is read, in bytes.
const LINE: u64 = 1 << 20;

/// What is wanted of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) profiles: Vec<String>,
    /// Empty: what the GatewayClass says.
    pub(crate) features: Vec<String>,
    /// One test alone.
    pub(crate) test: Option<String>,
    /// How many tests may run at the same time, of those that allow it.
    pub(crate) parallel: usize,
    /// An address that a Gateway can have, and one that it can't.
    pub(crate) addresses: Option<(String, String)>,
    /// Handed on as they are.
    pub(crate) rest: Vec<String>,
}

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) ended: Vec<Ended>,
    pub(crate) took: Duration,
    /// The suite's report, if it came so far.
    pub(crate) report: Option<String>,
    /// What was printed outside of the tests.
    pub(crate) setup: String,
    /// Whether the program itself says that all is well.
    pub(crate) success: bool,
}

impl Done {
    /// The tests that failed, or didn't run although they were to.
    pub(crate) fn bad(&self) -> impl Iterator<Item = &Ended> {
        let bad = |ended: &&Ended| matches!(ended.outcome, Outcome::Failed | Outcome::Skipped);
        self.ended.iter().filter(bad)
    }
}

/// Runs the suite to its end.
pub(crate) fn run(mut command: Command, wanted: &Wanted, folder: &Path) -> Result<Done> {
    fs::create_dir_all(folder).with_context(|| format!("can't create {}", folder.display()))?;
    // The program runs somewhere else.
    let folder = fs::canonicalize(folder)?;
    let report = folder.join("report.yaml");
    let (output, input) = std::io::pipe().context("there is no pipe to be had")?;
    command
        .args(arguments(wanted, &report))
        .env(EVIDENCE, &folder)
        .stdin(std::process::Stdio::null())
        .stdout(input.try_clone()?)
        .stderr(input);
    let since = Instant::now();
    let mut child = command.spawn().context("the suite can't be started")?;
    // With it goes our end of the pipe, which would keep the reading from ending.
    drop(command);

    let mut log = File::create(folder.join("output.log")).context("can't write the output")?;
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
    let success = child
        .wait()
        .context("the suite's end is unknown")?
        .success();
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

/// The folder of a test. Its name comes out of a stream that anything may print to.
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

    /// A program that says what the suite might say.
    fn script(text: &str) -> Command {
        let mut command = Command::new("sh");
        // The suite's flags become the script's parameters.
        command.args(["-c", text, "suite"]);
        command
    }

    #[test]
    fn a_run_leaves_everything_in_its_folder() {
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
    fn what_is_not_wanted_is_not_said() {
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
