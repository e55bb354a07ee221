//! Cases: objects in, statuses and Envoy resources out.
//!
//! `SESAME_UPDATE=1 cargo test -p sesame-tests --test goldens` writes what comes out into the files; look at the
//! difference before you keep it, and hold it against the sentence at the file's top.

use std::fs;

use sesame_tests::cases::{self, Case};
use sesame_tests::outcome::{self, Constants};
use similar::TextDiff;

/// The case that pins what all others leave out.
const CONSTANTS: &str = "_constants.yaml";

#[test]
fn outcomes_are_as_written() {
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
fn constants_are_as_written() {
    let case = constants_case();
    let mut wrong = Vec::new();
    check(&case, &constants().to_node().to_yaml(), &mut wrong);
    finish(&wrong);
}

/// The order in which objects are written means nothing.
#[test]
fn the_order_of_objects_is_of_no_consequence() {
    for case in cases::all() {
        let mut objects = case.all_objects();
        let shared = outcome::of(&[]);
        let mut constants = Constants::default();
        let as_written = outcome::of(&objects).beyond(&shared, &mut constants);
        objects.reverse();
        let reversed = outcome::of(&objects).beyond(&shared, &mut constants);
        assert_eq!(as_written, reversed, "{}", case.name);
    }
}

fn constants_case() -> Case {
    let path = cases::folder().join(CONSTANTS);
    cases::read(path, "_constants".to_owned(), Vec::new())
}

fn constants() -> Constants {
    Constants::in_outcome_of(&constants_case().objects)
}

/// Notes a case whose outcome is not as written, or writes it.
fn check(case: &Case, outcome: &str, wrong: &mut Vec<String>) {
    if outcome == case.expected {
        return;
    }
    if std::env::var_os("SESAME_UPDATE").is_some() {
        fs::write(&case.path, case.with_outcome(outcome)).expect("a case can be written");
        return;
    }
    let diff = TextDiff::from_lines(case.expected.as_str(), outcome)
        .unified_diff()
        .context_radius(4)
        .header("as written", "as it is")
        .to_string();
    wrong.push(format!("{}: {}\n{diff}", case.path.display(), case.header));
}

fn finish(wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "{} cases differ; if that is right, run again with SESAME_UPDATE=1\n\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
