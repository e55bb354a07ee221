//! Files on a real file system, without events: what is found, what is told, what it costs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::{Limits, Snapshot, load, load_with};
use super::look::RACY_SECONDS;
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

/// The problems with the folder's name left out.
fn problems(dir: &TempDir, problems: &[Problem]) -> Vec<String> {
    let root = format!("{}/", dir.path().display());
    problems
        .iter()
        .map(|problem| problem.to_string().replace(&root, ""))
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
fn folders_are_read_recursively_and_named_files_whatever_they_are_called() {
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
    assert_eq!(snapshot.problems, []);
    assert_eq!(
        snapshot.skipped,
        BTreeMap::from([("batch/v1/Job".to_owned(), 1)])
    );
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
    let told = problems(&dir, &snapshot.problems);
    assert!(
        told[0].starts_with("e.txt:1:1: Service/default/x: already defined at"),
        "{told:?}"
    );
}

#[test]
fn standard_input_is_a_source_too() {
    let dir = dir(&[("a.yaml", &service("a"))]);
    let paths = config(&[Path::new("-"), dir.path()]);
    let text = format!("{}---\nkind: [\n", service("s"));
    let snapshot = load_with(&paths, &mut text.as_bytes());
    assert_eq!(names(&snapshot), ["a", "s"]);
    assert_eq!(snapshot.problems.len(), 1);
    assert!(
        snapshot.problems[0].to_string().starts_with("<stdin>:"),
        "{:?}",
        snapshot.problems
    );
    let mut small = paths.clone();
    small.limits.file_bytes = 100;
    let snapshot = load_with(&small, &mut std::io::repeat(b'x'));
    assert_eq!(names(&snapshot), ["a"]);
    assert_eq!(
        snapshot.problems[0].to_string(),
        "<stdin>: it is larger than 100 bytes"
    );
}

#[test]
fn links_are_followed_but_nothing_is_read_twice() {
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
    assert_eq!(snapshot.problems, []);
}

#[test]
fn what_cannot_be_read_is_told_and_hurts_nobody() {
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
    let told = problems(&dir, &snapshot.problems);
    assert_eq!(told[0], "big.yaml: it is larger than 500 bytes");
    assert_eq!(
        told[1],
        "bytes.yaml: it is not UTF-8 text: byte 3 belongs to no character"
    );
    assert_eq!(told[2], "dangling.yaml: this link leads nowhere");
    assert_eq!(told[3], "missing.yaml: there is no such file or folder");
    assert_eq!(told[4], "pipe.yaml: it is no regular file");
    assert!(
        told[5].starts_with("self.yaml: it cannot be read: "),
        "{told:?}"
    );
    assert_eq!(told.len(), 6);
}

#[test]
fn limits_of_the_walk_are_told_once() {
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
        (names(&snapshot), problems(&dir, &snapshot.problems))
    };
    let default = Limits::default;
    let (found, told) = load_within(Limits {
        files: 2,
        ..default()
    });
    assert_eq!(found, ["a", "b"]);
    assert_eq!(
        told,
        ["c.yaml: more than 2 files (this and what follows is not read)"]
    );
    let (found, told) = load_within(Limits {
        folder_depth: 2,
        ..default()
    });
    assert_eq!(found, ["a", "b", "c"]);
    assert!(
        told[0].starts_with("d/e/f: more than 2 folders inside"),
        "{told:?}"
    );
    let (found, told) = load_within(Limits {
        folders: 3,
        ..default()
    });
    assert_eq!(found, ["a", "b", "c"]);
    assert!(
        told[0].starts_with("d/e/f: more than 3 folders"),
        "{told:?}"
    );
    let (found, told) = load_within(Limits {
        total_bytes: 120,
        ..default()
    });
    assert_eq!(found, ["a", "b"]);
    assert!(
        told[0].starts_with("c.yaml: more than 120 bytes"),
        "{told:?}"
    );
    let (found, told) = load_within(Limits {
        objects: 1,
        ..default()
    });
    assert_eq!(found, ["a"]);
    assert_eq!(told.len(), 3);
}

/// A table that has read everything and is sure of it: the files are older than a clock's tick.
fn settled(config: FilesConfig) -> Table {
    for root in &config.paths {
        for entry in fs::read_dir(root).unwrap() {
            let file = fs::File::options()
                .append(true)
                .open(entry.unwrap().path())
                .unwrap();
            let old = std::time::SystemTime::now() - Duration::from_secs(100);
            file.set_modified(old).unwrap();
        }
    }
    let mut table = Table::new(config);
    table.first(&mut std::io::empty(), &mut |_, _| {});
    // The inode's own time can't be set back; what is read later than two ticks after it is sure.
    std::thread::sleep(Duration::from_secs(RACY_SECONDS.unsigned_abs() + 1));
    table.rescan(&mut |_, _| {});
    table
}

#[test]
fn only_what_changed_is_read() {
    let all: Vec<_> = (0..50)
        .map(|i| (format!("{i}.yaml"), service(&format!("s{i}"))))
        .collect();
    let all: Vec<_> = all.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
    let dir = dir(&all);
    let mut table = settled(config(&[dir.path()]));
    let before = table.work();
    assert_eq!(before.parses, 50, "the second reading found the same bytes");
    assert_eq!(table.rescan(&mut |_, _| {}), []);
    assert_eq!(
        table.work(),
        Work {
            scans: before.scans + 1,
            ..before
        }
    );

    let path = dir.path().join("7.yaml");
    fs::write(&path, service("s7x")).unwrap();
    assert_eq!(
        keys(&table.touch([path.clone()], &mut |_, _| {})),
        ["s7", "s7x"]
    );
    let fresh = dir.path().join("new.yaml");
    fs::write(&fresh, service("new")).unwrap();
    assert_eq!(keys(&table.touch([fresh], &mut |_, _| {})), ["new"]);
    let noise = [dir.path().join("4913"), dir.path().join("gone.txt")];
    assert_eq!(table.touch(noise, &mut |_, _| {}), []);
    let after = table.work();
    assert_eq!(after.scans, before.scans + 1);
    assert_eq!(after.reads, before.reads + 2);
    assert_eq!(after.parses, before.parses + 2);

    // Without any event the same is found, by the stats.
    fs::write(&path, service("s7")).unwrap();
    let changes = table.rescan(&mut |_, _| {});
    assert_eq!(keys(&changes), ["s7", "s7x"]);
    assert!(matches!(&changes[0], Change::Upsert(_)) && matches!(&changes[1], Change::Remove(_)));
    assert_eq!(table.work().parses, after.parses + 1);
    // And the same bytes again are no reason to take them apart.
    fs::write(&path, service("s7")).unwrap();
    assert_eq!(table.touch([path], &mut |_, _| {}), []);
    assert_eq!(table.work().parses, after.parses + 1);
}

#[test]
fn an_empty_or_missing_file_must_stay_so_to_count() {
    let dir = dir(&[("a.yaml", &service("a")), ("b.yaml", &service("b"))]);
    let mut table = Table::new(config(&[dir.path()]));
    table.first(&mut std::io::empty(), &mut |_, _| {});
    let (a, b) = (dir.path().join("a.yaml"), dir.path().join("b.yaml"));
    let touch = |table: &mut Table| table.touch([a.clone(), b.clone()], &mut |_, _| {});

    fs::write(&a, "").unwrap();
    fs::remove_file(&b).unwrap();
    assert_eq!(touch(&mut table), []);
    assert!(table.due().is_some());
    fs::write(&a, service("a")).unwrap();
    fs::write(&b, service("b")).unwrap();
    assert_eq!(touch(&mut table), []);
    assert_eq!(table.due(), None);

    fs::write(&a, "").unwrap();
    fs::remove_file(&b).unwrap();
    assert_eq!(touch(&mut table), []);
    let mut gone = Vec::new();
    while let Some(due) = table.due() {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        gone.extend(table.settle());
    }
    gone.sort_by_key(Change::key);
    assert_eq!(keys(&gone), ["a", "b"]);
    assert!(
        gone.iter()
            .all(|change| matches!(change, Change::Remove(_)))
    );
    assert_eq!(table.problems(), []);
}

#[test]
fn a_moved_file_moves_its_objects_at_once() {
    let dir = dir(&[("a.yaml", &service("a"))]);
    let mut table = Table::new(config(&[dir.path()]));
    table.first(&mut std::io::empty(), &mut |_, _| {});
    let (a, b) = (dir.path().join("a.yaml"), dir.path().join("b.yaml"));
    fs::rename(&a, &b).unwrap();
    assert_eq!(table.touch([a, b.clone()], &mut |_, _| {}), []);
    assert_eq!(table.due(), None);
    assert_eq!(table.problems(), []);
    fs::write(&b, service("c")).unwrap();
    assert_eq!(keys(&table.touch([b], &mut |_, _| {})), ["a", "c"]);
}

#[test]
fn a_link_that_comes_first_takes_the_file_over() {
    let dir = dir(&[("b.yaml", &service("b"))]);
    let mut table = Table::new(config(&[dir.path()]));
    table.first(&mut std::io::empty(), &mut |_, _| {});
    let link = dir.path().join("a.yaml");
    symlink("b.yaml", &link).unwrap();
    assert_eq!(table.rescan(&mut |_, _| {}), []);
    assert_eq!(table.problems(), []);
    fs::remove_file(&link).unwrap();
    assert_eq!(table.rescan(&mut |_, _| {}), []);
    assert_eq!(table.due(), None);
    fs::write(dir.path().join("b.yaml"), service("c")).unwrap();
    assert_eq!(keys(&table.rescan(&mut |_, _| {})), ["b", "c"]);
}

#[test]
fn what_found_no_room_is_read_when_there_is_some() {
    let dir = dir(&[("a.yaml", &service("a")), ("b.yaml", &service("b"))]);
    let mut config = config(&[dir.path()]);
    config.limits.objects = 1;
    let mut table = Table::new(config);
    assert_eq!(
        keys(&table.first(&mut std::io::empty(), &mut |_, _| {})),
        ["a"]
    );
    let path = dir.path().join("a.yaml");
    fs::write(&path, "# nothing\n").unwrap();
    assert_eq!(keys(&table.touch([path], &mut |_, _| {})), ["a"]);
    assert!(table.due().is_some());
    assert_eq!(keys(&table.settle()), ["b"]);
    assert_eq!(table.problems(), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A file of any bytes beside a good one.
    #[test]
    fn no_bytes_panic_or_hurt_a_neighbour(bytes in any::<Vec<u8>>(), json: bool) {
        let dir = dir(&[("a.yaml", &service("a"))]);
        let name = if json { "b.json" } else { "b.yaml" };
        fs::write(dir.path().join(name), &bytes).unwrap();
        prop_assert_eq!(names(&load(&config(&[dir.path()]))), ["a"]);
    }

    /// A good file with some of it overwritten, cut out or doubled: its objects stay or change, but
    /// while anything in it can't be read none of them goes.
    #[test]
    fn mutations_keep_what_was_good(at in 0usize..400, len in 0usize..40, patch in "[\\x00-\\x7f]{0,8}") {
        let good: String = ["a", "b", "c", "d"].map(|n| format!("{}---\n", service(n))).concat();
        let dir = dir(&[("a.yaml", &good), ("z.yaml", &service("z"))]);
        let mut table = Table::new(config(&[dir.path()]));
        table.first(&mut std::io::empty(), &mut |_, _| {});
        let from = at.min(good.len());
        let to = (from + len).min(good.len());
        let mutated = format!("{}{patch}{}", &good[..from], &good[to..]);
        let path = dir.path().join("a.yaml");
        fs::write(&path, mutated).unwrap();
        let changes = table.touch([path.clone()], &mut |_, _| {});
        let removed = changes.iter().any(|change| matches!(change, Change::Remove(_)));
        let nameless = table.problems().iter().any(|problem| problem.object.is_none());
        prop_assert!(!(removed && nameless), "{changes:?} {:?}", table.problems());
        prop_assert!(!keys(&changes).contains(&"z".to_owned()));
        // Mended, all is as it was.
        fs::write(&path, &good).unwrap();
        let mended = table.touch([path], &mut |_, _| {});
        let mut held: BTreeSet<String> = ["a", "b", "c", "d", "z"].map(str::to_owned).into();
        for change in changes.iter().chain(&mended) {
            let name = change.key().name.to_string();
            match change {
                Change::Upsert(_) => held.insert(name),
                Change::Remove(_) => held.remove(&name),
            };
        }
        prop_assert_eq!(held.into_iter().collect::<String>(), "abcdz");
        prop_assert_eq!(table.problems(), []);
    }
}
