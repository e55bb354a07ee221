//! The activity of an Envoy's clients, from its statistics.
//!
//! Pure: text in, numbers out.

use std::time::{Duration, Instant};

/// Connections are idle after this time without a request.
const QUIET: Duration = Duration::from_secs(2);

/// The path of these statistics.
pub(super) const PAGE: &str =
    "/stats?filter=%5E(listener%7Chttp)%5C..*%5C.downstream_(cx_active%7Crq_active%7Crq_total)$";

/// The activity at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Activity {
    /// Connections of all kinds.
    pub(super) connections: u64,
    /// HTTP connections.
    pub(super) http_connections: u64,
    /// Requests in progress.
    pub(super) requests: u64,
    /// All requests so far.
    pub(super) requests_ever: u64,
}

impl Activity {
    /// Reads lines as `http.ingress.downstream_rq_active: 3`. Envoy's own pages don't count.
    pub(super) fn parse(stats: &str) -> Self {
        let mut out = Self::default();
        let lines = stats
            .lines()
            .filter_map(|line| line.rsplit_once(": "))
            .filter_map(|(name, number)| Some((name, number.trim().parse::<u64>().ok()?)));
        for (name, number) in lines {
            let (kind, rest) = name.split_once('.').unwrap_or((name, ""));
            let Some((whose, what)) = rest.rsplit_once('.') else {
                continue;
            };
            let field = match (kind, what) {
                // Envoy already sums up those of its threads.
                ("listener", _) if whose == "admin" || is_threads(whose) => continue,
                ("http", _) if whose == "admin" || whose == "async-client" => continue,
                ("listener", "downstream_cx_active") => &mut out.connections,
                ("http", "downstream_cx_active") => &mut out.http_connections,
                ("http", "downstream_rq_active") => &mut out.requests,
                ("http", "downstream_rq_total") => &mut out.requests_ever,
                _ => continue,
            };
            *field = field.saturating_add(number);
        }
        out
    }
}

/// Whether statistics of a listener are those of one thread: `0.0.0.0_80.worker_1`.
fn is_threads(listener: &str) -> bool {
    listener.rsplit_once('.').is_some_and(|(_, last)| {
        last == "main_thread"
            || last
                .strip_prefix("worker_")
                .is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Tracks the clients' activity.
#[derive(Debug, Default)]
pub(super) struct Watch {
    last: Option<(u64, Instant)>,
}

/// Whether Envoy may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A request or a connection would be lost.
    Busy,
    /// Only idle connections are left, which any server may close.
    Idle,
    /// No client is connected.
    Gone,
}

impl Watch {
    /// Records the activity at a time.
    pub(super) fn note(&mut self, activity: Activity, now: Instant) -> Verdict {
        let since = match self.last {
            Some((ever, since)) if ever == activity.requests_ever => since,
            _ => now,
        };
        self.last = Some((activity.requests_ever, since));
        // A connection that isn't HTTP has no statistic that shows whether it is idle.
        let others = activity
            .connections
            .saturating_sub(activity.http_connections);
        if activity.connections == 0 && activity.http_connections == 0 && activity.requests == 0 {
            Verdict::Gone
        } else if activity.requests == 0
            && others == 0
            && now.saturating_duration_since(since) >= QUIET
        {
            Verdict::Idle
        } else {
            Verdict::Busy
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_summed_and_our_own_left_out() {
        let stats = "listener.0.0.0.0_80.downstream_cx_active: 3\n\
            listener.0.0.0.0_80.worker_0.downstream_cx_active: 2\n\
            listener.0.0.0.0_80.worker_1.downstream_cx_active: 1\n\
            listener.[__]_53.downstream_cx_active: 1\n\
            listener.admin.downstream_cx_active: 1\n\
            listener.admin.main_thread.downstream_cx_active: 1\n\
            http.admin.downstream_cx_active: 1\n\
            http.admin.downstream_rq_active: 1\n\
            http.async-client.downstream_rq_total: 9\n\
            http.a.b.downstream_cx_active: 2\n\
            http.a.b.downstream_rq_active: 1\n\
            http.a.b.downstream_rq_total: 17\n\
            http.a.b.downstream_rq_time: P0(1,1) P100(2,2)\n\
            nonsense\n: 3\nhttp: 4\nlistener.: 5\n";
        assert_eq!(
            Activity::parse(stats),
            Activity {
                connections: 4,
                http_connections: 2,
                requests: 1,
                requests_ever: 17,
            }
        );
        assert_eq!(Activity::parse(""), Activity::default());
    }

    #[test]
    fn clients_may_be_left_when_they_are_gone_or_quiet() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut watch = Watch::default();
        let idle = Activity {
            connections: 1,
            http_connections: 1,
            requests: 0,
            requests_ever: 5,
        };
        assert_eq!(watch.note(idle, at(0)), Verdict::Busy);
        assert_eq!(watch.note(idle, at(1999)), Verdict::Busy);
        assert_eq!(watch.note(idle, at(2000)), Verdict::Idle);
        let asked = Activity {
            requests_ever: 6,
            ..idle
        };
        assert_eq!(watch.note(asked, at(2100)), Verdict::Busy);
        assert_eq!(watch.note(asked, at(4099)), Verdict::Busy);
        assert_eq!(watch.note(asked, at(4100)), Verdict::Idle);
        assert_eq!(watch.note(Activity::default(), at(4101)), Verdict::Gone);
    }

    #[test]
    fn a_request_under_way_or_a_connection_without_requests_is_waited_for() {
        let start = Instant::now();
        let later = start + Duration::from_secs(60);
        for busy in [
            Activity {
                connections: 1,
                http_connections: 1,
                requests: 1,
                requests_ever: 1,
            },
            Activity {
                connections: 2,
                http_connections: 1,
                requests: 0,
                requests_ever: 1,
            },
        ] {
            let mut watch = Watch::default();
            watch.note(busy, start);
            assert_eq!(watch.note(busy, later), Verdict::Busy);
        }
    }
}
