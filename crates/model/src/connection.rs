//! Rarely used settings for connections to backends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How requests are distributed across the endpoints of a cluster, and how endpoints are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionSettings {
    /// How an endpoint is selected; `None` for the default.
    pub balancing: Option<Balancing>,
    /// Active health checks; `None` disables them.
    pub health: Option<Arc<HealthCheck>>,
    /// Slow start: how a new endpoint's load ramps up; `None` for full load immediately. Has no effect on random and
    /// hash balancing.
    pub slow_start: Option<SlowStart>,
    /// How long a connection may be idle, without requests; zero for no limit, `None` for the default.
    pub idle_timeout: Option<Duration>,
    /// Limits on connections and requests; `None` for the defaults.
    pub limits: Option<ConnectionLimits>,
}

/// How an endpoint is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Balancing {
    /// Each in turn.
    RoundRobin,
    /// Of two random endpoints, the one with fewer requests.
    LeastRequest,
    /// A random one.
    Random,
    /// By the route's [`HashPolicy`](crate::HashPolicy)s; few requests move when endpoints change.
    Hash,
}

/// A health check of endpoints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HealthCheck {
    /// The HTTP request; `None` for a TCP connection.
    pub http: Option<HttpCheck>,
    /// The time between checks.
    pub interval: Duration,
    /// The timeout for a check.
    pub timeout: Duration,
    /// The number of failures after which an endpoint stops getting requests.
    pub unhealthy: u32,
    /// The number of successes after which an endpoint gets requests again.
    pub healthy: u32,
    /// The port to check; `None` for the port that gets requests.
    pub port: Option<u16>,
}

/// A health check's HTTP request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpCheck {
    /// The path.
    pub path: Arc<str>,
    /// The Host header; if empty, the cluster's name.
    pub host: Arc<str>,
    /// The statuses of healthy endpoints, as half-open ranges; if empty, 200.
    pub statuses: Vec<(u16, u16)>,
}

/// How a new endpoint's load ramps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlowStart {
    /// The time until the endpoint reaches its full load.
    pub window: Duration,
    /// The growth curve, in thousandths: 1000 is linear; with larger values, the load grows faster at first.
    pub aggression: u32,
    /// The load at the start, in percent of the full load.
    pub min_percent: u32,
}

/// Limits on connections and requests to a cluster, for each Envoy. `None` means the default, or no limit for an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionLimits {
    /// Connections.
    pub connections: Option<u32>,
    /// Requests that wait for a connection.
    pub pending: Option<u32>,
    /// Requests in progress.
    pub requests: Option<u32>,
    /// Retries in progress.
    pub retries: Option<u32>,
    /// Connections to each endpoint.
    pub connections_per_endpoint: Option<u32>,
}

/// Distinct settings have distinct text forms.
impl fmt::Display for ConnectionSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(balancing) = self.balancing {
            let balancing = match balancing {
                Balancing::RoundRobin => "round-robin",
                Balancing::LeastRequest => "least-request",
                Balancing::Random => "random",
                Balancing::Hash => "hash",
            };
            parts.push(format!("lb={balancing}"));
        }
        if let Some(health) = &self.health {
            let HealthCheck {
                interval,
                timeout,
                unhealthy,
                healthy,
                ..
            } = &**health;
            let mut text = format!("health={interval:?},{timeout:?},{unhealthy},{healthy}");
            if let Some(port) = health.port {
                text += &format!(",port:{port}");
            }
            if let Some(http) = &health.http {
                text += &format!(",{},{}", escaped(&http.host), escaped(&http.path));
                for (start, end) in &http.statuses {
                    text += &format!(",{start}-{end}");
                }
            }
            parts.push(text);
        }
        if let Some(SlowStart {
            window,
            aggression,
            min_percent,
        }) = &self.slow_start
        {
            parts.push(format!("slow-start={window:?},{aggression},{min_percent}"));
        }
        if let Some(idle) = &self.idle_timeout {
            parts.push(format!("idle={idle:?}"));
        }
        if let Some(limits) = &self.limits {
            let all = [
                limits.connections,
                limits.pending,
                limits.requests,
                limits.retries,
                limits.connections_per_endpoint,
            ];
            let all = all.map(|limit| limit.map_or_else(String::new, |limit| limit.to_string()));
            parts.push(format!("limits={}", all.join(",")));
        }
        f.write_str(&parts.join("&"))
    }
}

/// Escapes the separators of the text form.
fn escaped(text: &str) -> String {
    text.replace('%', "%25")
        .replace(',', "%2C")
        .replace('&', "%26")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(host: &str, path: &str, port: Option<u16>) -> ConnectionSettings {
        ConnectionSettings {
            health: Some(Arc::new(HealthCheck {
                http: Some(HttpCheck {
                    path: path.into(),
                    host: host.into(),
                    statuses: Vec::new(),
                }),
                interval: Duration::from_secs(5),
                timeout: Duration::from_secs(1),
                unhealthy: 3,
                healthy: 2,
                port,
            })),
            ..ConnectionSettings::default()
        }
    }

    fn idle(timeout: Duration) -> ConnectionSettings {
        ConnectionSettings {
            idle_timeout: Some(timeout),
            ..ConnectionSettings::default()
        }
    }

    #[test]
    fn different_settings_have_different_texts() {
        let both = ConnectionSettings {
            idle_timeout: Some(Duration::from_secs(1)),
            ..checked("a", "/b", None)
        };
        let all = [
            checked("a", "/b", None),
            checked("a", "/b", Some(80)),
            checked("a,/b", "", None),
            checked("a", "/b,", None),
            checked("a", "/b&idle=1s", None),
            checked("a", "/b%26idle=1s", None),
            both,
            idle(Duration::ZERO),
            idle(Duration::from_micros(1_500)),
            idle(Duration::from_millis(1)),
        ];
        let texts: std::collections::BTreeSet<String> =
            all.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), all.len(), "{texts:#?}");
    }
}
