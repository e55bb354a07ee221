//! Shows that a long step is under way: a spinner on a terminal, plain lines elsewhere.
//!
//! In: what is being done. Out: lines on standard error, so that standard output stays for results.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A step under way. Dropped without [`Step::done`], it leaves no line: the error that follows says enough.
pub(crate) struct Step {
    what: String,
    since: Instant,
    bar: ProgressBar,
}

impl Step {
    /// Says what begins.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        let what = what.into();
        let bar = ProgressBar::new_spinner();
        if bar.is_hidden() {
            eprintln!("{what} …");
        }
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} … {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what.clone());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self {
            what,
            since: Instant::now(),
            bar,
        }
    }

    /// Says that it is done, and how long it took.
    pub(crate) fn done(self) {
        self.bar.finish_and_clear();
        let seconds = self.since.elapsed().as_secs_f32();
        eprintln!("{}: done in {seconds:.1} s", self.what);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
