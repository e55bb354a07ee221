//! Formats events as lines.
//!
//! In: an event. Out: lines of text, or `None` if the event isn't shown.

use std::fmt::Write;
use std::time::Duration;

use sesame_control::event::{ChangeKind, ObjectChange, RunEvent};
use sesame_control::status_store::{DEFAULT_FLEET, NoticeLevel, Severity};

use crate::output::escaped;
use crate::table::{GREEN, RED, RESET, YELLOW};

/// The maximum number of objects named in a line.
const MAX_NAMES: usize = 5;

/// The text of an event. Objects that are waiting aren't shown before `ready`.
pub(crate) fn describe(event: &RunEvent, ready: bool, colour: bool) -> Option<String> {
    let paint = |code: &str, text: String| match (colour, escaped(&text)) {
        (true, text) => format!("{code}{text}{RESET}"),
        (false, text) => text.into_owned(),
    };
    let (code, text) = match event {
        RunEvent::Ready {
            gateways,
            default_fleet,
            after_ms,
        } => {
            let named = match gateways {
                1 => "1 Gateway".to_owned(),
                number => format!("{number} Gateways"),
            };
            let served = match default_fleet {
                true if *gateways == 0 => "the default fleet".to_owned(),
                true => format!("{named} and the default fleet"),
                false => named,
            };
            let after = format_duration(*after_ms);
            (GREEN, format!("Ready after {after}: serving {served}.\n"))
        }
        RunEvent::Change {
            objects,
            more,
            resources,
            took_ms,
            ..
        } => {
            let resources = match resources {
                0 => "no resources".to_owned(),
                1 => "1 resource".to_owned(),
                number => format!("{number} resources"),
            };
            let text = format!(
                "{}: {resources}, translated in {}",
                names(objects, *more),
                format_duration(*took_ms)
            );
            ("", text)
        }
        RunEvent::Served {
            gateway, after_ms, ..
        } => (
            GREEN,
            format!(
                "{}: applied by Envoy after {}",
                fleet(gateway),
                format_duration(*after_ms)
            ),
        ),
        RunEvent::Problem(problem) => (RED, format!("error: {}", problem.text)),
        RunEvent::ProblemSolved(problem) => (GREEN, format!("fixed: {}", problem.text)),
        RunEvent::Status { changes, more, .. } => {
            let mut text = String::new();
            for change in changes {
                let code = match change.severity {
                    Severity::Ok => GREEN,
                    Severity::Waiting if !ready => continue,
                    Severity::Waiting => YELLOW,
                    Severity::Error => RED,
                };
                let line = paint(code, change.to_string());
                // Writing to a string can't fail.
                let _ = writeln!(text, "{line}");
            }
            if *more > 0 {
                let _ = writeln!(text, "and {more} more");
            }
            if text.is_empty() {
                return None;
            }
            ("", text.trim_end().to_owned())
        }
        RunEvent::Notices {
            new, solved, more, ..
        } => {
            let mut text = String::new();
            let solved = solved.iter().map(|notice| (GREEN, "fixed: ", notice));
            let new = new.iter().map(|notice| match notice.level {
                NoticeLevel::Error => (RED, "error: ", notice),
                NoticeLevel::Warning => (YELLOW, "warning: ", notice),
            });
            for (code, prefix, notice) in solved.chain(new) {
                // Writing to a string can't fail.
                let _ = writeln!(text, "{}", paint(code, format!("{prefix}{notice}")));
            }
            if *more > 0 {
                let _ = writeln!(text, "and {more} more");
            }
            ("", text.trim_end().to_owned())
        }
        RunEvent::FleetProblem { gateway, message } => {
            let fleet = fleet(gateway);
            match message {
                Some(message) => (RED, format!("{fleet}: {message}")),
                None => (GREEN, format!("{fleet}: fixed")),
            }
        }
        RunEvent::EnvoyStarted {
            gateway,
            pid,
            attempt,
        } => {
            let verb = if *attempt > 1 { "restarted" } else { "started" };
            ("", format!("{}: Envoy {verb} (PID {pid})", fleet(gateway)))
        }
        RunEvent::EnvoyHung {
            gateway,
            unresponsive_ms,
        } => {
            let text = format!(
                "{}: Envoy has not responded for {}; killing it",
                fleet(gateway),
                format_duration(*unresponsive_ms)
            );
            (RED, text)
        }
        RunEvent::EnvoyExited {
            gateway,
            status,
            uptime_ms,
            restart_in_ms,
        } => {
            let gateway = fleet(gateway);
            let uptime = format_duration(*uptime_ms);
            match restart_in_ms {
                Some(delay) => {
                    let action = match *delay {
                        0.0 => "restarting".to_owned(),
                        delay => format!("restarting in {}", format_duration(delay)),
                    };
                    (
                        RED,
                        format!("{gateway}: Envoy exited after {uptime} ({status}); {action}"),
                    )
                }
                None => ("", format!("{gateway}: Envoy exited")),
            }
        }
        RunEvent::EnvoyFailed {
            gateway,
            message,
            retry_in_ms,
        } => {
            let text = format!(
                "{}: cannot start Envoy: {message}; retrying in {}",
                fleet(gateway),
                format_duration(*retry_in_ms)
            );
            (RED, text)
        }
        RunEvent::Rejected {
            gateway,
            resource,
            name,
            message,
        } => {
            let text = format!(
                "{}: Envoy rejected {resource} {name} ({message}) and keeps the last good version",
                fleet(gateway),
            );
            (RED, text)
        }
        RunEvent::Recovered {
            gateway,
            resource,
            name,
        } => (
            GREEN,
            format!("{}: Envoy now accepts {resource} {name}", fleet(gateway)),
        ),
        RunEvent::Note { message } => (YELLOW, format!("note: {message}")),
    };
    Some(match code {
        "" => text,
        code => paint(code, text),
    })
}

/// The name of a fleet: its Gateway's, if it has one.
fn fleet(gateway: &str) -> &str {
    match gateway {
        "default" => DEFAULT_FLEET,
        gateway => gateway,
    }
}

/// `changed HTTPRoute/default/shop, added Service/default/a and 3 more`.
fn names(objects: &[ObjectChange], more: usize) -> String {
    let mut out = String::new();
    let mut last = None;
    for object in objects.iter().take(MAX_NAMES) {
        if !out.is_empty() {
            out.push_str(", ");
        }
        if last != Some(object.change) {
            out.push_str(match object.change {
                ChangeKind::Added => "added ",
                ChangeKind::Changed => "changed ",
                ChangeKind::Removed => "removed ",
            });
            last = Some(object.change);
        }
        // Writing to a string can't fail.
        let _ = write!(out, "{}", escaped(&object.object.to_string()));
    }
    let more = more + objects.len().saturating_sub(MAX_NAMES);
    if more > 0 {
        let _ = write!(out, " and {more} more");
    }
    out
}

/// A duration with two or three significant digits.
fn format_duration(ms: f64) -> String {
    let duration = Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default();
    match duration.as_secs_f64() {
        seconds if seconds < 0.01 => format!("{:.1} ms", seconds * 1000.0),
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1000.0),
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.0} min", seconds / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sesame_control::status_store::NoticeView;

    use super::*;

    fn change(objects: &[(&str, ChangeKind)], more: usize, resources: usize) -> RunEvent {
        let objects = objects.iter().map(|(name, change)| ObjectChange {
            object: sesame_api::ObjectKey::new(sesame_api::Kind::HTTPRoute, "n", *name),
            change: *change,
        });
        RunEvent::Change {
            revision: 7,
            objects: objects.collect(),
            more,
            resources,
            took_ms: 0.4321,
        }
    }

    #[test]
    fn a_change_shows_objects_resources_and_duration() {
        use ChangeKind::{Added, Changed};
        let event = change(&[("a", Changed), ("b", Changed), ("c", Added)], 0, 1);
        assert_eq!(
            describe(&event, true, false).unwrap(),
            "changed HTTPRoute/n/a, HTTPRoute/n/b, added HTTPRoute/n/c: 1 resource, translated in 0.4 ms"
        );
        let many: Vec<_> = (0..8).map(|_| ("a", Added)).collect();
        let text = describe(&change(&many, 90, 0), true, false).unwrap();
        assert!(
            text.ends_with("HTTPRoute/n/a and 93 more: no resources, translated in 0.4 ms"),
            "{text}"
        );
    }

    #[test]
    fn events_are_json_with_a_type() {
        let event = change(&[("a", ChangeKind::Removed)], 2, 1);
        let expected: Value = json!({
            "type": "change", "revision": 7, "more": 2, "resources": 1, "tookMs": 0.4321,
            "objects": [{"object": "HTTPRoute/n/a", "change": "removed"}],
        });
        assert_eq!(serde_json::to_value(&event).unwrap(), expected);
    }

    #[test]
    fn the_default_fleet_is_not_counted_as_a_gateway() {
        for (gateways, default_fleet, text) in [
            (1, false, "serving 1 Gateway."),
            (0, true, "serving the default fleet."),
            (2, true, "serving 2 Gateways and the default fleet."),
        ] {
            let event = RunEvent::Ready {
                gateways,
                default_fleet,
                after_ms: 500.0,
            };
            let line = describe(&event, true, false).unwrap();
            assert!(line.contains(text), "{line}");
        }
        let event = RunEvent::EnvoyStarted {
            gateway: "default".to_owned(),
            pid: 7,
            attempt: 1,
        };
        assert_eq!(
            describe(&event, true, false).unwrap(),
            "default fleet: Envoy started (PID 7)"
        );
    }

    #[test]
    fn a_hung_envoy_is_shown() {
        let event = RunEvent::EnvoyHung {
            gateway: "ns/web".to_owned(),
            unresponsive_ms: 30_000.0,
        };
        assert_eq!(
            describe(&event, true, false).unwrap(),
            "ns/web: Envoy has not responded for 30.0 s; killing it"
        );
        assert_eq!(
            serde_json::to_value(&event).unwrap(),
            json!({"type": "envoy-hung", "gateway": "ns/web", "unresponsiveMs": 30_000.0})
        );
    }

    #[test]
    fn notices_are_shown_until_they_are_solved() {
        let notice = |level| NoticeView {
            object: sesame_api::ObjectKey::new(sesame_api::Kind::Ingress, "n", "a"),
            level,
            field: "spec.rules[0].host".to_owned(),
            message: "invalid".to_owned(),
        };
        let event = RunEvent::Notices {
            revision: 1,
            new: vec![notice(NoticeLevel::Error), notice(NoticeLevel::Warning)],
            solved: vec![notice(NoticeLevel::Error)],
            more: 0,
        };
        let expected = "\
fixed: Ingress/n/a: spec.rules[0].host: invalid
error: Ingress/n/a: spec.rules[0].host: invalid
warning: Ingress/n/a: spec.rules[0].host: invalid";
        assert_eq!(describe(&event, true, false).unwrap(), expected);
    }

    #[test]
    fn colours_are_optional() {
        let event = RunEvent::Note {
            message: "x".to_owned(),
        };
        assert_eq!(describe(&event, true, false).unwrap(), "note: x");
        assert!(describe(&event, true, true).unwrap().contains('\u{1b}'));
    }

    #[test]
    fn durations_have_few_digits() {
        let cases = [
            (0.04, "0.0 ms"),
            (4.26, "4.3 ms"),
            (12.3, "12 ms"),
            (2500.0, "2.5 s"),
            (3.6e6, "60 min"),
        ];
        for (ms, text) in cases {
            assert_eq!(format_duration(ms), text);
        }
    }
}
