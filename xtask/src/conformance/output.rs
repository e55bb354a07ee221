//! Parses the suite's output while it runs.
//!
//! In: timestamped lines. Out: test results with durations and output. `go test` prints a test's name before its lines,
//! but the results of subtests only at the end; the suite's program adds a line for each result.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

/// The program's only test; the suite's tests are its subtests.
const ROOT: &str = "TestConformance";

/// Prefix of a result line.
const RESULT: &str = "=== RESULT ";

/// Maximum output kept per test, in bytes; later output is dropped.
const KEPT: usize = 4 << 20;

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Failed, or didn't finish.
    Failed,
    /// Expected to run, but skipped.
    Skipped,
    /// Passed.
    Passed,
    /// Not selected: requires other features.
    Unsupported,
}

/// A finished test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) test: String,
    pub(crate) outcome: Outcome,
    /// Whether the suite marks it as provisional.
    pub(crate) provisional: bool,
    /// Duration since its start or, if it waited for others, since it continued.
    pub(crate) took: Duration,
    /// Its output; empty for passed tests.
    pub(crate) lines: String,
}

/// A running test.
#[derive(Default)]
struct Running {
    since: Duration,
    lines: String,
}

/// The parser's state.
#[derive(Default)]
pub(crate) struct Reader {
    /// The test to which the current lines belong; `None` during setup and cleanup.
    current: Option<String>,
    running: BTreeMap<String, Running>,
    ended: Vec<Ended>,
    /// Lines outside of tests.
    setup: String,
}

impl Reader {
    /// Parses a line. Returns the test that the line finishes, if any.
    pub(crate) fn line(&mut self, at: Duration, line: &str) -> Option<&Ended> {
        // The previous line may lack a newline.
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

    /// Parses a line that names the test to which the following lines belong.
    fn turn(&mut self, at: Duration, what: &str, name: &str) {
        let Some(below) = name.strip_prefix(ROOT) else {
            return;
        };
        let below = below.strip_prefix('/').unwrap_or_default();
        let test = below.split('/').next().unwrap_or_default();
        self.current = (!test.is_empty()).then(|| test.to_owned());
        // The test itself, not one of its subtests.
        if !test.is_empty() && test == below && matches!(what, "RUN" | "CONT") {
            self.running.entry(test.to_owned()).or_default().since = at;
        }
    }

    fn keep(&mut self, line: &str) {
        let lines = match &self.current {
            None => &mut self.setup,
            Some(test) => match self.running.get_mut(test) {
                Some(running) => &mut running.lines,
                // Already finished.
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

    /// All tests, unfinished ones counted as failed, and the output outside of tests.
    ///
    /// Tests that weren't selected start and stop immediately; `wanted` is the selected test, if any.
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
    fn lines_belong_to_the_last_named_test() {
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
    fn a_waiting_test_is_timed_from_when_it_continues() {
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
    fn unfinished_tests_count_as_failed() {
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
    fn all_results_parse() {
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
    fn the_output_of_a_test_is_limited() {
        let mut reader = read(&[(0, "=== RUN   TestConformance/A")]);
        let line = "x".repeat(1 << 20);
        for _ in 0..8 {
            reader.line(Duration::ZERO, &line);
        }
        let (ended, _) = reader.finish(Duration::ZERO, None);
        assert!(ended[0].lines.len() < KEPT + 100);
    }
}
