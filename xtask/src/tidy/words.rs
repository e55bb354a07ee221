//! The repository speaks of Sesame, and of no machine that it was written on.
//!
//! In: one file. Out: lines that name a machine's paths, a tracker's numbers or a package mirror.

use super::{Problem, Source};

/// Texts that must not be there (letter case doesn't count) and why. Written in two parts, so as not to be found here.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/tmp/br", "ief"), "a path of one machine"),
    (concat!("bash_", "jobs"), "a path of one machine"),
    (
        concat!("iss", "ue #"),
        "say what is the matter, not its number",
    ),
    (concat!("arti", "factory"), "a host of one workplace"),
    (
        concat!("files.python", "hosted.org"),
        "a host that a client should find",
    ),
    (
        concat!("index.cra", "tes.io"),
        "a host that a client should find",
    ),
];

/// Written by Cargo.
const EXEMPT: &[&str] = &["Cargo.lock"];

pub(super) fn check(source: &Source) -> Vec<Problem> {
    if EXEMPT.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (number, line) in source.lines() {
        let line = line.to_lowercase();
        for (text, why) in FORBIDDEN {
            if line.contains(text) {
                problems.push(Problem::line(
                    &source.path,
                    number,
                    format!("`{text}`: {why}"),
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<Option<usize>> {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        check(&source)
            .into_iter()
            .map(|problem| problem.line)
            .collect()
    }

    #[test]
    fn every_forbidden_text_is_found_whatever_its_case() {
        for (text, _) in FORBIDDEN {
            let upper = text.to_uppercase();
            assert_eq!(found("README.md", &format!("a\nb {upper}c")), [Some(2)]);
        }
        assert_eq!(found("README.md", "the network, a workshop, an issue"), []);
        assert_eq!(found("Cargo.lock", FORBIDDEN[0].0), []);
    }
}
