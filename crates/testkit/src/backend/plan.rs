//! Determines the response to a request.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::otlp;

/// The maximum delay or pause.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Maximum number of `/flaky` keys. A further key clears the map.
const MAX_KEYS: usize = 10_000;

/// How to respond.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) delay: Duration,
    /// The time between the beginning of the response and the end of its body.
    pub(super) pause: Duration,
    pub(super) outcome: Outcome,
    /// Additional response headers.
    pub(super) headers: HeaderMap,
}

/// The kind of response.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// An echo with this status.
    Echo(StatusCode),
    /// A WebSocket echo.
    WebSocket,
    /// The response to an export of spans.
    Exported,
    /// `failure` for the first requests with a key, then an echo with status 200.
    Flaky {
        key: String,
        failures: u32,
        failure: Failure,
    },
    /// The request is invalid.
    Refused(String),
}

/// The failure of a flaky response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Failure {
    Status(StatusCode),
    /// Aborts the connection (or HTTP/2 stream).
    Reset,
}

impl Plan {
    pub(super) fn new(head: &Parts) -> Self {
        Self::parse(head).unwrap_or_else(|reason| Self {
            delay: Duration::ZERO,
            pause: Duration::ZERO,
            outcome: Outcome::Refused(reason),
            headers: HeaderMap::new(),
        })
    }

    fn parse(head: &Parts) -> Result<Self, String> {
        let query = head.uri.query().unwrap_or_default();
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let find = |name: &str| {
            let (_, value) = query.iter().find(|(key, _)| key == name)?;
            Some(value.as_ref())
        };
        let in_header = head.headers.get_all("x-echo-set-header").iter();
        let in_header = in_header.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let in_query = query
            .iter()
            .filter(|(name, _)| name == "set-header")
            .map(|(_, pair)| pair.clone());
        let mut headers = HeaderMap::new();
        for pair in in_header.chain(in_query) {
            let (name, value) = header(&pair)?;
            headers.append(name, value);
        }
        let in_header_delay = head.headers.get("x-echo-delay");
        let in_header_delay = in_header_delay.and_then(|value| value.to_str().ok());
        let path = head.uri.path();
        let outcome = if let Some(code) = path.strip_prefix("/status/") {
            Outcome::Echo(status(code)?)
        } else if path == "/flaky" {
            Outcome::Flaky {
                key: find("key").unwrap_or_default().to_owned(),
                failures: number(find("failures").unwrap_or("1"))?,
                failure: match find("code") {
                    None => Failure::Status(StatusCode::SERVICE_UNAVAILABLE),
                    Some("reset") => Failure::Reset,
                    Some(code) => Failure::Status(status(code)?),
                },
            }
        } else if path == "/ws" {
            Outcome::WebSocket
        } else if path == otlp::EXPORT {
            Outcome::Exported
        } else {
            Outcome::Echo(StatusCode::OK)
        };
        Ok(Self {
            delay: find("delay")
                .or(in_header_delay)
                .map_or(Ok(Duration::ZERO), delay)?,
            pause: find("pause").map_or(Ok(Duration::ZERO), delay)?,
            outcome,
            headers,
        })
    }
}

fn status(code: &str) -> Result<StatusCode, String> {
    let status = code.parse().ok();
    // Lower codes are informational: there would never be a final response.
    status
        .filter(|status: &StatusCode| (200..600).contains(&status.as_u16()))
        .ok_or_else(|| format!("{code:?} is not a status from 200 to 599"))
}

fn number(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a number"))
}

/// Parses a delay such as `500ms` or `2s`.
fn delay(text: &str) -> Result<Duration, String> {
    let (digits, unit) = match text.strip_suffix("ms") {
        Some(digits) => (digits, Duration::from_millis(1)),
        None => (text.strip_suffix('s').unwrap_or(""), Duration::from_secs(1)),
    };
    digits
        .parse()
        .ok()
        .and_then(|number: u32| unit.checked_mul(number))
        .filter(|delay| *delay <= MAX_DELAY)
        .ok_or_else(|| format!("{text:?} is not a delay like 500ms or 2s, up to a minute"))
}

fn header(pair: &str) -> Result<(HeaderName, HeaderValue), String> {
    pair.split_once(':')
        .and_then(|(name, value)| Some((name.trim().parse().ok()?, value.trim().parse().ok()?)))
        .ok_or_else(|| format!("{pair:?} is not a header like name:value"))
}

/// The number of failures by key.
#[derive(Debug, Default)]
pub(super) struct Flaky(Mutex<HashMap<String, u32>>);

impl Flaky {
    /// Whether this request fails: the first `failures` with the same key do.
    pub(super) fn fails(&self, key: &str, failures: u32) -> bool {
        // A panic leaves the map consistent.
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= MAX_KEYS && !counts.contains_key(key) {
            counts.clear();
        }
        let count = counts.entry(key.to_owned()).or_default();
        let fails = *count < failures;
        *count += u32::from(fails);
        fails
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn plan(uri: &str) -> Plan {
        let (head, ()) = Request::get(uri).body(()).unwrap().into_parts();
        Plan::new(&head)
    }

    #[test]
    fn paths_and_queries() {
        assert_eq!(plan("/").outcome, Outcome::Echo(StatusCode::OK));
        assert_eq!(
            plan("/status/418").outcome,
            Outcome::Echo(StatusCode::IM_A_TEAPOT)
        );
        assert_eq!(plan("/a?delay=2s").delay, Duration::from_secs(2));
        assert_eq!(plan("/a?delay=150ms").delay, Duration::from_millis(150));
        assert_eq!(plan("/a?pause=2s").pause, Duration::from_secs(2));
        let flaky = |failures, failure| Outcome::Flaky {
            key: "k".to_owned(),
            failures,
            failure,
        };
        let unavailable = Failure::Status(StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(plan("/flaky?key=k").outcome, flaky(1, unavailable));
        assert_eq!(
            plan("/flaky?key=k&failures=3&code=reset").outcome,
            flaky(3, Failure::Reset)
        );
    }

    #[test]
    fn invalid_requests_are_rejected() {
        for uri in [
            "/status/abc",
            "/status/100",
            "/status/600",
            "/?delay=61s",
            "/?delay=1h",
            "/?delay=-1s",
            "/?pause=61s",
            "/?delay=99999999999999999999s",
            "/flaky?failures=x",
            "/flaky?code=1",
            "/?set-header=nothing",
            "/?set-header=a%0ab:c",
        ] {
            let plan = plan(uri);
            assert!(
                matches!(plan.outcome, Outcome::Refused(_)),
                "{uri}: {plan:?}"
            );
        }
    }

    #[test]
    fn headers_come_from_the_query_and_the_request() {
        let request = Request::get("/?set-header=a:1&set-header=a:%202")
            .header("x-echo-set-header", "b: x:y");
        let (head, ()) = request.body(()).unwrap().into_parts();
        let headers = Plan::new(&head).headers;
        let a: Vec<_> = headers.get_all("a").iter().collect();
        assert_eq!(a, ["1", "2"]);
        assert_eq!(headers["b"], "x:y");
    }

    #[test]
    fn keys_fail_independently() {
        let flaky = Flaky::default();
        let outcomes: Vec<bool> = (0..4).map(|_| flaky.fails("a", 2)).collect();
        assert_eq!(outcomes, [true, true, false, false]);
        assert!(flaky.fails("b", 1));
        for number in 0..2 * MAX_KEYS {
            flaky.fails(&number.to_string(), 1);
        }
        assert!(flaky.0.lock().unwrap().len() <= MAX_KEYS);
    }
}
