//! Watching real folders: the ways in which files are saved, replaced and removed.
//!
//! Except in the polling tests, files are polled once an hour, so changes are detected through events. Each
//! test waits for the expected state.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use notify::event::{DataChange, RenameMode};
use sesame_api::{Object, ObjectKey};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;
use crate::change::Change;

/// Only a failing test takes this long.
const DEADLINE: Duration = Duration::from_secs(30);
const NEVER: Duration = Duration::from_secs(3600);

fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n---\n"
    )
}

/// A watched folder and the change sets received.
struct Watching {
    dir: TempDir,
    rx: mpsc::Receiver<ChangeSet>,
    task: JoinHandle<Result<(), WatchError>>,
    objects: BTreeMap<ObjectKey, Object>,
    errors: Vec<FileError>,
    removed: Vec<String>,
    sets: usize,
}

impl Watching {
    /// Watches a new folder that contains these files.
    async fn new(files: &[(&str, &str)]) -> Self {
        Self::of(
            tempfile::tempdir().unwrap(),
            files,
            |dir| vec![dir.to_owned()],
            NEVER,
            true,
        )
        .await
    }

    async fn of(
        dir: TempDir,
        files: &[(&str, &str)],
        paths: impl FnOnce(&Path) -> Vec<PathBuf>,
        rescan: Duration,
        events: bool,
    ) -> Self {
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let (tx, rx) = mpsc::channel(4);
        let mut config = FilesConfig::new(paths(dir.path()));
        config.rescan = rescan;
        let task = tokio::spawn(watch_by(config, tx, events));
        let mut watching = Self {
            dir,
            rx,
            task,
            objects: BTreeMap::new(),
            errors: Vec::new(),
            removed: Vec::new(),
            sets: 0,
        };
        watching.next().await;
        watching
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Receives the next set.
    async fn next(&mut self) {
        let set = tokio::time::timeout(DEADLINE, self.rx.recv()).await;
        let set =
            set.unwrap_or_else(|_| panic!("no change set: {:?} {:?}", self.state(), self.errors));
        let set = set.expect("the watch ended");
        self.sets += 1;
        let mut last = None;
        for change in set.changes {
            assert!(
                last.as_ref() < Some(&change.key()),
                "ordered, and each object once"
            );
            last = Some(change.key());
            match change {
                Change::Upsert(object) => {
                    let before = self.objects.insert(object.key(), object.clone());
                    assert_ne!(before, Some(object), "an upsert is a change");
                }
                Change::Remove(key) => {
                    assert!(self.objects.remove(&key).is_some(), "{key} was there");
                    self.removed.push(key.name.to_string());
                }
            }
        }
        self.errors = set.errors;
    }

    /// `name:port` of each object.
    fn state(&self) -> String {
        let all = self.objects.values().map(|object| match object {
            Object::Service(service) => {
                let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
                format!(
                    "{}:{}",
                    object.key().name,
                    ports.map_or(0, |ports| ports[0].port)
                )
            }
            other => other.key().to_string(),
        });
        all.collect::<Vec<_>>().join(" ")
    }

    /// Waits for this state and exactly this many errors.
    async fn until(&mut self, state: &str, errors: usize) {
        while self.state() != state || self.errors.len() != errors {
            self.next().await;
        }
    }
}

#[tokio::test]
async fn a_file_is_saved_by_writing_into_it() {
    let mut w = Watching::new(&[("a.yaml", &service("s", 1))]).await;
    assert_eq!(w.state(), "s:1");
    for port in 2..12 {
        // Truncates first, so the file is briefly empty.
        w.write("a.yaml", &service("s", port));
        w.until(&format!("s:{port}"), 0).await;
    }
    assert_eq!(w.removed, [""; 0]);
    let generation = w.objects.values().next().unwrap().generation();
    assert_eq!(generation, 11);
}

#[tokio::test]
async fn a_file_is_saved_slowly() {
    let mut w = Watching::new(&[("a.yaml", &[service("s", 1), service("t", 1)].concat())]).await;
    let mut file = fs::File::create(w.path("a.yaml")).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    file.write_all(service("s", 2).as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    file.write_all(service("t", 2).as_bytes()).unwrap();
    drop(file);
    w.until("s:2 t:2", 0).await;
}

#[tokio::test]
async fn a_file_is_saved_by_renaming_another_over_it() {
    let mut w = Watching::new(&[("a.yaml", &service("s", 1))]).await;
    for port in 2..8 {
        w.write(".a.yaml.swp", &service("s", port));
        fs::rename(w.path(".a.yaml.swp"), w.path("a.yaml")).unwrap();
        w.until(&format!("s:{port}"), 0).await;
    }
    w.write("tmp.txt", &service("s", 9));
    fs::rename(w.path("tmp.txt"), w.path("a.yaml")).unwrap();
    w.until("s:9", 0).await;
    assert_eq!(w.removed, [""; 0]);
}

#[tokio::test]
async fn a_file_is_saved_by_moving_it_away_first() {
    let mut w = Watching::new(&[("a.yaml", &service("s", 1))]).await;
    for port in 2..8 {
        w.write("4913", "");
        fs::remove_file(w.path("4913")).unwrap();
        fs::rename(w.path("a.yaml"), w.path("a.yaml~")).unwrap();
        w.write("a.yaml", &service("s", port));
        fs::remove_file(w.path("a.yaml~")).unwrap();
        w.until(&format!("s:{port}"), 0).await;
    }
    assert_eq!(w.removed, [""; 0]);
}

#[tokio::test]
async fn emptying_or_deleting_a_file_removes_its_objects() {
    let mut w = Watching::new(&[("a.yaml", &service("s", 1)), ("b.yaml", &service("t", 1))]).await;
    w.write("a.yaml", "");
    w.until("t:1", 0).await;
    fs::remove_file(w.path("b.yaml")).unwrap();
    w.until("", 0).await;
    w.write("b.yaml", &service("t", 2));
    w.until("t:2", 0).await;
    assert_eq!(w.objects.values().next().unwrap().generation(), 1);
}

#[tokio::test]
async fn an_invalid_file_keeps_its_objects_and_doesnt_affect_others() {
    let mut w = Watching::new(&[("a.yaml", &service("s", 1)), ("b.yaml", &service("t", 1))]).await;
    w.write("a.yaml", &service("s", 2).replace("}]", ""));
    w.until("s:1 t:1", 1).await;
    let error = w.errors[0].to_string();
    assert!(
        error.starts_with(&format!("{}:4:", w.path("a.yaml").display()))
            || error.starts_with(&format!("{}:5:", w.path("a.yaml").display())),
        "{error}"
    );
    w.write("b.yaml", &service("t", 2));
    w.until("s:1 t:2", 1).await;
    fs::write(w.path("a.yaml"), b"\xff\xff").unwrap();
    while !w.errors.iter().any(|error| error.message.contains("UTF-8")) {
        w.next().await;
    }
    assert_eq!(w.state(), "s:1 t:2");
    w.write("a.yaml", &service("s", 3));
    w.until("s:3 t:2", 0).await;
    assert_eq!(w.removed, [""; 0]);
}

#[tokio::test]
async fn a_duplicate_is_an_error_until_it_takes_over() {
    let mut w = Watching::new(&[("b.yaml", &service("s", 1))]).await;
    w.write("a.yaml", &service("s", 2));
    w.until("s:1", 1).await;
    assert_eq!(w.errors[0].file, w.path("a.yaml"));
    fs::remove_file(w.path("b.yaml")).unwrap();
    w.until("s:2", 0).await;
    assert_eq!(w.removed, [""; 0]);
}

#[tokio::test]
async fn folders_come_go_and_move() {
    let mut w = Watching::new(&[("a.yaml", &service("s", 1))]).await;
    fs::create_dir_all(w.path("new/deep")).unwrap();
    w.write("new/deep/t.yaml", &service("t", 1));
    w.until("s:1 t:1", 0).await;
    // The folder is now watched.
    w.write("new/deep/t.yaml", &service("t", 2));
    w.until("s:1 t:2", 0).await;
    fs::rename(w.path("new"), w.path("other")).unwrap();
    // Save by renaming, since a file that is truncated right after a move may briefly lose its objects.
    w.write("t.txt", &service("t", 3));
    fs::rename(w.path("t.txt"), w.path("other/deep/t.yaml")).unwrap();
    w.until("s:1 t:3", 0).await;
    assert_eq!(w.removed, [""; 0]);
    fs::remove_dir_all(w.path("other")).unwrap();
    w.until("s:1", 0).await;
    // A new folder in its place, probably with the same inode.
    fs::create_dir(w.path("other")).unwrap();
    w.write("other/u.yaml", &service("u", 1));
    w.until("s:1 u:1", 0).await;
    w.write("other/u.yaml", &service("u", 2));
    w.until("s:1 u:2", 0).await;
}

#[tokio::test]
async fn a_config_map_volume_is_updated() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    let publish = |version: u16| {
        let folder = format!("..2026_{version}");
        fs::create_dir(root.join(&folder)).unwrap();
        fs::write(root.join(&folder).join("s.yaml"), service("s", version)).unwrap();
        fs::write(root.join(&folder).join("t.yaml"), service("t", version)).unwrap();
        symlink(&folder, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        let _ = fs::remove_dir_all(root.join(format!("..2026_{}", version - 1)));
    };
    publish(1);
    symlink("..data/s.yaml", root.join("s.yaml")).unwrap();
    symlink("..data/t.yaml", root.join("t.yaml")).unwrap();
    let mut w = Watching::of(dir, &[], |dir| vec![dir.to_owned()], NEVER, true).await;
    assert_eq!(w.state(), "s:1 t:1");
    for version in 2..6 {
        publish(version);
        w.until(&format!("s:{version} t:{version}"), 0).await;
    }
    assert_eq!(w.removed, [""; 0]);
}

#[tokio::test]
async fn a_change_to_a_links_target_is_detected() {
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("target");
    fs::write(&target, service("s", 1)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    symlink(&target, dir.path().join("s.yaml")).unwrap();
    let mut w = Watching::of(dir, &[], |dir| vec![dir.to_owned()], NEVER, true).await;
    fs::write(&target, service("s", 2)).unwrap();
    w.until("s:2", 0).await;
}

#[tokio::test]
async fn a_file_given_by_its_path_may_be_created_later() {
    let paths = |dir: &Path| vec![dir.join("later.conf"), dir.join("sub/deep.yaml")];
    let dir = tempfile::tempdir().unwrap();
    let other = [("other.yaml", &*service("x", 1))];
    let mut w = Watching::of(dir, &other, paths, NEVER, true).await;
    assert_eq!((w.state().as_str(), w.errors.len()), ("", 2));
    w.write("later.conf", &service("s", 1));
    w.until("s:1", 1).await;
    w.write("later.conf", &service("s", 2));
    w.until("s:2", 1).await;
    fs::create_dir(w.path("sub")).unwrap();
    w.write("sub/deep.yaml", &service("t", 1));
    w.until("s:2 t:1", 0).await;
    w.write("sub/deep.yaml", &service("t", 2));
    w.until("s:2 t:2", 0).await;
}

#[tokio::test]
async fn the_folder_itself_may_be_replaced() {
    let paths = |dir: &Path| vec![dir.join("current")];
    let dir = tempfile::tempdir().unwrap();
    for version in 1..4 {
        fs::create_dir(dir.path().join(format!("v{version}"))).unwrap();
        let file = dir.path().join(format!("v{version}/a.yaml"));
        fs::write(file, service("s", version)).unwrap();
    }
    symlink("v1", dir.path().join("current")).unwrap();
    let mut w = Watching::of(dir, &[], paths, NEVER, true).await;
    assert_eq!(w.state(), "s:1");
    symlink("v2", w.path("tmp")).unwrap();
    fs::rename(w.path("tmp"), w.path("current")).unwrap();
    w.until("s:2", 0).await;
    w.write("v2/a.yaml", &service("s", 5));
    w.until("s:5", 0).await;
    assert_eq!(w.removed, [""; 0]);
    // A removed folder is an error; a restored one is read again.
    fs::remove_file(w.path("current")).unwrap();
    w.until("", 1).await;
    fs::rename(w.path("v3"), w.path("current")).unwrap();
    w.until("s:3", 0).await;
    w.write("current/a.yaml", &service("s", 4));
    w.until("s:4", 0).await;
}

#[tokio::test]
async fn other_files_cause_no_change_sets() {
    let mut w = Watching::new(&[("a.yaml", &service("s", 1))]).await;
    let sets = w.sets;
    for name in [".hidden.yaml", "notes.txt", "a.yaml~", ".a.yaml.swp"] {
        w.write(name, &service("x", 1));
    }
    let text = fs::read(w.path("a.yaml")).unwrap();
    fs::write(w.path("a.yaml"), text).unwrap();
    fs::File::open(w.path("a.yaml")).unwrap();
    w.write("z.yaml", &service("z", 1));
    w.until("s:1 z:1", 0).await;
    assert_eq!(w.sets, sets + 1);
}

#[tokio::test]
async fn without_events_files_are_polled() {
    let dir = tempfile::tempdir().unwrap();
    let files = [("a.yaml", &*service("s", 1))];
    let often = Duration::from_millis(20);
    let mut w = Watching::of(dir, &files, |dir| vec![dir.to_owned()], often, false).await;
    for port in 2..6 {
        w.write("a.yaml", &service("s", port));
        w.until(&format!("s:{port}"), 0).await;
    }
    fs::create_dir(w.path("sub")).unwrap();
    w.write("sub/t.yaml", &service("t", 1));
    w.until("s:5 t:1", 0).await;
    fs::remove_file(w.path("a.yaml")).unwrap();
    w.until("t:1", 0).await;
}

#[tokio::test]
async fn objects_that_appear_later_are_younger() {
    let mut w = Watching::new(&[("a.yaml", &service("s", 1))]).await;
    w.write("b.yaml", &service("t", 1));
    w.until("s:1 t:1", 0).await;
    let created: Vec<_> = w
        .objects
        .values()
        .map(|object| match object {
            Object::Service(service) => service.metadata.creation_timestamp.is_some(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(created, [false, true]);
}

#[tokio::test]
async fn a_watch_ends_with_its_receiver() {
    let w = Watching::new(&[]).await;
    drop(w.rx);
    let ended = tokio::time::timeout(DEADLINE, w.task).await;
    assert!(ended.unwrap().unwrap().is_ok());
}

#[tokio::test]
async fn without_watching_there_is_one_set() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), service("s", 1)).unwrap();
    let mut config = FilesConfig::new([dir.path()]);
    config.watch = false;
    let (tx, mut rx) = mpsc::channel(4);
    watch(config, tx).await.unwrap();
    assert_eq!(rx.recv().await.unwrap().changes.len(), 1);
    assert!(rx.recv().await.is_none());
}

#[tokio::test]
async fn a_slow_receiver_gets_the_last_state() {
    let mut w = Watching::new(&[("a.yaml", &service("s", 1))]).await;
    for port in 2..60 {
        w.write("a.yaml", &service("s", port));
        w.write(&format!("{port}.yaml"), "# nothing\n");
        std::thread::sleep(Duration::from_millis(2));
    }
    w.until("s:59", 0).await;
    assert_eq!(w.removed, [""; 0]);
}

const MODIFIED: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
const CLOSED: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));
const RENAMED: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::To));
const OPENED: EventKind = EventKind::Access(AccessKind::Open(AccessMode::Any));

/// The time, from the start, at which events at these times (in milliseconds) are handled.
fn ready(events: &[(EventKind, u64)]) -> Option<Duration> {
    let start = Instant::now();
    let mut debounce = Debounce::default();
    for (kind, millis) in events {
        if let Some(quiet) = quiet(*kind) {
            debounce.add(start + Duration::from_millis(*millis), quiet);
        }
    }
    debounce.ready().map(|ready| ready - start)
}

#[test]
fn a_closed_file_is_read_sooner_than_an_open_one() {
    assert_eq!(ready(&[]), None);
    assert_eq!(ready(&[(OPENED, 0)]), None);
    assert_eq!(ready(&[(MODIFIED, 0)]), Some(QUIET_WHILE_OPEN));
    let two = Duration::from_millis(2);
    assert_eq!(ready(&[(MODIFIED, 0), (CLOSED, 2)]), Some(two + QUIET));
    assert_eq!(ready(&[(MODIFIED, 0), (RENAMED, 2)]), Some(two + QUIET));
}

#[test]
fn a_file_under_constant_writes_is_read() {
    let events: Vec<_> = (0..10_000).map(|millis| (MODIFIED, millis)).collect();
    assert_eq!(ready(&events), Some(MAX_DEBOUNCE));
}
