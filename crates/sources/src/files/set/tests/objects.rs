//! Objects in several files: owners, last good versions, generations.

use proptest::prelude::*;

use super::super::super::error::MAX_ERRORS;
use super::super::*;

/// A set without files on disk: tests supply their text.
fn empty(objects: usize) -> FileSet {
    let mut config = FilesConfig::new([""; 0]);
    config.limits.objects = objects;
    FileSet::new(config)
}

fn path(name: &str) -> Arc<Path> {
    Path::new(name).into()
}

fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n---\n"
    )
}

/// Parses and removes files in one refresh, and returns the changes: `name@generation:port` or `-name`.
fn apply(set: &mut FileSet, files: &[(&str, Option<&str>)]) -> Vec<String> {
    changes(set, files).iter().map(line).collect()
}

fn changes(set: &mut FileSet, files: &[(&str, Option<&str>)]) -> Vec<Change> {
    let mut touched = BTreeSet::new();
    let created = Timestamp::from_second(1_000).ok();
    for (name, text) in files {
        match text {
            Some(text) => set.parse(&path(name), text, created, &mut touched),
            None => set.remove(&path(name), &mut touched),
        }
    }
    set.changes(touched)
}

fn line(change: &Change) -> String {
    match change {
        Change::Remove(key) => format!("-{}", key.name),
        Change::Upsert(object) => {
            let Object::Service(service) = object else {
                panic!("{object:?}")
            };
            let spec = service.spec.as_ref().unwrap();
            let port = spec.ports.as_ref().map_or(0, |ports| ports[0].port);
            format!("{}@{}:{port}", object.key().name, object.generation())
        }
    }
}

fn errors(set: &FileSet) -> Vec<String> {
    set.errors().iter().map(ToString::to_string).collect()
}

#[test]
fn generations_are_counted_as_in_an_api_server() {
    let mut set = empty(100);
    assert_eq!(
        apply(&mut set, &[("a", Some(&service("s", 80)))]),
        ["s@1:80"]
    );
    assert_eq!(apply(&mut set, &[("a", Some(&service("s", 80)))]), [""; 0]);
    assert_eq!(
        apply(&mut set, &[("a", Some(&service("s", 81)))]),
        ["s@2:81"]
    );
    let labelled = service("s, labels: {a: b}", 81);
    assert_eq!(apply(&mut set, &[("a", Some(&labelled))]), ["s@2:81"]);
    let status = labelled.replace("---", "status: {loadBalancer: {}}\n---");
    assert_eq!(apply(&mut set, &[("a", Some(&status))]), ["s@2:81"]);
    assert_eq!(apply(&mut set, &[("a", Some("# nothing\n"))]), ["-s"]);
    assert_eq!(
        apply(&mut set, &[("a", Some(&service("s", 80)))]),
        ["s@1:80"]
    );
    assert_eq!(apply(&mut set, &[("a", None)]), ["-s"]);
    assert!(set.objects.is_empty() && set.files.is_empty() && set.count == 0);
}

#[test]
fn an_object_stays_with_its_file_until_another_takes_over() {
    let mut set = empty(100);
    assert_eq!(
        apply(&mut set, &[("b", Some(&service("s", 80)))]),
        ["s@1:80"]
    );
    // The first by name, but seen later.
    assert_eq!(apply(&mut set, &[("a", Some(&service("s", 81)))]), [""; 0]);
    assert_eq!(
        errors(&set),
        [
            "a:1:1: Service/default/s: already defined at b:1:1, which takes precedence \
             (remove one of them, or change its name or namespace)"
        ]
    );
    assert_eq!(
        apply(&mut set, &[("b", Some(&service("s", 82)))]),
        ["s@2:82"]
    );
    assert_eq!(apply(&mut set, &[("b", None)]), ["s@3:81"]);
    assert_eq!(errors(&set), [""; 0]);
    // The former owner is now the duplicate.
    assert_eq!(apply(&mut set, &[("b", Some(&service("s", 83)))]), [""; 0]);
    assert!(errors(&set)[0].starts_with("b:1:1: Service/default/s: already defined at a:1:1"));
    assert_eq!(apply(&mut set, &[("b", Some(&service("s", 83)))]), [""; 0]);
    assert_eq!(apply(&mut set, &[("a", Some(""))]), ["s@4:83"]);
}

#[test]
fn of_files_seen_together_the_first_by_name_is_used() {
    let mut set = empty(100);
    let files = [
        ("b", Some(&*service("s", 80))),
        ("a", Some(&*service("s", 81))),
    ];
    assert_eq!(apply(&mut set, &files), ["s@1:81"]);
    let twice = format!("{}{}", service("t", 1), service("t", 2));
    assert_eq!(apply(&mut set, &[("c", Some(&twice))]), ["t@1:1"]);
    let all = errors(&set);
    assert!(
        all[1].starts_with("c:6:1: Service/default/t: already defined at c:1:1"),
        "{all:?}"
    );
}

#[test]
fn an_object_may_move_between_files() {
    let mut set = empty(100);
    apply(&mut set, &[("a", Some(&service("s", 80)))]);
    assert_eq!(
        apply(&mut set, &[("a", Some("")), ("b", Some(&service("s", 80)))]),
        [""; 0]
    );
    assert_eq!(
        apply(&mut set, &[("b", None), ("a", Some(&service("s", 81)))]),
        ["s@2:81"]
    );
    assert_eq!(errors(&set), [""; 0]);
}

#[test]
fn invalid_objects_keep_their_last_good_version() {
    let mut set = empty(100);
    let good = [service("s", 80), service("t", 90), service("u", 70)];
    apply(&mut set, &[("a", Some(&good.concat()))]);
    // An undecodable object stays; others change.
    let invalid = format!(
        "{}{}",
        service("s", 80).replace("80", "lots"),
        service("t", 91)
    );
    assert_eq!(apply(&mut set, &[("a", Some(&invalid))]), ["t@2:91", "-u"]);
    let all = errors(&set);
    assert!(
        all[0].starts_with("a:4:23: Service/default/s: spec.ports[0].port: "),
        "{all:?}"
    );
    assert!(
        all[0].ends_with("(the last good version of the object stays in use)"),
        "{all:?}"
    );
    // Repairing it increases its generation.
    let repaired = format!("{}{}", service("s", 81), service("t", 91));
    assert_eq!(apply(&mut set, &[("a", Some(&repaired))]), ["s@2:81"]);
    assert_eq!(errors(&set), [""; 0]);
    // A document without a readable name may be any object, so none is removed; valid ones change.
    let torn = format!("{}\n---\nspec: [", service("t", 92));
    assert_eq!(apply(&mut set, &[("a", Some(&torn))]), ["t@3:92"]);
    assert_eq!(errors(&set).len(), 1);
    // Repaired by removing that document.
    assert_eq!(apply(&mut set, &[("a", Some(&service("t", 92)))]), ["-s"]);
    // The whole file can't be read.
    set.unreadable(&path("a"), &ReadError::NotRegular);
    assert_eq!(
        errors(&set),
        ["a: not a regular file (the last good version of its object stays in use)"]
    );
    assert_eq!(apply(&mut set, &[("a", Some(&service("t", 92)))]), [""; 0]);
    assert_eq!(errors(&set), [""; 0]);
}

#[test]
fn valid_documents_of_a_new_file_are_used() {
    let mut set = empty(100);
    let text = format!(
        "{}\n---\n{}---\n{}",
        service("s", 80),
        "a: [\n",
        service("t", 90)
    );
    assert_eq!(apply(&mut set, &[("a", Some(&text))]), ["s@1:80", "t@1:90"]);
    assert_eq!(errors(&set).len(), 1);
    assert!(!errors(&set)[0].contains("stays in use"));
}

#[test]
fn creation_times_are_kept() {
    let created = |change: &Change| match change {
        Change::Upsert(Object::Service(s)) => s.metadata.creation_timestamp.clone().map(|t| t.0),
        other => panic!("{other:?}"),
    };
    let mut set = empty(100);
    let mut read = |now: Option<i64>, text: &str| {
        let now = now.and_then(|now| Timestamp::from_second(now).ok());
        let mut touched = BTreeSet::new();
        set.parse(&path("a"), text, now, &mut touched);
        let changes = set.changes(touched);
        changes.iter().map(created).collect::<Vec<_>>()
    };
    let at = |second| Timestamp::from_second(second).ok();
    assert_eq!(read(None, &service("s", 1)), [None]);
    assert_eq!(read(Some(5), &service("s", 2)), [None]);
    let both = format!("{}{}", service("s", 2), service("t", 1));
    assert_eq!(read(Some(6), &both), [at(6)]);
    let both = format!("{}{}", service("s", 3), service("t", 2));
    assert_eq!(read(Some(7), &both), [None, at(6)]);
}

#[test]
fn objects_and_errors_are_limited() {
    let mut set = empty(2);
    let three = [service("s", 1), service("t", 1), service("u", 1)].concat();
    assert_eq!(apply(&mut set, &[("a", Some(&three))]), ["s@1:1", "t@1:1"]);
    assert_eq!(
        errors(&set),
        ["a: more than 2 objects across all files (objects beyond this limit are not read)"]
    );
    assert_eq!(set.files.values().filter(|file| file.cut).count(), 1);
    assert_eq!(
        apply(&mut set, &[("a", Some(&three[1..]))]).len(),
        0,
        "`apiVersion` invalid"
    );
    let two = [service("t", 1), service("u", 1)].concat();
    assert_eq!(
        apply(&mut set, &[("a", Some(&two))]),
        ["-s"],
        "removed objects make room for the next refresh"
    );
    assert_eq!(apply(&mut set, &[("a", Some(&two))]), ["u@1:1"]);
    assert_eq!(set.files.values().filter(|file| file.cut).count(), 0);
    let invalid = "kind: 5\n---\n".repeat(1000);
    apply(&mut set, &[("b", Some(&invalid))]);
    let all = errors(&set);
    assert_eq!(all.len(), MAX_ERRORS + 1);
    assert!(all.contains(&"b: further errors: 900".to_owned()));
}

#[test]
fn objects_keep_their_last_good_version_though_their_error_isnt_kept() {
    let mut set = empty(1000);
    let services = |port: u16| -> String {
        let services = (0..300).map(|n| service(&format!("s{n}"), port));
        services.collect()
    };
    assert_eq!(apply(&mut set, &[("a", Some(&services(1)))]).len(), 300);
    let invalid = services(1).replace("port: 1", "port: 1, port: 2");
    assert_eq!(apply(&mut set, &[("a", Some(&invalid))]), [""; 0]);
    assert_eq!(errors(&set).len(), MAX_ERRORS + 1);
    assert_eq!(set.count, 300);
    assert_eq!(apply(&mut set, &[("a", Some(&services(2)))]).len(), 300);
    // Duplicates count as errors too.
    let twice = [services(2), services(3)].concat();
    assert_eq!(apply(&mut set, &[("a", Some(&twice))]), [""; 0]);
    assert!(errors(&set).contains(&"a: further errors: 200".to_owned()));
}

#[test]
fn errors_of_contours_objects_count_only_if_they_are_read() {
    let invalid = "apiVersion: projectcontour.io/v1\nkind: HTTPProxy\nspec: 5\nmetadata: {name: ";
    let text: String = (0..150)
        .map(|n| format!("{invalid}p{n}}}\n---\n"))
        .collect();
    let text = text + "kind: 5\n";
    for (contour, expected) in [(false, 1), (true, MAX_ERRORS + 1)] {
        let mut set = empty(1000);
        set.config.contour = contour;
        apply(&mut set, &[("a", Some(&text))]);
        assert_eq!(errors(&set).len(), expected);
    }
}

proptest! {
    /// The changes add up to the objects in the files, each from one of the files that define it.
    #[test]
    fn changes_add_up(steps in prop::collection::vec(
        prop::collection::vec((0usize..3, prop::option::of(prop::collection::vec((0usize..4, 1u16..4), 0..5))), 1..3),
        1..12,
    )) {
        let mut set = empty(1000);
        let mut files: BTreeMap<usize, Vec<(usize, u16)>> = BTreeMap::new();
        let mut sent: BTreeMap<String, (i64, i32)> = BTreeMap::new();
        for step in steps {
            let step: BTreeMap<_, _> = step.into_iter().collect();
            let texts: Vec<_> = step.iter().map(|(file, objects)| {
                let text = objects.as_ref().map(|objects| {
                    objects.iter().map(|(n, p)| service(&format!("s{n}"), *p)).collect::<String>()
                });
                (format!("f{file}"), text)
            }).collect();
            let texts: Vec<_> = texts.iter().map(|(name, text)| (name.as_str(), text.as_deref())).collect();
            for change in changes(&mut set, &texts) {
                match &change {
                    Change::Remove(key) => {
                        prop_assert!(sent.remove(&*key.name).is_some());
                    }
                    Change::Upsert(Object::Service(s)) => {
                        let port = s.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port;
                        let name = s.metadata.name.clone().unwrap();
                        let generation = s.metadata.generation.unwrap();
                        let before = sent.insert(name, (generation, port));
                        prop_assert_eq!(generation, before.map_or(1, |(g, _)| g + 1));
                        prop_assert_ne!(before.map(|(_, p)| p), Some(port));
                    }
                    other => panic!("{other:?}"),
                }
            }
            for (file, objects) in step {
                match objects {
                    None => { files.remove(&file); }
                    Some(objects) => { files.insert(file, objects); }
                }
            }
            // Within a file, the first definition is used.
            let mut held: BTreeMap<String, Vec<i32>> = BTreeMap::new();
            for objects in files.values() {
                let mut seen = BTreeSet::new();
                for (name, port) in objects {
                    if seen.insert(name) {
                        held.entry(format!("s{name}")).or_default().push(i32::from(*port));
                    }
                }
            }
            prop_assert_eq!(sent.keys().collect::<Vec<_>>(), held.keys().collect::<Vec<_>>());
            for (name, (_, port)) in &sent {
                prop_assert!(held[name].contains(port));
            }
            let shared: usize = held.values().map(|ports| ports.len() - 1).sum();
            let doubles: usize = files.values().map(|objects| {
                objects.len() - objects.iter().map(|(n, _)| n).collect::<BTreeSet<_>>().len()
            }).sum();
            prop_assert_eq!(set.errors().len(), shared + doubles);
        }
    }
}
