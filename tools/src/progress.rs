//! Progress of long steps on standard error: a spinner on a terminal, otherwise lines.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A running step. If dropped without [`Step::done`], it leaves no line, since an error follows.
pub struct Step {
    what: String,
    since: Instant,
    bar: ProgressBar,
}

impl Step {
    /// Starts a step and prints it.
    pub fn new(what: impl Into<String>) -> Self {
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

    /// Completes the step and prints its duration.
    pub fn done(self) {
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
