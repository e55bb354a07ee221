//! Dependency versions are only specified in the workspace's manifest.
//!
//! In: the members' manifests. Out: dependencies that aren't inherited from the workspace.

use toml::{Table, Value};

use super::{Problem, Source};

const TABLES: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

pub(super) fn check(sources: &[Source]) -> Vec<Problem> {
    sources
        .iter()
        .filter(|source| source.path.ends_with("/Cargo.toml"))
        .flat_map(check_manifest)
        .collect()
}

fn check_manifest(source: &Source) -> Vec<Problem> {
    let manifest: Table = match source.text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Problem::file(&source.path, format!("not TOML: {error}"))],
    };
    let mut problems = Vec::new();
    let by_target = manifest.get("target").and_then(Value::as_table);
    let holders = by_target
        .into_iter()
        .flat_map(|targets| targets.values().filter_map(Value::as_table))
        .chain([&manifest]);
    for holder in holders {
        let tables = TABLES
            .iter()
            .filter_map(|name| holder.get(*name)?.as_table());
        for (name, value) in tables.flatten() {
            if value.get("workspace") != Some(&Value::Boolean(true)) {
                problems.push(Problem::line(
                    &source.path,
                    line_of(source, name),
                    format!(
                        "`{name}` must be inherited from the workspace: `{name}.workspace = true`"
                    ),
                ));
            }
        }
    }
    problems
}

/// The line that declares a dependency; 1 if not found.
fn line_of(source: &Source, name: &str) -> usize {
    source
        .lines()
        .find(|(_, line)| {
            let rest = line.trim_start().trim_start_matches('"').strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '=', '.', '"']))
        })
        .map_or(1, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Option<usize>> {
        let source = Source {
            path: "crates/a/Cargo.toml".to_owned(),
            text: text.to_owned(),
        };
        check(&[source])
            .into_iter()
            .map(|problem| problem.line)
            .collect()
    }

    #[test]
    fn dependencies_with_their_own_versions_are_found() {
        assert_eq!(
            lines("[dependencies]\nab.workspace = true\na = \"1\"\n"),
            [Some(3)]
        );
        assert_eq!(
            lines("[dev-dependencies]\na = { version = \"1\", features = [] }\n"),
            [Some(2)]
        );
        assert_eq!(
            lines("[target.'cfg(unix)'.dependencies]\na = { path = \"../a\" }\n"),
            [Some(2)]
        );
        assert_eq!(lines("[dependencies\n"), [None]);
    }

    #[test]
    fn inherited_dependencies_pass() {
        let text =
            "[dependencies]\na.workspace = true\nb = { workspace = true, features = [\"c\"] }\n";
        assert_eq!(lines(text), []);
    }
}
