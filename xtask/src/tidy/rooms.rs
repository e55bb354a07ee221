//! ARCHITECTURE.md shows the rooms that there are, and their arrows.
//!
//! In: the file and the members. Out: rooms that one has and the other hasn't, and arrows that the file doesn't permit.
//!
//! The table of rooms is the one with a column `may know`. Its first column names a room, a folder of `crates/`, in
//! backticks; `may know` names in backticks the rooms that it may depend on, or says `all`.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::Member;
use super::{Problem, Source};

const FILE: &str = "ARCHITECTURE.md";

const COLUMN: &str = "may know";

/// A row of the table.
#[derive(Debug, PartialEq)]
struct Row<'a> {
    line: usize,
    /// `None`: all.
    may_know: Option<BTreeSet<&'a str>>,
}

pub(super) fn check(sources: &[Source], members: &[Member]) -> Vec<Problem> {
    let Some(source) = sources.iter().find(|source| source.path == FILE) else {
        return vec![Problem::file(
            FILE,
            "is missing: it shows the rooms and their arrows",
        )];
    };
    let rows = match table(source) {
        Ok(rows) => rows,
        Err(problem) => return vec![problem],
    };
    let rooms: BTreeMap<&str, &Member> = members
        .iter()
        .filter(|member| member.is_room())
        .map(|member| (member.room(), member))
        .collect();
    let mut problems = Vec::new();
    for (room, member) in &rooms {
        let Some(row) = rows.get(room) else {
            let message = format!("the table of rooms lacks `{room}` ({})", member.folder);
            problems.push(Problem::file(FILE, message));
            continue;
        };
        let Some(may_know) = &row.may_know else {
            continue;
        };
        for (other, dev) in member.rooms() {
            if !dev && !may_know.contains(other) {
                let message =
                    format!("`{room}` depends on `{other}`, which this row doesn't permit");
                problems.push(Problem::line(FILE, row.line, message));
            }
        }
    }
    for (name, row) in &rows {
        let known = row.may_know.iter().flatten();
        for name in known
            .chain([name])
            .filter(|name| !rooms.contains_key(*name))
        {
            let message = format!("there is no room `{name}`");
            problems.push(Problem::line(FILE, row.line, message));
        }
    }
    problems
}

/// The table of rooms, by room.
fn table(source: &Source) -> Result<BTreeMap<&str, Row<'_>>, Problem> {
    let mut lines = source
        .lines()
        .map(|(number, line)| (number, cells(line)))
        .skip_while(|(_, cells)| !cells.contains(&COLUMN));
    let Some((_, header)) = lines.next() else {
        let message = format!("has no table of rooms (with a column `{COLUMN}`)");
        return Err(Problem::file(FILE, message));
    };
    let column = header.iter().position(|cell| *cell == COLUMN);
    let mut rows = BTreeMap::new();
    // The line behind the header only draws.
    for (line, cells) in lines.skip(1).take_while(|(_, cells)| !cells.is_empty()) {
        let room = cells.first().and_then(|cell| quoted(cell).next());
        let may_know = column.and_then(|column| cells.get(column));
        let (Some(room), Some(may_know)) = (room, may_know) else {
            let message =
                "a row of the table of rooms names its room in backticks and has all columns";
            return Err(Problem::line(FILE, line, message));
        };
        let row = Row {
            line,
            may_know: (*may_know != "all").then(|| quoted(may_know).collect()),
        };
        if rows.insert(room, row).is_some() {
            let message = format!("`{room}` is in the table twice");
            return Err(Problem::line(FILE, line, message));
        }
    }
    Ok(rows)
}

/// The cells of a table's line; none if it isn't one.
fn cells(line: &str) -> Vec<&str> {
    let inner = line
        .trim()
        .strip_prefix('|')
        .and_then(|line| line.strip_suffix('|'));
    inner.map_or_else(Vec::new, |inner| inner.split('|').map(str::trim).collect())
}

/// What stands in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::super::graph::Dependency;
    use super::*;

    fn members() -> Vec<Member> {
        let member = |room: &str, dependencies: &[(&str, bool)]| Member {
            package: format!("sesame-{room}"),
            folder: format!("crates/{room}"),
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
            text: format!("# Rooms\n\n| a | b |\n|---|---|\n| x | y |\n\n{table}\ntext `here`\n"),
        };
        check(&[source], &members())
            .into_iter()
            .map(|problem| (problem.line, problem.message))
            .collect()
    }

    #[test]
    fn a_true_table_is_well() {
        let table = "| room | what | may know |\n|---|---|---|\n| `model` | `x` | nothing of ours |\n\
            | `envoy` | | `model`, envoy-types |\n| `cli` | | all |\n";
        assert_eq!(problems(table), []);
    }

    #[test]
    fn missing_and_invented_rooms_and_arrows_are_found() {
        let table =
            "| room | may know |\n|---|---|\n| `model` | `store` |\n| `envoy` | |\n| `attic` | |\n";
        let expected = [
            (None, "the table of rooms lacks `cli` (crates/cli)"),
            (
                Some(10),
                "`envoy` depends on `model`, which this row doesn't permit",
            ),
            (Some(11), "there is no room `attic`"),
            (Some(9), "there is no room `store`"),
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
        let twice = "| room | may know |\n|---|---|\n| `model` | |\n| `model` | |\n";
        assert_eq!(
            problems(twice),
            [(Some(10), "`model` is in the table twice".to_owned())]
        );
        let unnamed = "| room | may know |\n|---|---|\n| model | |\n";
        assert_eq!(problems(unnamed)[0].0, Some(9));
        assert_eq!(check(&[], &members()).len(), 1);
    }
}
