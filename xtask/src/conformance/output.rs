//! What the suite prints, read while it runs.
//!
//! In: its lines, and when each came. Out: which test ended how and when, and what was printed for it. `go test` names the test
//! whose lines follow, and prints results of subtests at the very end only; the suite's program adds a line for each.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

/// The one test of the program; the suite's tests are its subtests.
const ROOT: &str = "TestConformance";

/// Begins the line that says how a test ended.
const RESULT: &str = "=== RESULT ";

/// What is kept of the lines of one test, in bytes: the beginning. A test that says more says the same again.
const KEPT: usize = 4 << 20;

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// It failed, or never came to its end.
    Failed,
    /// It was to run and did not.
    Skipped,
    /// It passed.
    Passed,
    /// It needs features that nobody asked for.
    Unsupported,
}

/// A test that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) test: String,
    pub(crate) outcome: Outcome,
    /// Whether the suite calls it provisional.
    pub(crate) provisional: bool,
    /// From when it began or, if it waited for others, went on.
    pub(crate) took: Duration,
    /// What was printed for it. Empty for tests that passed.
    pub(crate) lines: String,
}

/// A test under way.
#[derive(Default)]
struct Running {
    since: Duration,
    lines: String,
}

/// The suite's output as far as it has come.
#[derive(Default)]
pub(crate) struct Reader {
    /// Whose lines come; none: those of the setting up, and of the taking down.
    current: Option<String>,
    running: BTreeMap<String, Running>,
    ended: Vec<Ended>,
    /// Lines that belong to no test of the suite.
    setup: String,
}

impl Reader {
    /// Reads a line that came at that time of the run. Gives the test that ended with it.
    pub(crate) fn line(&mut self, at: Duration, line: &str) -> Option<&Ended> {
        // A program may print without ending the line before.
        if let Some((before, result)) = line.split_once(RESULT) {
            self.keep(before);
            return self.result(at, result);
        }
        let mut words = line.split_whitespace();
        if let (Some("==="), Some(what), Some(name)) = (words.next(), words.next(), words.next()) {
            self.turn(at, what, name);
        } else {
            self.keep(line);
        }
        None
    }

    /// What `go test` says of whose lines follow.
    fn turn(&mut self, at: Duration, what: &str, name: &str) {
        let Some(below) = name.strip_prefix(ROOT) else {
            return;
        };
        let below = below.strip_prefix('/').unwrap_or_default();
        let test = below.split('/').next().unwrap_or_default();
        self.current = (!test.is_empty()).then(|| test.to_owned());
        // Of the test itself, not of a part of it.
        if !test.is_empty() && test == below && matches!(what, "RUN" | "CONT") {
            self.running.entry(test.to_owned()).or_default().since = at;
        }
    }

    fn keep(&mut self, line: &str) {
        let lines = match &self.current {
            None => &mut self.setup,
            Some(test) => match self.running.get_mut(test) {
                Some(running) => &mut running.lines,
                // It has ended.
                None => return,
            },
        };
        if lines.len() + line.len() < KEPT && !line.is_empty() {
            lines.push_str(line);
            lines.push('\n');
        }
    }

    fn result(&mut self, at: Duration, json: &str) -> Option<&Ended> {
        let value: Value = serde_json::from_str(json.trim()).ok()?;
        let outcome = match value["result"].as_str()? {
            "pass" => Outcome::Passed,
            "skip" => Outcome::Skipped,
            "unsupported" => Outcome::Unsupported,
            _ => Outcome::Failed,
        };
        let test = value["test"].as_str()?.to_owned();
        let running = self.running.remove(&test).unwrap_or_default();
        let bad = matches!(outcome, Outcome::Failed | Outcome::Skipped);
        self.ended.push(Ended {
            test,
            outcome,
            provisional: value["provisional"] == true,
            took: at.saturating_sub(running.since),
            lines: if bad { running.lines } else { String::new() },
        });
        self.ended.last()
    }

    /// All tests, those that never ended as failed ones, and what was printed outside of them.
    ///
    /// Tests that were not wanted are begun and left; `wanted` is the one test that was, if there is one.
    pub(crate) fn finish(mut self, at: Duration, wanted: Option<&str>) -> (Vec<Ended>, String) {
        for (test, running) in self.running {
            if wanted.is_none_or(|wanted| wanted == test) {
                self.ended.push(Ended {
                    test,
                    outcome: Outcome::Failed,
                    provisional: false,
                    took: at.saturating_sub(running.since),
                    lines: running.lines + "The run ended in the middle of this test.\n",
                });
            }
        }
        (self.ended, self.setup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[(u64, &str)]) -> Reader {
        let mut reader = Reader::default();
        for (at, line) in lines {
            reader.line(Duration::from_secs(*at), line);
        }
        reader
    }

    fn ends(ended: &[Ended]) -> Vec<(&str, Outcome, u64)> {
        let end = |end: &Ended| (end.outcome, end.took.as_secs());
        ended
            .iter()
            .map(|e| (e.test.as_str(), end(e).0, end(e).1))
            .collect()
    }

    #[test]
    fn lines_belong_to_the_test_that_was_named_last() {
        let reader = read(&[
            (0, "=== RUN   TestConformance"),
            (0, "    conformance.go:1: Applying base manifests"),
            (5, "=== RUN   TestConformance/A"),
            (5, "    a.go:1: of A"),
            (6, "=== RUN   TestConformance/A/part_one"),
            (6, "    a.go:2: of a part of A"),
            (7, "=== NAME  TestConformance/A"),
            (7, "    a.go:3: of A again"),
            (
                9,
                r#"=== RESULT {"provisional":false,"result":"fail","test":"A"}"#,
            ),
            (9, "    a.go:4: too late"),
            (9, "=== NAME  TestConformance"),
            (9, "    conformance.go:2: Deleting"),
        ]);
        let (ended, setup) = reader.finish(Duration::from_secs(10), None);
        assert_eq!(ends(&ended), [("A", Outcome::Failed, 4)]);
        let expected = "    a.go:1: of A\n    a.go:2: of a part of A\n    a.go:3: of A again\n";
        assert_eq!(ended[0].lines, expected);
        assert!(
            setup.contains("Applying") && setup.contains("Deleting"),
            "{setup}"
        );
    }

    #[test]
    fn a_test_that_waited_counts_from_when_it_went_on() {
        let mut reader = read(&[
            (1, "=== RUN   TestConformance/B"),
            (1, "=== PAUSE TestConformance/B"),
            (2, "=== RUN   TestConformance/A"),
            (9, "=== CONT  TestConformance/B"),
            (9, "=== RUN   TestConformance/B/sub"),
            (9, "=== PAUSE TestConformance/B/sub"),
            (11, "=== CONT  TestConformance/B/sub"),
        ]);
        let line =
            r#"WARNING: no line end=== RESULT {"provisional":true,"result":"pass","test":"B"}"#;
        let ended = reader.line(Duration::from_secs(12), line).unwrap();
        assert_eq!(ended.outcome, Outcome::Passed);
        assert_eq!(ended.took, Duration::from_secs(3));
        assert!(ended.provisional && ended.lines.is_empty());
    }

    #[test]
    fn what_never_ended_has_failed() {
        let lines = [
            (1, "=== RUN   TestConformance/A"),
            (2, "panic: test timed out after 1h0m0s"),
            (2, "=== RUN   TestConformance/B"),
        ];
        let (ended, _) = read(&lines).finish(Duration::from_secs(3), Some("A"));
        assert_eq!(ends(&ended), [("A", Outcome::Failed, 2)]);
        assert!(ended[0].lines.starts_with("panic: test timed out"));
        let (ended, _) = read(&lines).finish(Duration::from_secs(3), None);
        assert_eq!(ended.len(), 2);
    }

    #[test]
    fn results_of_every_kind() {
        let result = |result| format!(r#"=== RESULT {{"result":"{result}","test":"A"}}"#);
        for (text, expected) in [
            ("pass", Outcome::Passed),
            ("fail", Outcome::Failed),
            ("skip", Outcome::Skipped),
            ("unsupported", Outcome::Unsupported),
            ("what is that", Outcome::Failed),
        ] {
            let mut reader = Reader::default();
            let ended = reader.line(Duration::ZERO, &result(text));
            assert_eq!(ended.map(|ended| ended.outcome), Some(expected));
        }
        assert_eq!(Reader::default().line(Duration::ZERO, "=== RESULT {"), None);
    }

    #[test]
    fn what_is_kept_of_a_test_has_a_limit() {
        let mut reader = read(&[(0, "=== RUN   TestConformance/A")]);
        let line = "x".repeat(1 << 20);
        for _ in 0..8 {
            reader.line(Duration::ZERO, &line);
        }
        let (ended, _) = reader.finish(Duration::ZERO, None);
        assert!(ended[0].lines.len() < KEPT + 100);
    }
}
