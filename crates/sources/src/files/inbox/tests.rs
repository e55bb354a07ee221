//! When events are handed on, and which: told by given times, without a clock.

use notify::Event;
use notify::event::{DataChange, Flag, ModifyKind, RemoveKind, RenameMode};

use super::*;

const MODIFIED: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
const CLOSED: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));
const RENAMED: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::To));
const CREATED: EventKind = EventKind::Create(CreateKind::File);

fn event(kind: EventKind, path: &str) -> notify::Result<Event> {
    Ok(Event::new(kind).add_path(path.into()))
}

fn at(start: Instant, millis: u64) -> Instant {
    start + Duration::from_millis(millis)
}

#[test]
fn a_closed_file_is_ready_soon_and_an_open_one_later() {
    let start = Instant::now();
    let mut state = State::default();
    assert_eq!(state.ready(), None);
    assert!(state.take(event(MODIFIED, "/d/a.yaml"), start));
    assert_eq!(state.ready(), Some(start + QUIET_WHILE_OPEN));
    assert!(state.take(event(MODIFIED, "/d/a.yaml"), at(start, 1)));
    assert!(state.take(event(CLOSED, "/d/a.yaml"), at(start, 2)));
    assert_eq!(state.ready(), Some(at(start, 2) + QUIET));
    // Another file is still open.
    assert!(state.take(event(CREATED, "/d/b.yaml"), at(start, 3)));
    assert_eq!(state.ready(), Some(at(start, 3) + QUIET_WHILE_OPEN));
    assert!(state.take(event(RENAMED, "/d/b.yaml"), at(start, 4)));
    assert_eq!(state.ready(), Some(at(start, 4) + QUIET));
    let touched = state.touched().unwrap();
    assert_eq!(touched.first, start);
    assert_eq!(touched.paths.len(), 2);
    assert!(!touched.everything);
    assert!(state.touched().is_none());
}

#[test]
fn a_writer_without_rest_does_not_hold_up_for_ever() {
    let start = Instant::now();
    let mut state = State::default();
    for millis in 0..10_000 {
        state.take(event(MODIFIED, "/d/a.yaml"), at(start, millis));
    }
    assert_eq!(state.ready(), Some(start + LONGEST));
}

#[test]
fn only_what_may_be_ours_matters() {
    let now = Instant::now();
    let mut state = State {
        odd_names: HashSet::from([OsString::from("odd")]),
        ..State::default()
    };
    let removed = EventKind::Remove(RemoveKind::Any);
    let opened = EventKind::Access(AccessKind::Open(AccessMode::Any));
    for (kind, path, matters) in [
        (MODIFIED, "/d/a.yaml", true),
        (MODIFIED, "/d/a.JSON", true),
        (MODIFIED, "/d/odd", true),
        (MODIFIED, "/d/log.txt", false),
        (CLOSED, "/d/log.txt", false),
        (opened, "/d/a.yaml", false),
        (removed, "/d/folder", true),
        (CREATED, "/d/link", true),
        (CREATED, "/d/.a.yaml.swp", false),
        (RENAMED, "/d/..data", true),
        (MODIFIED, "/d/..data", false),
    ] {
        assert_eq!(
            state.take(event(kind, path), now),
            matters,
            "{kind:?} {path}"
        );
    }
}

#[test]
fn lost_events_and_too_many_mean_everything() {
    let now = Instant::now();
    let mut state = State::default();
    let lost = Event::new(EventKind::Other).set_flag(Flag::Rescan);
    assert!(state.take(Ok(lost), now));
    assert!(state.touched().unwrap().everything);
    assert!(state.take(Err(notify::Error::generic("broken")), now));
    assert!(state.touched().unwrap().everything);
    for n in 0..=MOST_PATHS {
        state.take(event(MODIFIED, &format!("/d/{n}.yaml")), now);
    }
    let touched = state.touched().unwrap();
    assert_eq!(touched.paths.len(), MOST_PATHS);
    assert!(touched.everything);
    assert!(state.open.is_empty());
}

#[test]
fn waiting_ends_by_an_event_the_deadline_or_a_stop() {
    let inbox = Inbox::default();
    let soon = Instant::now() + Duration::from_millis(1);
    assert!(matches!(inbox.wait(soon), Woken::TimeOut));
    inbox.put(event(CLOSED, "/d/a.yaml"));
    let late = Instant::now() + Duration::from_secs(3600);
    assert!(matches!(inbox.wait(late), Woken::Touched(_)));
    inbox.put(event(CLOSED, "/d/notes.txt"));
    let soon = Instant::now() + Duration::from_millis(1);
    assert!(matches!(inbox.wait(soon), Woken::TimeOut));
    inbox.stop();
    assert!(matches!(inbox.wait(late), Woken::Stopped));
}
