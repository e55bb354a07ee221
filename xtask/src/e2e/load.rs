//! Steady requests, of which none may fail.
//!
//! In: a network, what to ask for. Out: how many were answered as they should be, and what became of the others.
//! Half of the clients keep their connections for as long as they are allowed to, as browsers and proxies do; the others
//! open one for each request, as they must get along with whatever stands behind an address at that moment.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::network::{Answer, Ask, Connection, Network};

/// How many clients keep their connections, and how many don't.
const CLIENTS: usize = 8;

/// Between two requests of a client: together they make 160 a second.
const PAUSE: Duration = Duration::from_millis(100);

/// So many failures are kept with their reasons.
const KEPT: usize = 20;

/// Requests under way.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Tally>>,
}

/// What became of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// How many were answered as they should be.
    pub(super) answered: u64,
    /// How many were not.
    pub(super) failed: u64,
    /// When, after the start, and why, of the first ones.
    failures: Vec<(Duration, String)>,
    /// The one that took longest.
    slowest: Duration,
    /// How long there were requests.
    took: Duration,
}

impl Load {
    /// Begins. Each client asks for all of them in turn.
    pub(super) fn start(network: &Network, asks: Vec<Ask>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = network.spawn(move |runtime| {
            let clients = LocalSet::new();
            clients.block_on(&runtime, all(asks.into(), until))
        });
        Self { stop, thread }
    }

    /// Ends them.
    ///
    /// # Errors
    /// If a single one failed, or none was made.
    pub(super) fn stop(self) -> Result<Tally> {
        self.stop.store(true, Ordering::Relaxed);
        let tally = self.thread.join();
        let tally = tally.unwrap_or_else(|_| bail!("the requests broke off"))?;
        if tally.failed > 0 || tally.answered == 0 {
            bail!("{tally}{}", tally.reasons());
        }
        Ok(tally)
    }
}

impl Tally {
    fn note(&mut self, begun: Instant, since: Instant, outcome: Result<()>) {
        self.slowest = self.slowest.max(since.elapsed());
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
        self.slowest = self.slowest.max(other.slowest);
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
        write!(
            f,
            "{} requests in {:.0} s, {} failed, the slowest took {} ms",
            self.answered + self.failed,
            self.took.as_secs_f32(),
            self.failed,
            self.slowest.as_millis()
        )
    }
}

async fn all(asks: Arc<[Ask]>, stop: Arc<AtomicBool>) -> Tally {
    let begun = Instant::now();
    let clients: Vec<_> = (0..2 * CLIENTS)
        .map(|number| {
            let (asks, stop) = (Arc::clone(&asks), Arc::clone(&stop));
            tokio::task::spawn_local(async move {
                // Not all at the same moment.
                sleep(PAUSE * u32::try_from(number).unwrap_or(0) / 16).await;
                client(&asks, &stop, number % 2 == 0, begun).await
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

async fn client(asks: &[Ask], stop: &AtomicBool, keeps: bool, begun: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut open: Option<Connection> = None;
    for ask in asks.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let since = Instant::now();
        // Closed between two requests: nobody has lost anything.
        open = open.filter(|open| keeps && !open.is_closed());
        let outcome = exchange(open.take(), ask).await;
        let outcome = outcome.map(|left| open = left);
        tally.note(begun, since, outcome.with_context(|| ask.host.clone()));
        sleep(PAUSE.saturating_sub(since.elapsed())).await;
    }
    tally
}

/// One request, as it should be answered.
async fn exchange(open: Option<Connection>, ask: &Ask) -> Result<Option<Connection>> {
    let kept = open.is_some();
    let connection = match open {
        Some(open) => open,
        None => Connection::open(ask.address).await?,
    };
    let how = if kept { "kept" } else { "new" };
    let asked = connection.ask(ask).await;
    let (answer, left) = asked.with_context(|| format!("on a {how} connection"))?;
    check(&answer)?;
    Ok(left)
}

fn check(answer: &Answer) -> Result<()> {
    if answer.status != 200 {
        bail!("{} {:?}", answer.status, answer.body);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use super::*;

    /// A server that gives each connection this, for every request on it.
    fn server(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut request = [0; 1024];
                    while stream.read(&mut request).is_ok_and(|read| read > 0) {
                        let told = stream.write_all(answer.as_bytes());
                        if told.is_err() || !answer.contains("keep") {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    /// What becomes of three requests of one client.
    fn three(answer: &'static str, keeps: bool) -> Tally {
        let address = server(answer);
        let ask = Ask {
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
            let asks = [ask.clone(), ask.clone(), ask];
            let ends = async {
                sleep(PAUSE * 3 - PAUSE / 2).await;
                stop.store(true, Ordering::Relaxed);
            };
            tokio::join!(client(&asks, &stop, keeps, Instant::now()), ends).0
        };
        runtime.block_on(done)
    }

    #[test]
    fn an_answer_counts_on_kept_and_on_new_connections() {
        for answer in [
            "HTTP/1.1 200 OK\r\nx-connection: keep\r\ncontent-length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        ] {
            for keeps in [true, false] {
                let tally = three(answer, keeps);
                assert!(
                    tally.answered > 0 && tally.failed == 0,
                    "{tally}{}",
                    tally.reasons()
                );
            }
        }
    }

    #[test]
    fn whatever_else_comes_is_a_failure() {
        for (answer, why) in [
            (
                "HTTP/1.1 503 No\r\nx-connection: keep\r\ncontent-length: 2\r\n\r\nno",
                "503",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",
                "broke off",
            ),
            ("", "no answer"),
        ] {
            for keeps in [true, false] {
                let tally = three(answer, keeps);
                assert_eq!(tally.answered, 0, "{answer:?}");
                assert!(
                    tally.failed > 0 && tally.reasons().contains(why),
                    "{}",
                    tally.reasons()
                );
            }
        }
    }
}
