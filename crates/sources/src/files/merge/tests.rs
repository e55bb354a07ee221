//! The set of all files: who owns an object, what stays, how generations count.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::decode;
use super::super::limits::Limits;
use super::super::text::Format;
use super::*;

fn path(name: &str) -> Arc<Path> {
    Path::new(name).into()
}

fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n---\n"
    )
}

fn reading(set: &Set, file: &str, text: &str) -> (Arc<Path>, Reading) {
    let file = path(file);
    let before = set.before(&file, Timestamp::from_second(1_000).ok());
    let parsed = decode::parse(&file, text, Format::Yaml, &Limits::default(), &before);
    drop(before);
    (file, Reading::Parsed(parsed))
}

/// Applies files' texts together, and tells the changes: `name@generation:port` or `-name`.
fn apply(set: &mut Set, files: &[(&str, Option<&str>)]) -> Vec<String> {
    let readings = files
        .iter()
        .map(|(file, text)| match text {
            Some(text) => reading(set, file, text),
            None => (path(file), Reading::Gone),
        })
        .collect();
    set.apply(readings).iter().map(told).collect()
}

fn told(change: &Change) -> String {
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

fn problems(set: &Set) -> Vec<String> {
    set.problems().iter().map(ToString::to_string).collect()
}

#[test]
fn generations_count_as_in_a_cluster() {
    let mut set = Set::new(100);
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
    assert!(set.objects.is_empty() && set.files.is_empty() && set.claims == 0);
}

#[test]
fn an_object_stays_with_its_file_and_another_takes_over() {
    let mut set = Set::new(100);
    assert_eq!(
        apply(&mut set, &[("b", Some(&service("s", 80)))]),
        ["s@1:80"]
    );
    // First by name, but the other was there first.
    assert_eq!(apply(&mut set, &[("a", Some(&service("s", 81)))]), [""; 0]);
    assert_eq!(
        problems(&set),
        [
            "a:1:1: Service/default/s: already defined at b:1:1, which counts (remove one of the two, or give it another name or namespace)"
        ]
    );
    assert_eq!(
        apply(&mut set, &[("b", Some(&service("s", 82)))]),
        ["s@2:82"]
    );
    assert_eq!(apply(&mut set, &[("b", None)]), ["s@3:81"]);
    assert_eq!(problems(&set), [""; 0]);
    // The one that lost it is a rival now, also if read again.
    assert_eq!(apply(&mut set, &[("b", Some(&service("s", 83)))]), [""; 0]);
    assert!(problems(&set)[0].starts_with("b:1:1: Service/default/s: already defined at a:1:1"));
    assert_eq!(apply(&mut set, &[("b", Some(&service("s", 83)))]), [""; 0]);
    assert_eq!(apply(&mut set, &[("a", Some(""))]), ["s@4:83"]);
}

#[test]
fn of_files_seen_together_the_first_by_name_counts() {
    let mut set = Set::new(100);
    let files = [
        ("b", Some(&*service("s", 80))),
        ("a", Some(&*service("s", 81))),
    ];
    assert_eq!(apply(&mut set, &files), ["s@1:81"]);
    let twice = format!("{}{}", service("t", 1), service("t", 2));
    assert_eq!(apply(&mut set, &[("c", Some(&twice))]), ["t@1:1"]);
    let all = problems(&set);
    assert!(
        all[1].starts_with("c:6:1: Service/default/t: already defined at c:1:1"),
        "{all:?}"
    );
}

#[test]
fn an_object_may_move_between_files() {
    let mut set = Set::new(100);
    apply(&mut set, &[("a", Some(&service("s", 80)))]);
    assert_eq!(
        apply(&mut set, &[("a", Some("")), ("b", Some(&service("s", 80)))]),
        [""; 0]
    );
    assert_eq!(
        apply(&mut set, &[("b", None), ("a", Some(&service("s", 81)))]),
        ["s@2:81"]
    );
    assert_eq!(problems(&set), [""; 0]);
}

#[test]
fn what_is_broken_keeps_its_last_good_state() {
    let mut set = Set::new(100);
    let good = [service("s", 80), service("t", 90), service("u", 70)];
    apply(&mut set, &[("a", Some(&good.concat()))]);
    // One object doesn't decode: it stays, the others follow the file.
    let broken = format!(
        "{}{}",
        service("s", 80).replace("80", "lots"),
        service("t", 91)
    );
    assert_eq!(apply(&mut set, &[("a", Some(&broken))]), ["t@2:91", "-u"]);
    let all = problems(&set);
    assert!(
        all[0].starts_with("a:4:23: Service/default/s: spec.ports[0].port: "),
        "{all:?}"
    );
    assert!(all[0].ends_with("(its last good state stays)"), "{all:?}");
    // Mended, it counts on.
    let mended = format!("{}{}", service("s", 81), service("t", 91));
    assert_eq!(apply(&mut set, &[("a", Some(&mended))]), ["s@2:81"]);
    assert_eq!(problems(&set), [""; 0]);
    // A document that can't be read may be any object: none goes, but good ones follow.
    let torn = format!("{}\n---\nspec: [", service("t", 92));
    assert_eq!(apply(&mut set, &[("a", Some(&torn))]), ["t@3:92"]);
    assert_eq!(problems(&set).len(), 1);
    // Then mended by removing the object.
    assert_eq!(apply(&mut set, &[("a", Some(&service("t", 92)))]), ["-s"]);
    // The whole file can't be read.
    let failed = Reading::Failed(Problem::of_file("a", "no permission"));
    assert_eq!(set.apply(vec![(path("a"), failed)]), []);
    assert_eq!(
        problems(&set),
        ["a: no permission (the object last read from it stays)"]
    );
    assert_eq!(apply(&mut set, &[("a", Some(&service("t", 92)))]), [""; 0]);
    assert_eq!(problems(&set), [""; 0]);
}

#[test]
fn a_file_that_was_never_good_gives_its_good_documents() {
    let mut set = Set::new(100);
    let text = format!(
        "{}\n---\n{}---\n{}",
        service("s", 80),
        "a: [\n",
        service("t", 90)
    );
    assert_eq!(apply(&mut set, &[("a", Some(&text))]), ["s@1:80", "t@1:90"]);
    assert_eq!(problems(&set).len(), 1);
    assert!(!problems(&set)[0].contains("stays"));
}

#[test]
fn creation_times_are_kept() {
    let created = |change: &Change| match change {
        Change::Upsert(Object::Service(s)) => s.metadata.creation_timestamp.clone().map(|t| t.0),
        other => panic!("{other:?}"),
    };
    let mut set = Set::new(100);
    let file = path("a");
    let mut read = |now: Option<i64>, text: &str| {
        let now = now.and_then(|now| Timestamp::from_second(now).ok());
        let before = set.before(&file, now);
        let parsed = decode::parse(&file, text, Format::Yaml, &Limits::default(), &before);
        drop(before);
        let changes = set.apply(vec![(file.clone(), Reading::Parsed(parsed))]);
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
fn there_is_an_end_to_objects_and_to_problems() {
    let mut set = Set::new(2);
    let three = [service("s", 1), service("t", 1), service("u", 1)].concat();
    assert_eq!(apply(&mut set, &[("a", Some(&three))]), ["s@1:1", "t@1:1"]);
    assert_eq!(
        problems(&set),
        ["a: more than 2 objects in all files together (the further ones are left out)"]
    );
    assert_eq!(set.cut().count(), 1);
    assert_eq!(
        apply(&mut set, &[("a", Some(&three[1..]))]).len(),
        0,
        "`apiVersion` broken"
    );
    let two = [service("t", 1), service("u", 1)].concat();
    assert_eq!(
        apply(&mut set, &[("a", Some(&two))]),
        ["-s"],
        "room is made by what goes, for the next time"
    );
    assert_eq!(apply(&mut set, &[("a", Some(&two))]), ["u@1:1"]);
    assert_eq!(set.cut().count(), 0);
    let broken = "kind: 5\n---\n".repeat(1000);
    apply(&mut set, &[("b", Some(&broken))]);
    let all = problems(&set);
    assert_eq!(all.len(), PROBLEMS_PER_FILE + 1);
    assert!(all.contains(&"b: and 900 more problems".to_owned()));
}

#[test]
fn skipped_kinds_are_counted_over_all_files() {
    let mut set = Set::new(10);
    let job = "apiVersion: batch/v1\nkind: Job\n---\n";
    apply(&mut set, &[("a", Some(&job.repeat(2))), ("b", Some(job))]);
    assert_eq!(set.skipped().get("batch/v1/Job"), Some(&3));
    apply(&mut set, &[("a", Some(""))]);
    assert_eq!(set.skipped().get("batch/v1/Job"), Some(&1));
    apply(&mut set, &[("b", None)]);
    assert!(set.skipped().is_empty());
}

proptest! {
    /// Whatever happens to files, telling the changes one by one gives what the files hold: each object
    /// from one of the files that have it, and none that no file has.
    #[test]
    fn changes_add_up(steps in prop::collection::vec(
        prop::collection::vec((0usize..3, prop::option::of(prop::collection::vec((0usize..4, 1u16..4), 0..5))), 1..3),
        1..12,
    )) {
        let mut set = Set::new(1000);
        let mut files: BTreeMap<usize, Vec<(usize, u16)>> = BTreeMap::new();
        let mut told: BTreeMap<String, (i64, i32)> = BTreeMap::new();
        for step in steps {
            let step: BTreeMap<_, _> = step.into_iter().collect();
            let readings = step.iter().map(|(file, objects)| {
                let name = format!("f{file}");
                match objects {
                    None => (path(&name), Reading::Gone),
                    Some(objects) => {
                        let text: String = objects.iter().map(|(n, p)| service(&format!("s{n}"), *p)).collect();
                        reading(&set, &name, &text)
                    }
                }
            }).collect();
            for change in set.apply(readings) {
                match &change {
                    Change::Remove(key) => {
                        prop_assert!(told.remove(&*key.name).is_some());
                    }
                    Change::Upsert(Object::Service(s)) => {
                        let port = s.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port;
                        let name = s.metadata.name.clone().unwrap();
                        let generation = s.metadata.generation.unwrap();
                        let before = told.insert(name, (generation, port));
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
            // In a file the first of an object counts.
            let mut held: BTreeMap<String, Vec<i32>> = BTreeMap::new();
            for objects in files.values() {
                let mut seen = BTreeSet::new();
                for (name, port) in objects {
                    if seen.insert(name) {
                        held.entry(format!("s{name}")).or_default().push(i32::from(*port));
                    }
                }
            }
            prop_assert_eq!(told.keys().collect::<Vec<_>>(), held.keys().collect::<Vec<_>>());
            for (name, (_, port)) in &told {
                prop_assert!(held[name].contains(port));
            }
            let rivals: usize = held.values().map(|ports| ports.len() - 1).sum();
            let doubles: usize = files.values().map(|objects| {
                objects.len() - objects.iter().map(|(n, _)| n).collect::<BTreeSet<_>>().len()
            }).sum();
            prop_assert_eq!(set.problems().len(), rivals + doubles);
        }
    }
}
