//! Names to remove from a client. Some are kept for a while after their removal has become safe.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pending::{Age, Epochs, Pending};

#[derive(Debug)]
pub(crate) struct Removals {
    delay: Duration,
    /// Whether a name is removed without the delay.
    is_immediate: fn(&str) -> bool,
    immediate: Pending,
    delayed: Pending,
    /// Delayed removals before this epoch may be sent at this time.
    running: Option<(u64, Instant)>,
    /// Delayed removals before this epoch have waited long enough.
    released: u64,
}

impl Removals {
    pub(super) fn new(delay: Duration, is_immediate: fn(&str) -> bool) -> Self {
        Self {
            delay,
            is_immediate,
            immediate: Pending::default(),
            delayed: Pending::default(),
            running: None,
            released: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.immediate.len() + self.delayed.len()
    }

    pub(super) fn add(&mut self, name: &Arc<str>, epochs: Epochs) {
        self.of(name).add(name, epochs);
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Epochs> {
        self.of(name).remove(name)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Arc<str>) -> bool) {
        self.immediate.retain(&keep);
        self.delayed.retain(keep);
    }

    /// The oldest incomplete epoch.
    pub(super) fn watermark(&self) -> Option<u64> {
        let both = [self.immediate.watermark(), self.delayed.watermark()];
        both.into_iter().flatten().min()
    }

    /// Starts the delay if only the delay holds back a removal before the epoch `limit`.
    pub(crate) fn start_delay(&mut self, limit: u64, epoch: u64, now: Instant) {
        let next = self.delayed.next();
        let waits = next.is_some_and(|next| next < limit && next >= self.released);
        if self.running.is_none() && waits {
            self.running = Some((limit.min(epoch + 1), now + self.delay));
        }
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        if let Some((before, _)) = self.running.take_if(|(_, until)| now >= *until) {
            self.released = self.released.max(before);
        }
    }

    /// When a delay ends.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.running.map(|(_, until)| until)
    }

    /// Takes a name that may be removed now, given the epoch before which removals are safe.
    pub(super) fn pop_below(&mut self, limit: u64) -> Option<(Arc<str>, Epochs)> {
        let delayed = limit.min(self.released);
        self.immediate
            .pop_below(limit, Age::Oldest)
            .or_else(|| self.delayed.pop_below(delayed, Age::Oldest))
    }

    fn of(&mut self, name: &str) -> &mut Pending {
        match self.delay.is_zero() || (self.is_immediate)(name) {
            true => &mut self.immediate,
            false => &mut self.delayed,
        }
    }
}
