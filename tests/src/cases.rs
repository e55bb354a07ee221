//! The files under `tests/cases`: objects and their expected outcome.
//!
//! A case is a file `<area>/<case>.yaml`. It starts with a comment that states the spec's requirement, followed by
//! objects as YAML documents, [`MARK`], and the expected outcome. `_defaults.yaml` contains the objects shared by all
//! cases of its area; the one in the parent folder contains those shared by all cases. Neither has an outcome.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The line between objects and outcome.
pub const MARK: &str = "# --- output ---";

/// The file with the objects shared by all cases in its folder.
pub const DEFAULTS: &str = "_defaults.yaml";

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The file.
    pub path: PathBuf,
    /// `area/case`.
    pub name: String,
    /// The comment at the top.
    pub header: String,
    /// Shared objects.
    pub defaults: Vec<Value>,
    /// The case's own objects.
    pub objects: Vec<Value>,
    /// The text before [`MARK`].
    pub input: String,
    /// The text after [`MARK`].
    pub expected: String,
}

impl Case {
    /// All objects: shared ones first, then the case's own.
    pub fn all_objects(&self) -> Vec<Value> {
        self.defaults.iter().chain(&self.objects).cloned().collect()
    }

    /// The text of the file with this outcome.
    pub fn with_outcome(&self, outcome: &str) -> String {
        format!("{}\n{MARK}\n{outcome}", self.input.trim_end())
    }
}

/// The folder of cases.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// All cases, sorted by name.
///
/// # Panics
/// If a file can't be read or isn't YAML.
pub fn all() -> Vec<Case> {
    let everywhere = defaults(&folder());
    let mut cases = Vec::new();
    for area in entries(&folder()) {
        if !area.is_dir() {
            continue;
        }
        let defaults = [everywhere.clone(), defaults(&area)].concat();
        for path in entries(&area) {
            let file = file_name(&path);
            if file != DEFAULTS {
                let name = format!("{}/{}", file_name(&area), file.trim_end_matches(".yaml"));
                cases.push(read(path, name, defaults.clone()));
            }
        }
    }
    cases
}

fn defaults(folder: &Path) -> Vec<Value> {
    let path = folder.join(DEFAULTS);
    match path.exists() {
        true => documents(&path, &text(&path)),
        false => Vec::new(),
    }
}

/// Reads a case.
///
/// # Panics
/// If the file can't be read, isn't YAML or doesn't start with a comment.
pub fn read(path: PathBuf, name: String, defaults: Vec<Value>) -> Case {
    let text = text(&path);
    let (input, expected) = match text.split_once(&format!("\n{MARK}\n")) {
        Some((input, expected)) => (input.to_owned(), expected.to_owned()),
        None => (text, String::new()),
    };
    let header: Vec<&str> = input
        .lines()
        .map_while(|line| line.strip_prefix('#'))
        .map(str::trim)
        .collect();
    assert!(
        !header.is_empty(),
        "{}: a comment at the top must state the spec's requirement",
        path.display()
    );
    Case {
        objects: documents(&path, &input),
        header: header.join(" "),
        path,
        name,
        defaults,
        input,
        expected,
    }
}

fn documents(path: &Path, text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    documents
        .into_iter()
        .filter(|value| !value.is_null())
        .collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry of the folder").path())
        .collect();
    paths.sort();
    paths
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().expect("a file of a folder has a name");
    name.to_string_lossy().into_owned()
}
