//! Client activity, derived from Envoy's statistics.
//!
//! Pure: text in, numbers out.

use std::time::{Duration, Instant};

/// HTTP connections are idle after this time without a request.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// The path of the statistics on the admin interface.
pub(super) const STATS_PATH: &str =
    "/stats?filter=%5E(listener%7Chttp)%5C..*%5C.downstream_(cx_active%7Crq_active%7Crq_total)$";

/// A snapshot of the activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Activity {
    /// Connections of all protocols.
    pub(super) connections: u64,
    /// HTTP connections.
    pub(super) http_connections: u64,
    /// Active requests.
    pub(super) requests: u64,
    /// Requests since Envoy started.
    pub(super) total_requests: u64,
}

impl Activity {
    /// Parses lines such as `http.ingress.downstream_rq_active: 3`. Lines about the sidecar's own connections are ignored.
    pub(super) fn parse(stats: &str) -> Self {
        let mut out = Self::default();
        let lines = stats
            .lines()
            .filter_map(|line| line.rsplit_once(": "))
            .filter_map(|(name, number)| Some((name, number.trim().parse::<u64>().ok()?)));
        for (name, number) in lines {
            let (kind, rest) = name.split_once('.').unwrap_or((name, ""));
            let Some((prefix, stat)) = rest.rsplit_once('.') else {
                continue;
            };
            let field = match (kind, stat) {
                // The listener's own statistic is the sum across its threads.
                ("listener", _) if is_own(prefix) || is_per_thread(prefix) => continue,
                ("http", _) if prefix == "admin" || prefix == "async-client" => continue,
                ("listener", "downstream_cx_active") => &mut out.connections,
                ("http", "downstream_cx_active") => &mut out.http_connections,
                ("http", "downstream_rq_active") => &mut out.requests,
                ("http", "downstream_rq_total") => &mut out.total_requests,
                _ => continue,
            };
            *field = field.saturating_add(number);
        }
        out
    }
}

/// Whether the sidecar is the listener's client.
fn is_own(listener: &str) -> bool {
    matches!(listener, "admin" | "readiness")
}

/// Whether a listener's statistic covers only one thread, such as `0.0.0.0_80.worker_1`.
fn is_per_thread(listener: &str) -> bool {
    listener.rsplit_once('.').is_some_and(|(_, last)| {
        last == "main_thread"
            || last
                .strip_prefix("worker_")
                .is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Tracks client activity.
#[derive(Debug, Default)]
pub(super) struct ActivityTracker {
    last: Option<(u64, Instant)>,
}

/// Whether Envoy may stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientState {
    /// An active request or connection would be cut off.
    Busy,
    /// All connections are idle, so the server may close them.
    Idle,
    /// No clients are connected.
    Gone,
}

impl ActivityTracker {
    /// Records a snapshot.
    pub(super) fn record(&mut self, activity: Activity, now: Instant) -> ClientState {
        let since = match self.last {
            Some((total, since)) if total == activity.total_requests => since,
            _ => now,
        };
        self.last = Some((activity.total_requests, since));
        // The statistics don't show whether other connections are idle.
        let others = activity
            .connections
            .saturating_sub(activity.http_connections);
        if activity.connections == 0 && activity.http_connections == 0 && activity.requests == 0 {
            ClientState::Gone
        } else if activity.requests == 0
            && others == 0
            && now.saturating_duration_since(since) >= IDLE_AFTER
        {
            ClientState::Idle
        } else {
            ClientState::Busy
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_statistics_are_summed() {
        let stats = "listener.0.0.0.0_80.downstream_cx_active: 3\n\
            listener.0.0.0.0_80.worker_0.downstream_cx_active: 2\n\
            listener.0.0.0.0_80.worker_1.downstream_cx_active: 1\n\
            listener.[__]_53.downstream_cx_active: 1\n\
            listener.admin.downstream_cx_active: 1\n\
            listener.admin.main_thread.downstream_cx_active: 1\n\
            listener.readiness.downstream_cx_active: 1\n\
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
                total_requests: 17,
            }
        );
        assert_eq!(Activity::parse(""), Activity::default());
    }

    #[test]
    fn clients_become_idle_after_a_quiet_period() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut tracker = ActivityTracker::default();
        let idle = Activity {
            connections: 1,
            http_connections: 1,
            requests: 0,
            total_requests: 5,
        };
        assert_eq!(tracker.record(idle, at(0)), ClientState::Busy);
        assert_eq!(tracker.record(idle, at(1999)), ClientState::Busy);
        assert_eq!(tracker.record(idle, at(2000)), ClientState::Idle);
        let after_request = Activity {
            total_requests: 6,
            ..idle
        };
        assert_eq!(tracker.record(after_request, at(2100)), ClientState::Busy);
        assert_eq!(tracker.record(after_request, at(4099)), ClientState::Busy);
        assert_eq!(tracker.record(after_request, at(4100)), ClientState::Idle);
        assert_eq!(
            tracker.record(Activity::default(), at(4101)),
            ClientState::Gone
        );
    }

    #[test]
    fn active_requests_and_raw_connections_are_busy() {
        let start = Instant::now();
        let later = start + Duration::from_secs(60);
        for busy in [
            Activity {
                connections: 1,
                http_connections: 1,
                requests: 1,
                total_requests: 1,
            },
            Activity {
                connections: 2,
                http_connections: 1,
                requests: 0,
                total_requests: 1,
            },
        ] {
            let mut tracker = ActivityTracker::default();
            tracker.record(busy, start);
            assert_eq!(tracker.record(busy, later), ClientState::Busy);
        }
    }
}
