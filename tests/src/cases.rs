//! The files under `tests/cases`: objects, and below a line what becomes of them.
//!
//! In: a folder. Out: its cases. It must not know how objects are translated.
//!
//! A case is a file `<area>/<case>.yaml`. It opens with a comment that says what the spec demands, then come objects as
//! YAML documents, then [`MARK`], then the expected outcome. `_defaults.yaml` holds objects that all cases of its area
//! have, and the one beside the areas those that all have; neither has an outcome.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The line between objects and their outcome.
pub const MARK: &str = "# --- output ---";

/// The file whose objects all cases of its folder have.
pub const DEFAULTS: &str = "_defaults.yaml";

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its file.
    pub path: PathBuf,
    /// `area/case`.
    pub name: String,
    /// The comment at its top.
    pub header: String,
    /// Objects that it shares with others.
    pub defaults: Vec<Value>,
    /// Its own objects.
    pub objects: Vec<Value>,
    /// The text above the line.
    pub input: String,
    /// The text below the line.
    pub expected: String,
}

impl Case {
    /// All objects: the area's and its own.
    pub fn all_objects(&self) -> Vec<Value> {
        self.defaults.iter().chain(&self.objects).cloned().collect()
    }

    /// The file with this outcome.
    pub fn with_outcome(&self, outcome: &str) -> String {
        format!("{}\n{MARK}\n{outcome}", self.input.trim_end())
    }
}

/// Where the cases are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// All cases, ordered by name.
///
/// # Panics
/// If a file can't be read, or isn't YAML.
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

/// Reads one case.
///
/// # Panics
/// If the file can't be read, isn't YAML or says nothing at its top.
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
        "{}: a comment at the top must say what the spec demands",
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
