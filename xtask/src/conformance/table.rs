//! The summary of a run: a table of tests, and the suite's report per profile.
//!
//! In: finished tests and the report. Out: text and problems.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::output::{Ended, Outcome};

/// The line for a finished test.
pub(crate) fn line(ended: &Ended) -> String {
    let outcome = match ended.outcome {
        Outcome::Failed => "FAIL",
        Outcome::Skipped => "skip",
        Outcome::Passed => "pass",
        Outcome::Unsupported => "-",
    };
    let provisional = if ended.provisional {
        " (provisional)"
    } else {
        ""
    };
    let name = format!("{}{provisional}", ended.test);
    format!("{outcome:4}  {name:74} {:>7}", seconds(ended.took))
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f32())
}

/// All tests that ran, failed ones first, then by name, and the number of each result.
pub(crate) fn table(ended: &[Ended], took: Duration) -> String {
    let mut ran: Vec<&Ended> = ended
        .iter()
        .filter(|ended| ended.outcome != Outcome::Unsupported)
        .collect();
    ran.sort_by_key(|ended| (ended.outcome, &ended.test));
    let mut text = String::new();
    for ended in &ran {
        let _ = writeln!(text, "{}", line(ended));
    }
    let count = |outcome| ended.iter().filter(|e| e.outcome == outcome).count();
    let _ = writeln!(
        text,
        "{} passed, {} failed, {} skipped, {} not selected, in {}",
        count(Outcome::Passed),
        count(Outcome::Failed),
        count(Outcome::Skipped),
        count(Outcome::Unsupported),
        seconds(took)
    );
    text
}

/// A line for each profile in the suite's report, and the problems.
///
/// # Errors
/// If the report can't be parsed.
pub(crate) fn profiles(report: &str) -> Result<(String, Vec<String>)> {
    let report: Value =
        serde_saphyr::from_str(report).context("cannot parse the suite's report")?;
    // Empty if no test belongs to a profile.
    let profiles = report
        .get("profiles")
        .context("the suite's report has no profiles")?;
    let profiles = profiles.as_array().map_or(&[][..], Vec::as_slice);
    let (mut text, mut bad) = (String::new(), Vec::new());
    for profile in profiles {
        let name = profile["name"]
            .as_str()
            .unwrap_or("a profile without a name");
        let mut parts = Vec::new();
        for part in ["core", "extended"] {
            let Some(status) = profile.get(part).filter(|status| status.is_object()) else {
                continue;
            };
            let result = status["result"].as_str().unwrap_or("no result");
            let number = |field: &str| {
                let statistics = &status["statistics"];
                statistics[field].as_u64().unwrap_or(0)
            };
            parts.push(format!(
                "{part} {result} ({} passed, {} failed, {} skipped)",
                number("Passed"),
                number("Failed"),
                number("Skipped")
            ));
            if result != "success" {
                bad.push(format!("{name}: {part} {result}"));
            }
        }
        let features = |field: &str| profile["extended"][field].as_array().map_or(0, Vec::len);
        let _ = writeln!(
            text,
            "{name}: {}; {} extended features supported, {} not",
            parts.join(", "),
            features("supportedFeatures"),
            features("unsupportedFeatures")
        );
    }
    Ok((text, bad))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(test: &str, outcome: Outcome) -> Ended {
        Ended {
            test: test.to_owned(),
            outcome,
            provisional: test == "P",
            took: Duration::from_millis(1250),
            lines: String::new(),
        }
    }

    #[test]
    fn failures_come_first() {
        let tests = [
            ended("B", Outcome::Passed),
            ended("P", Outcome::Passed),
            ended("U", Outcome::Unsupported),
            ended("Z", Outcome::Failed),
            ended("S", Outcome::Skipped),
            ended("A", Outcome::Passed),
        ];
        let text = table(&tests, Duration::from_secs(90));
        let starts: Vec<_> = text
            .lines()
            .map(|line| line.get(..7).unwrap_or(line))
            .collect();
        let expected = [
            "FAIL  Z", "skip  S", "pass  A", "pass  B", "pass  P", "3 passe",
        ];
        assert_eq!(starts, expected);
        assert!(text.contains("P (provisional)"));
        assert!(text.contains("1.2 s"), "{text}");
        assert!(text.ends_with("3 passed, 1 failed, 1 skipped, 1 not selected, in 90.0 s\n"));
    }

    const REPORT: &str = "
apiVersion: gateway.networking.k8s.io/v1
profiles:
- name: GATEWAY-HTTP
  core:
    result: success
    statistics: {Failed: 0, Passed: 40, Skipped: 0}
  extended:
    result: partial
    statistics: {Failed: 0, Passed: 11, Skipped: 1}
    supportedFeatures: [HTTPRouteCORS, HTTPRouteRetryCodes]
    unsupportedFeatures: [ListenerSet]
- name: GATEWAY-TLS
  core:
    result: success
    statistics: {Failed: 0, Passed: 21, Skipped: 0}
";

    #[test]
    fn profiles_are_summarized() {
        let (text, bad) = profiles(REPORT).unwrap();
        let expected = "GATEWAY-HTTP: core success (40 passed, 0 failed, 0 skipped), extended partial (11 passed, 0 failed, \
                        1 skipped); 2 extended features supported, 1 not\n\
                        GATEWAY-TLS: core success (21 passed, 0 failed, 0 skipped); 0 extended features supported, 0 not\n";
        assert_eq!(text, expected);
        assert_eq!(bad, ["GATEWAY-HTTP: extended partial"]);
        assert_eq!(profiles("profiles: null").unwrap().0, "");
        assert!(profiles("a: 1").is_err());
        assert!(profiles(": :").is_err());
    }
}
