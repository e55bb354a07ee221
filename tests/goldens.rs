//! Cases: objects in; statuses and Envoy resources out.
//!
//! `SESAME_UPDATE=1 cargo test -p sesame-tests --test goldens` writes the outcomes to the files. Review the diff, and
//! compare it with the comment at the top of each file.

use std::fs;

use sesame_tests::cases::{self, Case};
use sesame_tests::outcome::{self, Constants};
use similar::TextDiff;

/// The case that pins the constants that all other cases omit.
const CONSTANTS: &str = "_constants.yaml";

#[test]
fn outcomes_match_the_files() {
    let mut constants = constants();
    let mut wrong = Vec::new();
    for case in cases::all() {
        let shared = outcome::of(&case.defaults);
        let whole = outcome::of(&case.all_objects());
        check(
            &case,
            &whole.beyond(&shared, &mut constants).to_yaml(),
            &mut wrong,
        );
    }
    finish(&wrong);
}

#[test]
fn constants_match_the_file() {
    let case = constants_case();
    let mut wrong = Vec::new();
    check(&case, &constants().to_node().to_yaml(), &mut wrong);
    finish(&wrong);
}

#[test]
fn the_order_of_objects_does_not_matter() {
    for case in cases::all() {
        let mut objects = case.all_objects();
        let shared = outcome::of(&[]);
        let mut constants = Constants::default();
        let in_order = outcome::of(&objects).beyond(&shared, &mut constants);
        objects.reverse();
        let reversed = outcome::of(&objects).beyond(&shared, &mut constants);
        assert_eq!(in_order, reversed, "{}", case.name);
    }
}

fn constants_case() -> Case {
    let path = cases::folder().join(CONSTANTS);
    cases::read(path, "_constants".to_owned(), Vec::new())
}

fn constants() -> Constants {
    Constants::in_outcome_of(&constants_case().objects)
}

/// Records a case whose outcome differs from its file, or updates the file.
fn check(case: &Case, outcome: &str, wrong: &mut Vec<String>) {
    if outcome == case.expected {
        return;
    }
    if std::env::var_os("SESAME_UPDATE").is_some() {
        fs::write(&case.path, case.with_outcome(outcome)).expect("a case is writable");
        return;
    }
    let diff = TextDiff::from_lines(case.expected.as_str(), outcome)
        .unified_diff()
        .context_radius(4)
        .header("expected", "actual")
        .to_string();
    wrong.push(format!("{}: {}\n{diff}", case.path.display(), case.header));
}

fn finish(wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "{} cases differ; if the new outcomes are correct, run again with SESAME_UPDATE=1\n\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
