//! Constant requests, none of which may fail.
//!
//! In: a network namespace and requests. Out: the number of successes, and the failures.
//! Half of the clients use keep-alive connections, as browsers and proxies do; the others open a connection per
//! request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::network::{Connection, Network, Request, Response};

/// Number of clients with keep-alive connections; as many clients use a new connection per request.
const CLIENTS: usize = 8;

/// Time between two requests from a client: 160 requests per second in total.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of failures whose reasons are kept.
const KEPT: usize = 20;

/// Running clients.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Tally>>,
}

/// Request results.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Number of successes.
    pub(super) answered: u64,
    /// Number of failures.
    pub(super) failed: u64,
    /// Time since the start, and reason, of the first failures.
    failures: Vec<(Duration, String)>,
    /// The duration of each request.
    durations: Vec<Duration>,
    /// Duration of the load.
    took: Duration,
}

impl Load {
    /// Starts the clients. Each sends all requests in turn, which must have the same address.
    pub(super) fn start(network: &Network, requests: Vec<Request>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = network.spawn(move |runtime| {
            let clients = LocalSet::new();
            clients.block_on(&runtime, all(requests.into(), until))
        });
        Self { stop, thread }
    }

    /// Stops the clients.
    ///
    /// # Errors
    /// If a request failed, or none was sent.
    pub(super) fn stop(self) -> Result<Tally> {
        self.stop.store(true, Ordering::Relaxed);
        let tally = self.thread.join();
        let tally = tally.unwrap_or_else(|_| bail!("the load thread panicked"))?;
        if tally.failed > 0 || tally.answered == 0 {
            bail!("{tally}{}", tally.reasons());
        }
        Ok(tally)
    }
}

impl Tally {
    fn note(&mut self, begun: Instant, since: Instant, outcome: Result<()>) {
        self.durations.push(since.elapsed());
        match outcome {
            Ok(()) => self.answered += 1,
            Err(error) => {
                self.failed += 1;
                if self.failures.len() < KEPT {
                    self.failures.push((begun.elapsed(), format!("{error:#}")));
                }
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.durations.extend(other.durations);
    }

    fn reasons(&self) -> String {
        let mut failures = self.failures.clone();
        failures.sort();
        failures.truncate(KEPT);
        let lines = failures
            .iter()
            .map(|(at, why)| format!("\n  after {:.1} s: {why}", at.as_secs_f32()));
        lines.collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut durations = self.durations.clone();
        durations.sort_unstable();
        let at = |percent: usize| {
            let place = (durations.len() * percent).div_ceil(100).saturating_sub(1);
            durations.get(place).map_or(0, Duration::as_millis)
        };
        write!(
            f,
            "{} requests in {:.0} s, {} failed, p99 {} ms, the slowest took {} ms",
            self.answered + self.failed,
            self.took.as_secs_f32(),
            self.failed,
            at(99),
            at(100)
        )
    }
}

async fn all(requests: Arc<[Request]>, stop: Arc<AtomicBool>) -> Tally {
    let begun = Instant::now();
    let clients: Vec<_> = (0..2 * CLIENTS)
        .map(|number| {
            let (requests, stop) = (Arc::clone(&requests), Arc::clone(&stop));
            tokio::task::spawn_local(async move {
                // Staggers the clients.
                sleep(PAUSE * u32::try_from(number).unwrap_or(0) / 16).await;
                client(&requests, &stop, number % 2 == 0, begun).await
            })
        })
        .collect();
    let mut tally = Tally::default();
    for client in clients {
        match client.await {
            Ok(part) => tally.add(part),
            Err(error) => {
                tally.failed += 1;
                tally.failures.push((begun.elapsed(), error.to_string()));
            }
        }
    }
    tally.took = begun.elapsed();
    tally
}

async fn client(requests: &[Request], stop: &AtomicBool, keeps: bool, begun: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut open: Option<Connection> = None;
    for request in requests.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let since = Instant::now();
        // Closed between two requests, so no request is lost.
        open = open.filter(|open| keeps && !open.is_closed());
        let outcome = exchange(open.take(), request).await;
        let outcome = outcome.map(|left| open = left);
        tally.note(begun, since, outcome.with_context(|| request.host.clone()));
        sleep(PAUSE.saturating_sub(since.elapsed())).await;
    }
    tally
}

/// Sends a request and checks its response.
async fn exchange(open: Option<Connection>, request: &Request) -> Result<Option<Connection>> {
    let kept = open.is_some();
    let connection = match open {
        Some(open) => open,
        None => Connection::open(request.address).await?,
    };
    let how = if kept { "keep-alive" } else { "new" };
    let asked = connection.send(request).await;
    let (response, left) = asked.with_context(|| format!("on a {how} connection"))?;
    check(&response)?;
    Ok(left)
}

fn check(response: &Response) -> Result<()> {
    if response.status != 200 {
        bail!("{} {:?}", response.status, response.body);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use super::*;

    /// A server with a fixed response to every request.
    fn server(response: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut request = [0; 1024];
                    while stream.read(&mut request).is_ok_and(|read| read > 0) {
                        let written = stream.write_all(response.as_bytes());
                        if written.is_err() || !response.contains("keep") {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    /// The results of three requests from a client.
    fn three(response: &'static str, keeps: bool) -> Tally {
        let address = server(response);
        let request = Request {
            address,
            host: "a.example.com".to_owned(),
            path: "/".to_owned(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let stop = AtomicBool::new(false);
        let done = async {
            let requests = [request.clone(), request.clone(), request];
            let ends = async {
                sleep(PAUSE * 3 - PAUSE / 2).await;
                stop.store(true, Ordering::Relaxed);
            };
            tokio::join!(client(&requests, &stop, keeps, Instant::now()), ends).0
        };
        runtime.block_on(done)
    }

    #[test]
    fn responses_count_on_new_and_keep_alive_connections() {
        for response in [
            "HTTP/1.1 200 OK\r\nx-connection: keep\r\ncontent-length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        ] {
            for keeps in [true, false] {
                let tally = three(response, keeps);
                assert!(
                    tally.answered > 0 && tally.failed == 0,
                    "{tally}{}",
                    tally.reasons()
                );
            }
        }
    }

    #[test]
    fn everything_else_is_a_failure() {
        for (response, why) in [
            (
                "HTTP/1.1 503 No\r\nx-connection: keep\r\ncontent-length: 2\r\n\r\nno",
                "503",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",
                "incomplete body",
            ),
            ("", "no response"),
        ] {
            for keeps in [true, false] {
                let tally = three(response, keeps);
                assert_eq!(tally.answered, 0, "{response:?}");
                assert!(
                    tally.failed > 0 && tally.reasons().contains(why),
                    "{}",
                    tally.reasons()
                );
            }
        }
    }
}
