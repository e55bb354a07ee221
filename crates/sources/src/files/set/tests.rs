//! Files on a real file system: which ones are found and read, and the cost.

mod objects;

use std::os::unix::fs::symlink;
use std::process::Command;

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::{Limits, Snapshot, load, load_with};
use super::*;

fn service(name: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n")
}

fn dir(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    snapshot
        .objects
        .iter()
        .map(|object| object.key().name.to_string())
        .collect()
}

/// The errors, without the folder's path.
fn messages(dir: &TempDir, errors: &[FileError]) -> Vec<String> {
    let root = format!("{}/", dir.path().display());
    errors
        .iter()
        .map(|error| error.to_string().replace(&root, ""))
        .collect()
}

fn config(paths: &[&Path]) -> FilesConfig {
    FilesConfig::new(paths.iter().copied())
}

fn keys(changes: &[Change]) -> Vec<String> {
    changes
        .iter()
        .map(|change| change.key().name.to_string())
        .collect()
}

#[test]
fn folders_are_read_recursively_and_files_given_by_path_may_have_any_name() {
    let dir = dir(&[
        ("b/c.yml", &service("c")),
        ("a.yaml", &service("a")),
        (
            "d.JSON",
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"d"}}"#,
        ),
        ("e.txt", &service("x")),
        (".hidden.yaml", &service("x")),
        (".git/f.yaml", &service("x")),
        ("g.yaml~", &service("x")),
        ("job.yaml", "apiVersion: batch/v1\nkind: Job\n"),
    ]);
    let snapshot = load(&config(&[dir.path()]));
    assert_eq!(names(&snapshot), ["a", "c", "d"]);
    assert_eq!(snapshot.errors, []);
    assert!(
        snapshot
            .objects
            .iter()
            .all(|object| object.generation() == 1)
    );
    assert_eq!(load(&config(&[dir.path()])), snapshot);
    let named = [dir.path().join("e.txt"), dir.path().join(".hidden.yaml")];
    let snapshot = load(&config(&[&named[0]]));
    assert_eq!(names(&snapshot), ["x"]);
    let snapshot = load(&config(&[&named[0], &named[1]]));
    assert_eq!(names(&snapshot), ["x"]);
    let messages = messages(&dir, &snapshot.errors);
    assert!(
        messages[0].starts_with("e.txt:1:1: Service/default/x: already defined at"),
        "{messages:?}"
    );
}

#[test]
fn standard_input_is_read() {
    let dir = dir(&[("a.yaml", &service("a"))]);
    let paths = config(&[Path::new("-"), dir.path()]);
    let text = format!("{}---\nkind: [\n", service("s"));
    let snapshot = load_with(&paths, &mut text.as_bytes());
    assert_eq!(names(&snapshot), ["a", "s"]);
    assert_eq!(snapshot.errors.len(), 1);
    assert!(
        snapshot.errors[0].to_string().starts_with("<stdin>:"),
        "{:?}",
        snapshot.errors
    );
    let mut small = paths.clone();
    small.limits.file_bytes = 100;
    let snapshot = load_with(&small, &mut std::io::repeat(b'x'));
    assert_eq!(names(&snapshot), ["a"]);
    assert_eq!(
        snapshot.errors[0].to_string(),
        "<stdin>: larger than 100 bytes"
    );
}

#[test]
fn links_are_followed_and_no_file_is_read_twice() {
    let dir = dir(&[
        ("real/a.yaml", &service("a")),
        ("..data1/b.yaml", &service("b")),
    ]);
    let root = dir.path();
    symlink(root, root.join("real/loop")).unwrap();
    symlink(root.join("real"), root.join("zlink")).unwrap();
    symlink(root.join("real/a.yaml"), root.join("zlink.yaml")).unwrap();
    symlink("..data1", root.join("..data")).unwrap();
    symlink("..data/b.yaml", root.join("b.yaml")).unwrap();
    let snapshot = load(&config(&[root, root, &root.join("real/a.yaml")]));
    assert_eq!(names(&snapshot), ["a", "b"]);
    assert_eq!(snapshot.errors, []);
}

#[test]
fn an_unreadable_file_is_an_error_and_doesnt_affect_others() {
    let dir = dir(&[
        ("a.yaml", &service("a")),
        ("big.yaml", &"# x\n".repeat(1000)),
    ]);
    let root = dir.path();
    fs::write(root.join("bytes.yaml"), b"a: \xff\xfe").unwrap();
    symlink("nowhere", root.join("dangling.yaml")).unwrap();
    symlink("self.yaml", root.join("self.yaml")).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(root.join("pipe.yaml"))
            .status()
            .unwrap()
            .success()
    );
    let missing = root.join("missing.yaml");
    let mut config = config(&[root, &missing]);
    config.limits.file_bytes = 500;
    let snapshot = load(&config);
    assert_eq!(names(&snapshot), ["a"]);
    let messages = messages(&dir, &snapshot.errors);
    assert_eq!(messages[0], "big.yaml: larger than 500 bytes");
    assert_eq!(
        messages[1],
        "bytes.yaml: not UTF-8: invalid byte at offset 3"
    );
    assert_eq!(messages[2], "dangling.yaml: dangling symbolic link");
    assert_eq!(messages[3], "missing.yaml: no such file or folder");
    assert_eq!(messages[4], "pipe.yaml: not a regular file");
    assert!(
        messages[5].starts_with("self.yaml: cannot be read: "),
        "{messages:?}"
    );
    assert_eq!(messages.len(), 6);
}

#[test]
fn exceeding_a_walk_limit_is_one_error() {
    let dir = dir(&[
        ("a.yaml", &service("a")),
        ("b.yaml", &service("b")),
        ("c.yaml", &service("c")),
        ("d/e/f/g.yaml", &service("g")),
    ]);
    let load_within = |limits: Limits| {
        let mut config = config(&[dir.path()]);
        config.limits = limits;
        let snapshot = load(&config);
        (names(&snapshot), messages(&dir, &snapshot.errors))
    };
    let default = Limits::default;
    let (found, messages) = load_within(Limits {
        files: 2,
        ..default()
    });
    assert_eq!(found, ["a", "b"]);
    assert_eq!(
        messages,
        ["c.yaml: more than 2 files (this path and later ones are not read)"]
    );
    let (found, messages) = load_within(Limits {
        folder_depth: 2,
        ..default()
    });
    assert_eq!(found, ["a", "b", "c"]);
    assert!(
        messages[0].starts_with("d/e/f: folders nested more than 2 levels deep"),
        "{messages:?}"
    );
    let (found, messages) = load_within(Limits {
        folders: 3,
        ..default()
    });
    assert_eq!(found, ["a", "b", "c"]);
    assert!(
        messages[0].starts_with("d/e/f: more than 3 folders"),
        "{messages:?}"
    );
    let (found, messages) = load_within(Limits {
        total_bytes: 120,
        ..default()
    });
    assert_eq!(found, ["a", "b"]);
    assert!(
        messages[0].starts_with("c.yaml: more than 120 bytes"),
        "{messages:?}"
    );
    let (found, messages) = load_within(Limits {
        objects: 1,
        ..default()
    });
    assert_eq!(found, ["a"]);
    assert_eq!(messages.len(), 3);
}

/// A set that has completed its first read.
fn read(config: FilesConfig) -> FileSet {
    let mut set = FileSet::new(config);
    set.first(&mut std::io::empty());
    set
}

/// Refreshes as if this much time had passed.
fn refresh_in(set: &mut FileSet, delay: Duration) -> Vec<Change> {
    let RefreshTime { instant, time } = RefreshTime::now();
    let now = RefreshTime {
        instant: instant + delay,
        time: time + delay,
    };
    set.refresh(now)
}

/// Refreshes late enough that every file's stat is reliable.
fn refresh(set: &mut FileSet) -> Vec<Change> {
    refresh_in(set, Duration::from_secs(10))
}

#[test]
fn only_changed_files_are_read_and_parsed() {
    let all: Vec<_> = (0..50)
        .map(|i| (format!("{i}.yaml"), service(&format!("s{i}"))))
        .collect();
    let all: Vec<_> = all.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
    let dir = dir(&all);
    let mut set = read(config(&[dir.path()]));
    // Files written just before they were read are reread and found unchanged.
    assert_eq!(refresh(&mut set), []);
    let before = set.counters();
    assert_eq!(before.parses, 50);
    assert_eq!(refresh(&mut set), []);
    let walks = before.walks + 1;
    assert_eq!(set.counters(), Counters { walks, ..before });

    let path = dir.path().join("7.yaml");
    fs::write(&path, service("s7x")).unwrap();
    let changes = refresh(&mut set);
    assert_eq!(keys(&changes), ["s7", "s7x"]);
    assert!(matches!(&changes[0], Change::Remove(_)) && matches!(&changes[1], Change::Upsert(_)));
    fs::write(dir.path().join("new.yaml"), service("new")).unwrap();
    fs::write(dir.path().join("4913"), service("noise")).unwrap();
    assert_eq!(keys(&refresh(&mut set)), ["new"]);
    let after = set.counters();
    assert_eq!(after.reads, before.reads + 2);
    assert_eq!(after.parses, before.parses + 2);

    // A new stat with the same bytes is not parsed.
    fs::write(&path, service("s7x")).unwrap();
    assert_eq!(refresh(&mut set), []);
    let Counters { reads, parses, .. } = set.counters();
    assert_eq!((reads, parses), (after.reads + 1, after.parses));
}

#[test]
fn a_file_that_changed_just_before_it_was_read_is_read_again() {
    let dir = dir(&[("a.yaml", &service("a"))]);
    let mut set = read(config(&[dir.path()]));
    let reads = set.counters().reads;
    refresh(&mut set);
    assert_eq!(set.counters().reads, reads + 1);
    refresh(&mut set);
    assert_eq!(set.counters().reads, reads + 1);
}

#[test]
fn a_file_must_stay_empty_or_missing_for_a_while() {
    let dir = dir(&[("a.yaml", &service("a")), ("b.yaml", &service("b"))]);
    let mut set = read(config(&[dir.path()]));
    let (a, b) = (dir.path().join("a.yaml"), dir.path().join("b.yaml"));
    let now = |set: &mut FileSet| refresh_in(set, Duration::ZERO);

    fs::write(&a, "").unwrap();
    fs::remove_file(&b).unwrap();
    assert_eq!(now(&mut set), []);
    assert!(set.due().is_some());
    fs::write(&a, service("a")).unwrap();
    fs::write(&b, service("b")).unwrap();
    assert_eq!(now(&mut set), []);
    assert_eq!(set.due(), None);

    fs::write(&a, "").unwrap();
    fs::remove_file(&b).unwrap();
    assert_eq!(now(&mut set), []);
    assert!(set.due().is_some());
    let removed = refresh(&mut set);
    assert_eq!(keys(&removed), ["a", "b"]);
    let is_removal = |change: &Change| matches!(change, Change::Remove(_));
    assert!(removed.iter().all(is_removal));
    assert_eq!((set.due(), set.errors()), (None, Vec::new()));
}

#[test]
fn a_renamed_file_keeps_its_objects() {
    let dir = dir(&[("a.yaml", &service("a"))]);
    let mut set = read(config(&[dir.path()]));
    let (a, b) = (dir.path().join("a.yaml"), dir.path().join("b.yaml"));
    fs::rename(a, &b).unwrap();
    assert_eq!(refresh(&mut set), []);
    assert_eq!(set.due(), None);
    assert_eq!(set.errors(), []);
    fs::write(&b, service("c")).unwrap();
    assert_eq!(keys(&refresh(&mut set)), ["a", "c"]);
}

#[test]
fn a_file_that_is_renamed_and_then_saved_keeps_its_objects() {
    let dir = dir(&[("a.yaml", &service("a"))]);
    let mut set = read(config(&[dir.path()]));
    let (a, b) = (dir.path().join("a.yaml"), dir.path().join("b.yaml"));
    fs::rename(a, &b).unwrap();
    fs::write(&b, "").unwrap();
    assert_eq!(refresh_in(&mut set, Duration::ZERO), []);
    assert!(set.due().is_some());
    fs::write(&b, [service("a"), service("c")].join("---\n")).unwrap();
    assert_eq!(keys(&refresh_in(&mut set, Duration::ZERO)), ["c"]);
    assert_eq!(set.errors(), []);
}

#[test]
fn a_file_with_two_names_that_stays_empty_loses_its_objects() {
    let dir = dir(&[("b.yaml", &service("b"))]);
    let mut set = read(config(&[dir.path()]));
    let b = dir.path().join("b.yaml");
    std::os::unix::fs::symlink(&b, dir.path().join("a.yaml")).unwrap();
    fs::write(&b, "").unwrap();
    assert_eq!(refresh_in(&mut set, Duration::ZERO), []);
    assert_eq!(keys(&refresh_in(&mut set, MISSING_GRACE)), ["b"]);
}

#[test]
fn a_link_with_an_earlier_name_replaces_its_target() {
    let dir = dir(&[("b.yaml", &service("b"))]);
    let mut set = read(config(&[dir.path()]));
    let link = dir.path().join("a.yaml");
    symlink("b.yaml", &link).unwrap();
    assert_eq!(refresh(&mut set), []);
    assert_eq!(set.errors(), []);
    fs::remove_file(&link).unwrap();
    assert_eq!(refresh(&mut set), []);
    assert_eq!(set.due(), None);
    fs::write(dir.path().join("b.yaml"), service("c")).unwrap();
    assert_eq!(keys(&refresh(&mut set)), ["b", "c"]);
}

#[test]
fn objects_beyond_the_limit_are_read_once_others_are_removed() {
    let dir = dir(&[("a.yaml", &service("a")), ("b.yaml", &service("b"))]);
    let mut config = config(&[dir.path()]);
    config.limits.objects = 1;
    let mut set = FileSet::new(config);
    assert_eq!(keys(&set.first(&mut std::io::empty())), ["a"]);
    let path = dir.path().join("a.yaml");
    fs::write(&path, "# nothing\n").unwrap();
    assert_eq!(keys(&refresh(&mut set)), ["a"]);
    assert!(set.due().is_some());
    assert_eq!(keys(&refresh(&mut set)), ["b"]);
    assert_eq!(set.errors(), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A file with arbitrary bytes, beside a valid file.
    #[test]
    fn no_bytes_cause_a_panic_or_affect_other_files(bytes in any::<Vec<u8>>(), json: bool) {
        let dir = dir(&[("a.yaml", &service("a"))]);
        let name = if json { "b.json" } else { "b.yaml" };
        fs::write(dir.path().join(name), &bytes).unwrap();
        prop_assert_eq!(names(&load(&config(&[dir.path()]))), ["a"]);
    }

    /// A valid file is damaged. Its objects stay or change, but none is removed while a document's name is unreadable.
    #[test]
    fn objects_of_a_damaged_file_keep_their_last_good_version(at in 0usize..400, len in 0usize..40, patch in "[\\x00-\\x7f]{0,8}") {
        let good: String = ["a", "b", "c", "d"].map(|n| format!("{}---\n", service(n))).concat();
        let dir = dir(&[("a.yaml", &good), ("z.yaml", &service("z"))]);
        let mut set = read(config(&[dir.path()]));
        let from = at.min(good.len());
        let to = (from + len).min(good.len());
        let mutated = format!("{}{patch}{}", &good[..from], &good[to..]);
        let path = dir.path().join("a.yaml");
        fs::write(&path, mutated).unwrap();
        let changes = refresh(&mut set);
        let removed = changes.iter().any(|change| matches!(change, Change::Remove(_)));
        let unnamed = set.errors().iter().any(|error| error.object.is_none());
        prop_assert!(!(removed && unnamed), "{changes:?} {:?}", set.errors());
        prop_assert!(!keys(&changes).contains(&"z".to_owned()));
        // Once repaired, everything is as before.
        fs::write(&path, &good).unwrap();
        let repaired = refresh(&mut set);
        let mut held: BTreeSet<String> = ["a", "b", "c", "d", "z"].map(str::to_owned).into();
        for change in changes.iter().chain(&repaired) {
            let name = change.key().name.to_string();
            match change {
                Change::Upsert(_) => held.insert(name),
                Change::Remove(_) => held.remove(&name),
            };
        }
        prop_assert_eq!(held.into_iter().collect::<String>(), "abcdz");
        prop_assert_eq!(set.errors(), []);
    }
}
