//! Fuzz targets for untrusted input: files, objects, Secrets, regular expressions, xDS requests and Envoy's errors.
//!
//! In: bytes from libFuzzer; the environment variable `SESAME_FUZZ_TARGET` selects the target. A panic, a hang or unbounded
//! memory is a failure. `cargo xtask fuzz` builds and runs it.

#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::{LazyLock, OnceLock};

use libfuzzer_sys::fuzz_target;
use sesame_control::files::{self, FilesConfig};
use sesame_control::{Options, Sharding};
use sesame_translate::settings::{Mode, Settings};
use sesame_translate::shared::certificates::{self, SecretData};
use sesame_translate::shared::regex;

const TARGET: &str = "SESAME_FUZZ_TARGET";

/// Runs one input.
type Target = fn(&[u8]);

static SELECTED: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var(TARGET).unwrap_or_default();
    match &*name {
        "files" => |data| drop(load(data)),
        "objects" => objects,
        "pem" => pem,
        "regex" => regular_expression,
        "xds" => sesame_xds::fuzzing::requests,
        "refusals" => sesame_xds::fuzzing::refusal,
        _ => {
            eprintln!("error: unknown target {name:?} in {TARGET}");
            process::exit(2);
        }
    }
});

fuzz_target!(|data: &[u8]| SELECTED(data));

/// Reads the input as a file: JSON if it starts with a brace, YAML otherwise.
fn load(data: &[u8]) -> files::Snapshot {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary folder"));
    let name = match data.first() {
        Some(b'{') => "input.json",
        _ => "input.yaml",
    };
    let path: PathBuf = folder.path().join(name);
    fs::write(&path, data).expect("the temporary folder is writable");
    files::load(&FilesConfig::new([path]))
}

/// Translates the objects in the input, with the encoding for Envoy.
fn objects(data: &[u8]) {
    let options = Options {
        sharding: Sharding::Always,
        ..Options::default()
    };
    let settings = Settings::new(Mode::Local);
    sesame_control::translate_with(load(data).objects, settings, options);
}

/// Reads a certificate and its key, separated by a zero byte.
fn pem(data: &[u8]) {
    let (certificate, key) = match data.iter().position(|byte| *byte == 0) {
        Some(place) => (&data[..place], &data[place + 1..]),
        None => (data, data),
    };
    certificates::read(&SecretData {
        type_: "kubernetes.io/tls".into(),
        data: BTreeMap::from([
            ("tls.crt".to_owned(), certificate.into()),
            ("tls.key".to_owned(), key.into()),
        ]),
    });
}

fn regular_expression(data: &[u8]) {
    if let Ok(pattern) = std::str::from_utf8(data)
        && regex::check(pattern).is_ok()
    {
        let mut effort = u64::MAX;
        regex::Measure::of(pattern, &mut effort);
    }
}
