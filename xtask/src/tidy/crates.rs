//! The table of crates in ARCHITECTURE.md matches the workspace.
//!
//! In: ARCHITECTURE.md and the workspace members. Out: missing and unknown crates, and dependencies that the table
//! doesn't permit.
//!
//! The table is the one with a `may depend on` column. Its first column names a crate, a folder in `crates/`, in
//! backticks; `may depend on` lists crates in backticks or is `all`.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::Member;
use super::{Problem, Source};

const FILE: &str = "ARCHITECTURE.md";

const COLUMN: &str = "may depend on";

/// A row of the table.
#[derive(Debug, PartialEq)]
struct Row<'a> {
    line: usize,
    /// `None` means all.
    allowed: Option<BTreeSet<&'a str>>,
}

pub(super) fn check(sources: &[Source], members: &[Member]) -> Vec<Problem> {
    let Some(source) = sources.iter().find(|source| source.path == FILE) else {
        return vec![Problem::file(
            FILE,
            "is missing; it must list the crates and their dependencies",
        )];
    };
    let rows = match table(source) {
        Ok(rows) => rows,
        Err(problem) => return vec![problem],
    };
    let crates: BTreeMap<&str, &Member> = members
        .iter()
        .filter(|member| member.is_product())
        .map(|member| (member.name(), member))
        .collect();
    let mut problems = Vec::new();
    for (name, member) in &crates {
        let Some(row) = rows.get(name) else {
            let message = format!("the table of crates lacks `{name}` ({})", member.folder);
            problems.push(Problem::file(FILE, message));
            continue;
        };
        let Some(allowed) = &row.allowed else {
            continue;
        };
        for (other, dev) in member.workspace_dependencies() {
            if !dev && !allowed.contains(other) {
                let message =
                    format!("`{name}` depends on `{other}`, which this row doesn't permit");
                problems.push(Problem::line(FILE, row.line, message));
            }
        }
    }
    for (name, row) in &rows {
        let named = row.allowed.iter().flatten().chain([name]);
        for name in named.filter(|name| !crates.contains_key(*name)) {
            let message = format!("there is no crate `{name}`");
            problems.push(Problem::line(FILE, row.line, message));
        }
    }
    problems
}

/// The rows of the table, by crate.
fn table(source: &Source) -> Result<BTreeMap<&str, Row<'_>>, Problem> {
    let mut lines = source
        .lines()
        .map(|(number, line)| (number, cells(line)))
        .skip_while(|(_, cells)| !cells.contains(&COLUMN));
    let Some((_, header)) = lines.next() else {
        let message = format!("has no table of crates (with a column `{COLUMN}`)");
        return Err(Problem::file(FILE, message));
    };
    let column = header.iter().position(|cell| *cell == COLUMN);
    let mut rows = BTreeMap::new();
    // The first line is the separator.
    for (line, cells) in lines.skip(1).take_while(|(_, cells)| !cells.is_empty()) {
        let name = cells.first().and_then(|cell| quoted(cell).next());
        let allowed = column.and_then(|column| cells.get(column));
        let (Some(name), Some(allowed)) = (name, allowed) else {
            let message = "each row of the table of crates must name its crate in backticks and have all columns";
            return Err(Problem::line(FILE, line, message));
        };
        let row = Row {
            line,
            allowed: (*allowed != "all").then(|| quoted(allowed).collect()),
        };
        if rows.insert(name, row).is_some() {
            let message = format!("`{name}` is in the table twice");
            return Err(Problem::line(FILE, line, message));
        }
    }
    Ok(rows)
}

/// The cells of a table row; empty for other lines.
fn cells(line: &str) -> Vec<&str> {
    let inner = line
        .trim()
        .strip_prefix('|')
        .and_then(|line| line.strip_suffix('|'));
    inner.map_or_else(Vec::new, |inner| inner.split('|').map(str::trim).collect())
}

/// The parts in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::super::graph::Dependency;
    use super::*;

    fn members() -> Vec<Member> {
        let member = |name: &str, dependencies: &[(&str, bool)]| Member {
            package: format!("sesame-{name}"),
            folder: format!("crates/{name}"),
            roots: Vec::new(),
            dependencies: dependencies
                .iter()
                .map(|&(name, dev)| Dependency {
                    name: name.to_owned(),
                    dev,
                })
                .collect(),
        };
        vec![
            member("cli", &[("sesame-envoy", false), ("sesame-model", false)]),
            member(
                "envoy",
                &[
                    ("sesame-model", false),
                    ("sesame-cli", true),
                    ("serde", false),
                ],
            ),
            member("model", &[]),
        ]
    }

    fn problems(table: &str) -> Vec<(Option<usize>, String)> {
        let source = Source {
            path: FILE.to_owned(),
            text: format!("# Crates\n\n| a | b |\n|---|---|\n| x | y |\n\n{table}\ntext `here`\n"),
        };
        check(&[source], &members())
            .into_iter()
            .map(|problem| (problem.line, problem.message))
            .collect()
    }

    #[test]
    fn a_correct_table_passes() {
        let table = "| crate | what | may depend on |\n|---|---|---|\n| `model` | `x` | nothing of ours |\n\
            | `envoy` | | `model`, envoy-types |\n| `cli` | | all |\n";
        assert_eq!(problems(table), []);
    }

    #[test]
    fn missing_crates_unknown_crates_and_forbidden_dependencies_are_found() {
        let table = "| crate | may depend on |\n|---|---|\n| `model` | `store` |\n| `envoy` | |\n| `attic` | |\n";
        let expected = [
            (None, "the table of crates lacks `cli` (crates/cli)"),
            (
                Some(10),
                "`envoy` depends on `model`, which this row doesn't permit",
            ),
            (Some(11), "there is no crate `attic`"),
            (Some(9), "there is no crate `store`"),
        ];
        assert_eq!(
            problems(table),
            expected.map(|(line, message)| (line, message.to_owned()))
        );
    }

    #[test]
    fn a_file_without_the_table_is_a_problem() {
        assert!(
            problems("")
                .iter()
                .any(|(_, text)| text.contains("has no table"))
        );
        let twice = "| crate | may depend on |\n|---|---|\n| `model` | |\n| `model` | |\n";
        assert_eq!(
            problems(twice),
            [(Some(10), "`model` is in the table twice".to_owned())]
        );
        let unnamed = "| crate | may depend on |\n|---|---|\n| model | |\n";
        assert_eq!(problems(unnamed)[0].0, Some(9));
        assert_eq!(check(&[], &members()).len(), 1);
    }
}
