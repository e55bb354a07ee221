//! Liveness of the translator thread.
//!
//! In: its message queue. Out: the reason why the thread isn't alive, if any. At most one ping waits for the thread.
//! Probes only read its outcome: they get a response immediately, and they don't load the thread.

use std::future::{Future, pending};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::translator::{Message, inspect};

/// The interval between pings.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// If the thread takes longer to respond, it hangs, or it is translating tens of thousands of objects at once. The
/// latter is not fatal: the kubelet restarts a replica only after a minute of failures (`deploy/chart`), and the first
/// commit of 50,000 objects takes seconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(8);

/// The last ping.
#[derive(Clone, Copy, Debug)]
enum Ping {
    Sent(Instant),
    Answered,
    /// The thread has ended.
    Failed,
}

/// Whether the translator thread handles messages; readable at any time.
#[derive(Clone, Debug)]
pub(crate) struct Liveness(watch::Receiver<Ping>);

impl Liveness {
    /// Why the thread is not alive; `None` if it is.
    pub(crate) fn failure(&self) -> Option<String> {
        match *self.0.borrow() {
            Ping::Answered => None,
            Ping::Sent(at) => {
                let waiting = at.elapsed();
                (waiting >= RESPONSE_TIMEOUT).then(|| {
                    let seconds = waiting.as_secs();
                    format!("the translator thread has not responded for {seconds} s")
                })
            }
            Ping::Failed => Some("the translator thread has ended".to_owned()),
        }
    }
}

/// The liveness of this translator's thread, and the task that updates it. The task never ends.
pub(crate) fn start(
    translator: mpsc::WeakSender<Message>,
) -> (Liveness, impl Future<Output = ()> + Send + 'static) {
    let (last, liveness) = watch::channel(Ping::Answered);
    let pings = async move {
        loop {
            last.send_replace(Ping::Sent(Instant::now()));
            if inspect(&translator, |_| ()).await.is_none() {
                break;
            }
            last.send_replace(Ping::Answered);
            sleep(PING_INTERVAL).await;
        }
        last.send_replace(Ping::Failed);
        pending().await
    };
    (Liveness(liveness), pings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Core;

    /// The maximum time between a failure and its detection.
    const DETECTION: Duration = Duration::from_secs(10);

    struct Rig {
        translator: mpsc::Sender<Message>,
        messages: mpsc::Receiver<Message>,
        liveness: Liveness,
    }

    fn rig(capacity: usize) -> Rig {
        let (translator, messages) = mpsc::channel(capacity);
        let (liveness, pings) = start(translator.downgrade());
        tokio::spawn(pings);
        Rig {
            translator,
            messages,
            liveness,
        }
    }

    impl Rig {
        /// Handles messages for this long, as the translator does.
        async fn run(&mut self, time: Duration) {
            let core = Core::new(crate::Options::default());
            let handle = async {
                while let Some(message) = self.messages.recv().await {
                    if let Message::Inspect(read) = message {
                        read(&core);
                    }
                    assert_eq!(self.liveness.failure(), None);
                }
            };
            let _ = tokio::time::timeout(time, handle).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_hangs_is_detected_and_may_recover() {
        let mut rig = rig(16);
        rig.run(Duration::from_secs(100)).await;
        sleep(RESPONSE_TIMEOUT - Duration::from_millis(1)).await;
        assert_eq!(rig.liveness.failure(), None);
        sleep(DETECTION - RESPONSE_TIMEOUT).await;
        let failure = rig.liveness.failure().unwrap();
        assert!(failure.contains("has not responded for"), "{failure}");
        sleep(Duration::from_secs(1000)).await;
        assert_eq!(rig.messages.len(), 1, "only one ping waits");
        let Some(Message::Inspect(read)) = rig.messages.recv().await else {
            panic!("no ping");
        };
        read(&Core::new(crate::Options::default()));
        tokio::task::yield_now().await;
        assert_eq!(rig.liveness.failure(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_is_detected() {
        let mut rig = rig(1);
        rig.run(Duration::from_millis(1500)).await;
        rig.translator
            .send(Message::FleetStates)
            .await
            .expect("the queue is open");
        sleep(DETECTION).await;
        assert!(rig.liveness.failure().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_has_ended_is_detected_at_once() {
        let mut rig = rig(16);
        rig.run(Duration::from_millis(1500)).await;
        drop(rig.messages);
        sleep(PING_INTERVAL).await;
        let failure = rig.liveness.failure().unwrap();
        assert_eq!(failure, "the translator thread has ended");
        sleep(Duration::from_secs(1000)).await;
        assert!(rig.liveness.failure().is_some());
    }
}
