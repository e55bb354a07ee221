//! Looking at files one by one: what is in them now, or whether to wait and look again.
//!
//! In: paths. Out: what was read of each, unless its state may not last: files are often seen halfway
//! through a save.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::super::decode;
use super::super::merge::Reading;
use super::super::problem::Problem;
use super::super::read::{self, Content, ReadError, Stamp};
use super::super::text::Format;
use super::Table;

/// Some editors move a file away before they write it anew: how long it may be missing before its
/// objects go.
const MISSING_GRACE: Duration = Duration::from_millis(60);
/// Others empty it and then write: how long it may be empty.
const EMPTY_GRACE: Duration = Duration::from_millis(200);
/// When to look again at a file that changed while it was read, and when to take it as it is.
const TORN_AGAIN: Duration = Duration::from_millis(15);
const TORN_GRACE: Duration = Duration::from_millis(300);
/// A stat tells nothing of a second change within its clock's tick. Files changed less than this many
/// seconds before they were read are read once more at the next look.
pub(super) const RACY_SECONDS: i64 = 2;

/// A file in a state that may not last.
pub(super) struct Doubt {
    pub(super) why: Why,
    pub(super) since: Instant,
    pub(super) again: Instant,
}

/// What is doubtful about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It is not there.
    Missing,
    /// Empty, and its stat as it was then: written to since, it may just be empty again.
    Empty(Stamp),
    /// It changed while it was read.
    Torn,
    /// Nothing is wrong with it, but it must be read again.
    Reread,
}

impl Why {
    /// How long to wait before it is taken for real, and before the next look.
    fn patience(self) -> (Duration, Duration) {
        match self {
            Self::Missing => (MISSING_GRACE, MISSING_GRACE),
            Self::Empty(_) => (EMPTY_GRACE, EMPTY_GRACE),
            Self::Torn => (TORN_GRACE, TORN_AGAIN),
            Self::Reread => (Duration::ZERO, Duration::ZERO),
        }
    }
}

/// What one look at a file tells.
enum Look {
    /// The bytes are those that were read last.
    Same,
    Read(Reading),
    /// Wait, and look again.
    Doubtful(Why),
}

impl Table {
    /// Looks at these files. Objects that nobody knows yet are made at `made`.
    pub(super) fn look_at(
        &mut self,
        paths: Vec<Arc<Path>>,
        made: Option<Timestamp>,
    ) -> Vec<(Arc<Path>, Reading)> {
        // First the stats of all, so that a missing file is known to have been moved.
        for path in &paths {
            if let Ok(metadata) = std::fs::metadata(path)
                && metadata.is_file()
                && !self.left_out.contains(path)
            {
                self.track(path.clone(), Stamp::of(&metadata));
            }
        }
        let mut readings = Vec::new();
        let mut missing = Vec::new();
        for path in paths {
            let content = if self.left_out.contains(&path) {
                Err(ReadError::LeftOut)
            } else {
                self.work.reads += 1;
                read::read_file(&path, self.config.limits.file_bytes)
            };
            let look = match content {
                Err(ReadError::LeftOut) => Look::Read(Reading::Gone),
                Ok(content) => self.present(&path, content, made),
                Err(ReadError::Missing) => {
                    missing.push(path);
                    continue;
                }
                Err(error) => {
                    if let Some(tracked) = self.tracked.get_mut(&path) {
                        // Read again only when its stat changes, and then whatever is in it.
                        (tracked.hash, tracked.sure) = (None, true);
                    }
                    Look::Read(failed(&path, &error))
                }
            };
            self.note(path, look, &mut readings);
        }
        // Those that are there tell now whether a missing one was moved.
        for path in missing {
            let look = self.missing(&path, &readings);
            self.note(path, look, &mut readings);
        }
        readings
    }

    /// Keeps what a look told.
    fn note(&mut self, path: Arc<Path>, look: Look, readings: &mut Vec<(Arc<Path>, Reading)>) {
        match look {
            Look::Same => {
                self.doubts.remove(&path);
            }
            Look::Read(reading) => {
                self.doubts.remove(&path);
                if matches!(reading, Reading::Gone)
                    && let Some(gone) = self.tracked.remove(&path)
                {
                    self.forget_name(gone.stamp.identity, &path);
                }
                readings.push((path, reading));
            }
            Look::Doubtful(why) => {
                let now = Instant::now();
                let old = self.doubts.get(&path).filter(|doubt| doubt.why == why);
                let since = old.map_or(now, |doubt| doubt.since);
                let (grace, again) = why.patience();
                let again = (now + again).min(since + grace);
                self.doubts.insert(path, Doubt { why, since, again });
            }
        }
    }

    /// Whether a file's doubtful state has lasted.
    fn lasted(&self, path: &Path, why: Why) -> bool {
        self.doubts
            .get(path)
            .is_some_and(|doubt| doubt.why == why && doubt.since.elapsed() >= why.patience().0)
    }

    fn missing(&self, path: &Arc<Path>, readings: &[(Arc<Path>, Reading)]) -> Look {
        // Moved: under its new name it is read already, with what is in it.
        let moved = self
            .tracked
            .get(path)
            .and_then(|tracked| self.names.get(&tracked.stamp.identity))
            .filter(|now| *now != path)
            .is_some_and(|now| {
                let arrives = |(file, reading): &(Arc<Path>, Reading)| {
                    file == now
                        && matches!(reading, Reading::Parsed(parsed) if !parsed.found.is_empty())
                };
                self.set.holds(now) || readings.iter().any(arrives)
            });
        if moved || !self.set.holds(path) || self.lasted(path, Why::Missing) {
            return Look::Read(Reading::Gone);
        }
        Look::Doubtful(Why::Missing)
    }

    fn present(&mut self, path: &Arc<Path>, content: Content, made: Option<Timestamp>) -> Look {
        let Content {
            text,
            hash,
            stamp,
            torn,
        } = content;
        let holds = self.set.holds(path);
        if torn && holds && !self.lasted(path, Why::Torn) {
            return Look::Doubtful(Why::Torn);
        }
        let empty = Why::Empty(stamp);
        if text.trim_ascii().is_empty() && holds && !self.lasted(path, empty) {
            return Look::Doubtful(empty);
        }
        let now = Timestamp::now().as_second();
        let mut same = false;
        if let Some(tracked) = self.tracked.get_mut(path) {
            tracked.stamp = stamp;
            tracked.sure = !torn && now.saturating_sub(stamp.seconds()) >= RACY_SECONDS;
            same = tracked.hash.replace(hash) == Some(hash);
        }
        if same {
            return Look::Same;
        }
        self.work.parses += 1;
        Look::Read(self.parse(path, &text, made))
    }

    /// Takes the text of a file apart.
    pub(super) fn parse(&self, file: &Path, text: &str, made: Option<Timestamp>) -> Reading {
        let json = file
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let format = if json { Format::Json } else { Format::Yaml };
        let before = self.set.before(file, made);
        Reading::Parsed(decode::parse(
            file,
            text,
            format,
            &self.config.limits,
            &before,
        ))
    }
}

/// The reading of a file that could not be read.
pub(super) fn failed(file: &Path, error: &ReadError) -> Reading {
    Reading::Failed(Problem::of_file(file, error.to_string()))
}
