//! `cargo xtask fuzz`: feeds random input to the code that reads untrusted input, guided by coverage (libFuzzer).
//!
//! In: targets and a duration. Out: inputs that reach new code, in `target/fuzz/corpus`, which the next run continues from;
//! or an error with the input that fails, in `target/fuzz/failures`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use sesame_tools::cargo::{self, cargo};

/// Instrumentation that libFuzzer reads. Stable Rust has no option for it, but LLVM does.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// How many targets run at the same time.
const AT_ONCE: usize = 2;

/// A target of the package `sesame-fuzz`.
struct Target {
    name: &'static str,
    /// Inputs to start with: a folder in the repository.
    seeds: Option<&'static str>,
    /// The maximum length of an input, in bytes.
    length: usize,
}

const TARGETS: [Target; 6] = [
    Target::new("files", Some("tests/cases"), 16_384),
    Target::new("objects", Some("tests/cases"), 16_384),
    Target::new("pem", None, 8_192),
    Target::new("regex", None, 512),
    Target::new("xds", None, 4_096),
    Target::new("refusals", None, 1_024),
];

impl Target {
    const fn new(name: &'static str, seeds: Option<&'static str>, length: usize) -> Self {
        Self {
            name,
            seeds,
            length,
        }
    }
}

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Target: files, objects, pem, regex, xds or refusals [default: all, two at a time]
    #[arg(value_name = "TARGET", value_parser = targets())]
    target: Option<String>,
    /// Duration of each target
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
}

/// The names of all targets.
pub(crate) fn targets() -> [&'static str; TARGETS.len()] {
    TARGETS.map(|target| target.name)
}

/// Runs the targets.
pub(crate) fn run(args: &Args) -> Result<()> {
    let program = build()?;
    let chosen = |target: &&Target| {
        args.target
            .as_deref()
            .is_none_or(|name| name == target.name)
    };
    let chosen: Vec<&Target> = TARGETS.iter().filter(chosen).collect();
    chosen.chunks(AT_ONCE).try_for_each(|targets| {
        thread::scope(|scope| {
            let run = |&target| {
                let program = &program;
                scope.spawn(move || fuzz(program, target, args.seconds))
            };
            let running: Vec<_> = targets.iter().map(run).collect();
            running
                .into_iter()
                .try_for_each(|thread| thread.join().expect("the thread doesn't panic"))
        })
    })
}

/// Builds the fuzzer in a folder of its own, since all crates are instrumented.
fn build() -> Result<PathBuf> {
    let host = host()?;
    let folder = folder();
    // With a target, build scripts and macros aren't instrumented.
    let mut build = cargo(["build", "--locked", "--package", "sesame-fuzz"]);
    build.args([
        "--features",
        "libfuzzer",
        "--profile",
        "fuzz",
        "--target",
        &host,
    ]);
    build
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", &folder);
    cargo::run(build, "cannot build the fuzzer")?;
    Ok(folder.join(host).join("fuzz/sesame-fuzz"))
}

fn fuzz(program: &Path, target: &Target, seconds: u32) -> Result<()> {
    let Target { name, length, .. } = target;
    let corpus = folder().join("corpus").join(name);
    let failures = folder().join("failures");
    for folder in [&corpus, &failures] {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let log = failures.join(format!("{name}.log"));
    let output =
        fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut fuzzer = Command::new(program);
    fuzzer
        .env("SESAME_FUZZ_TARGET", name)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={length}"))
        .arg("-timeout=10")
        .arg("-rss_limit_mb=2048")
        .arg("-print_final_stats=1")
        .arg(format!("-artifact_prefix={}/{name}-", failures.display()))
        .arg(&corpus)
        .args(target.seeds.map(|seeds| cargo::root().join(seeds)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output);
    eprintln!("fuzz {name}: {seconds} s");
    let status = fuzzer.status().context("cannot run the fuzzer")?;
    let text = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    if !status.success() {
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(60)..];
        bail!(
            "{}\n\nfuzz {name} failed; the input is in {}, the log is {}",
            last.join("\n"),
            failures.display(),
            log.display()
        );
    }
    let runs = text
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    println!(
        "fuzz {name}: {} inputs, no failure",
        runs.unwrap_or("?").trim()
    );
    Ok(())
}

fn folder() -> PathBuf {
    cargo::root().join("target/fuzz")
}

/// The platform that this program was built for.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output();
    let output = output.context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .context("rustc -vV doesn't name the host")
}
