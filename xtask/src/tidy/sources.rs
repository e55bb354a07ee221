//! Text-based rules for single source files. Rules that need the compiler's view are lints.
//!
//! In: a file. Out: its problems.

use super::{Problem, Source};

/// Maximum number of lines in a Rust file, except those in [`LONG`].
const LONGEST: usize = 600;

/// Files that may be longer: path, reason.
const LONG: &[(&str, &str)] = &[];

/// Forbidden text and what to do instead. Split in two, so that it isn't found in this file.
const FORBIDDEN: &[(&str, &str)] = &[
    (
        concat!("#[", "ignore"),
        "a test that doesn't run proves nothing: fix it or delete it",
    ),
    (concat!("to", "do!("), "don't commit unfinished code"),
    (
        concat!("unimple", "mented!("),
        "don't commit unfinished code",
    ),
];

/// The crate that carries Envoy's resources.
const XDS: &str = "crates/xds/";

/// The parts of Envoy's protobuf API that the xds crate may use: the protocol and its message types, and the resources that it
/// changes for Envoys that wait or have rejected them.
const PROTOCOL: &[&str] = &[
    "pb::envoy::service::discovery::v3::",
    "pb::envoy::config::core::v3::",
    "pb::envoy::config::endpoint::v3::",
    "pb::envoy::extensions::transport_sockets::tls::v3::",
    "pb::google::",
];

pub(super) fn check(source: &Source) -> Vec<Problem> {
    if !source.is_rust() {
        return Vec::new();
    }
    let path = source.path.as_str();
    let mut problems = Vec::new();
    let length = source.text.lines().count();
    if length > LONGEST && !LONG.iter().any(|(long, _)| *long == path) {
        problems.push(Problem::file(
            path,
            format!(
                "{length} lines, but at most {LONGEST} are allowed: split it into smaller files"
            ),
        ));
    }
    let file = path.rsplit('/').next().unwrap_or_default();
    if file == "mod.rs" {
        let message = "put module `a` in the file `a.rs` beside the folder `a`";
        problems.push(Problem::file(path, message));
    }
    let is_root = file == "lib.rs" || file == "main.rs";
    if is_root && !source.text.starts_with("//!") {
        let message = "a crate begins with a `//!` comment: its inputs, its outputs, what it must not depend on";
        problems.push(Problem::line(path, 1, message));
    }
    for (number, line) in source.lines() {
        for (text, instead) in FORBIDDEN {
            if line.contains(text) {
                problems.push(Problem::line(path, number, format!("`{text}`: {instead}")));
            }
        }
        if path.starts_with(XDS) && !uses_only_fleet_ids(line) {
            problems.push(Problem::line(
                path,
                number,
                "the xds crate may use only `FleetId` from `sesame_model`",
            ));
        }
        if path.starts_with(XDS) && !names_only_the_protocol(line) {
            problems.push(Problem::line(
                path,
                number,
                format!(
                    "the xds crate may use only these parts of `envoy_types`: {}",
                    PROTOCOL.join(", ")
                ),
            ));
        }
    }
    problems
}

fn uses_only_fleet_ids(line: &str) -> bool {
    line.split("sesame_model")
        .skip(1)
        .all(|rest| rest.starts_with("::FleetId"))
}

fn names_only_the_protocol(line: &str) -> bool {
    line.split("envoy_types")
        .skip(1)
        .map(|rest| rest.strip_prefix("::").unwrap_or_default())
        .all(|rest| PROTOCOL.iter().any(|allowed| rest.starts_with(allowed)))
}

/// Finds unused exceptions.
pub(super) fn stale_exceptions(sources: &[Source]) -> Vec<Problem> {
    let needed = |path: &str| {
        let source = sources.iter().find(|source| source.path == path);
        source.is_some_and(|source| source.text.lines().count() > LONGEST)
    };
    LONG.iter()
        .filter(|(path, _)| !needed(path))
        .map(|(path, _)| {
            Problem::file(
                *path,
                "no longer a long file: remove it from the list of exceptions in tidy",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<(Option<usize>, String)> {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        super::check(&source)
            .into_iter()
            .map(|problem| (problem.line, problem.message))
            .collect()
    }

    #[track_caller]
    fn finds(path: &str, text: &str, line: Option<usize>, expected: &str) {
        let problems = check(path, text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].0, line);
        assert!(problems[0].1.contains(expected), "{problems:?}");
    }

    #[test]
    fn each_rule_finds_violations() {
        finds("a/b.rs", &"\n".repeat(601), None, "601 lines");
        finds("a/mod.rs", "", None, "beside the folder");
        finds("a/lib.rs", "mod a;\n", Some(1), "begins with");
        finds("a/main.rs", "// a\n", Some(1), "begins with");
        for (text, _) in FORBIDDEN {
            finds("a/b.rs", &format!("\n    {text}\n"), Some(2), text);
        }
    }

    #[test]
    fn xds_uses_only_the_protocol() {
        for line in [
            "use envoy_types::pb::envoy::config::route::v3::Route;",
            "use envoy_types::pb::envoy;",
            "use envoy_types;",
            "fn a(_: envoy_types::pb::google::Any, _: envoy_types::pb::envoy::config::cluster::v3::Cluster) {}",
        ] {
            finds("crates/xds/src/a.rs", line, Some(1), "may use only");
            assert_eq!(check("crates/envoy/src/a.rs", line), []);
        }
        let line = "use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;";
        assert_eq!(check("crates/xds/src/a.rs", line), []);
    }

    #[test]
    fn xds_uses_only_fleet_ids_from_the_model() {
        let line = "use sesame_model::Listener;";
        finds("crates/xds/src/a.rs", line, Some(1), "only `FleetId`");
        assert_eq!(check("crates/envoy/src/a.rs", line), []);
        let line = "let id = sesame_model::FleetId::from_uri(uri);";
        assert_eq!(check("crates/xds/src/a.rs", line), []);
    }

    #[test]
    fn good_files_have_no_problems() {
        assert_eq!(check("a/lib.rs", "//! A crate.\n"), []);
        assert_eq!(check("a/b.rs", &"\n".repeat(600)), []);
        assert_eq!(check("a/b.md", &"\n".repeat(700)), []);
    }
}
