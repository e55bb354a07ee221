//! Explanations, memory release, and panics on programming errors.

use std::sync::{Arc, OnceLock};

use sesame_engine::{Batch, Builder, Commit, Engine, Explain, Index, Read, ReadKind, Table};

fn read(
    table: &'static str,
    index: Option<&'static str>,
    kind: ReadKind,
    key: impl std::fmt::Debug,
) -> Read {
    Read {
        table,
        index,
        kind,
        key: format!("{key:?}"),
    }
}

#[test]
fn explain_returns_the_reads_of_the_last_run() {
    let mut b = Builder::new();
    let names: Table<u8, String> = b.input("names");
    let ages: Table<String, u8> = b.input("ages");
    let by_length: Index<u8, String, usize> =
        b.index(names, "by_length", |_, name| vec![name.len()]);
    let out = b.derive("out", by_length, move |reader, length| {
        let mut oldest = None;
        for (_, name) in reader.by(by_length, length) {
            reader.exists(ages, &name);
            oldest = oldest.max(reader.get(ages, &name).map(|age| *age));
        }
        reader.keys(by_length, &(length + 1));
        reader.count(by_length, length);
        reader.exists(ages, &"eva".to_owned());
        oldest
    });
    let pairs = b.derive_many("pairs", out, move |reader, length| {
        let oldest = reader.get(out, length);
        oldest.map(|age| (*age, *length)).into_iter().collect()
    });
    let mut engine = b.build();
    let mut batch = Batch::new();
    batch.upsert(names, 1, "ann".to_owned());
    batch.upsert(names, 2, "bob".to_owned());
    batch.upsert(ages, "bob".to_owned(), 30);
    engine.commit(batch);
    let mut batch = Batch::new();
    batch.upsert(names, 3, "eve".to_owned());
    engine.commit(batch);
    let mut batch = Batch::new();
    batch.upsert(names, 4, "carl".to_owned());
    engine.commit(batch);
    let mut batch = Batch::new();
    batch.upsert(ages, "unread".to_owned(), 1);
    engine.commit(batch);

    let explain = engine.explain(out, &3).expect("it ran");
    assert_eq!(
        explain,
        Explain {
            stage: "out",
            key: "3".to_owned(),
            revision: 3,
            reads: vec![
                read("names", Some("by_length"), ReadKind::By, 3),
                read("names", Some("by_length"), ReadKind::Keys, 4),
                read("names", Some("by_length"), ReadKind::Count, 3),
                read("ages", None, ReadKind::Get, "ann"),
                read("ages", None, ReadKind::Get, "bob"),
                read("ages", None, ReadKind::Get, "eve"),
                read("ages", None, ReadKind::Exists, "ann"),
                read("ages", None, ReadKind::Exists, "bob"),
                read("ages", None, ReadKind::Exists, "eva"),
                read("ages", None, ReadKind::Exists, "eve"),
            ],
        }
    );
    assert!(explain.to_string().starts_with(
        "out ran for 3 at revision 3\n  by names.by_length 3\n  keys names.by_length 4\n"
    ));
    // Carl has no age: there is an explanation, but no row.
    assert_eq!(engine.get(out, &4), None);
    assert_eq!(engine.explain(out, &4).map(|why| why.reads.len()), Some(6));
    assert_eq!(engine.explain(out, &5), None, "no name has five letters");
    // A row of `derive_many` is explained by its source key, whose input has not changed since the first
    // commit.
    let explain = engine.explain(pairs, &30).expect("it ran");
    assert_eq!((explain.key.as_str(), explain.revision), ("3", 1));
    assert_eq!(explain.reads, [read("out", None, ReadKind::Get, 3)]);
    assert_eq!(engine.explain(pairs, &31), None);
    assert_eq!(
        engine.explain(names, &1),
        None,
        "an input table has no stage"
    );
}

/// An early stage adds its new edges before later stages free those of removed keys, so the new edges are at the end of
/// the arena.
#[test]
fn an_edge_at_the_end_of_the_arena_does_not_prevent_truncation() {
    let mut b = Builder::new();
    let numbers: Table<u8, u32> = b.input("numbers");
    let known: Table<u32, u32> = b.input("known");
    let routes: Table<u32, u32> = b.input("routes");
    let sum = b.derive("sum", numbers, move |reader, key| {
        let number = reader.get(numbers, key).map_or(0, |number| *number);
        let values = (0..number).filter_map(|key| reader.get(known, &key).map(|value| *value));
        Some(values.sum::<u32>())
    });
    let each = b.derive("each", routes, move |reader, key| {
        let seen = (100..104).filter(|known_key| reader.exists(known, known_key));
        Some(seen.count() as u32 + key)
    });
    let mut engine = b.build();
    let mut batch = Batch::new();
    batch.upsert(numbers, 0, 1);
    for key in 0..20 {
        batch.upsert(known, key, 1);
    }
    for key in 0..10_000 {
        batch.upsert(routes, key, key);
    }
    engine.commit(batch);
    assert!(engine.footprint().slots > 40_000);

    let mut batch = Batch::new();
    batch.upsert(numbers, 0, 9);
    for key in 0..10_000 {
        batch.remove(routes, key);
    }
    engine.commit(batch);
    let slots = engine.footprint().slots;
    assert!(slots < 200, "{slots}");

    // All readers still run.
    let reads = engine.explain(sum, &0).map(|why| why.reads.len());
    assert_eq!(reads, Some(10), "its number and nine values");
    for key in 0..9 {
        let mut batch = Batch::new();
        batch.upsert(known, key, 2);
        assert_eq!(engine.commit(batch).work(), [("sum", 1)], "{key}");
    }
    assert_eq!(engine.get(sum, &0), Some(Arc::new(18)));
    let mut batch = Batch::new();
    batch.upsert(routes, 7, 7);
    engine.commit(batch);
    let mut batch = Batch::new();
    batch.upsert(known, 100, 1);
    assert_eq!(engine.commit(batch).work(), [("each", 1)]);
    assert_eq!(engine.get(each, &7), Some(Arc::new(8)));
}

#[test]
fn engine_batch_and_commit_are_send_and_sync() {
    fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Engine>();
    send_and_sync::<Batch>();
    send_and_sync::<Commit>();
}

#[test]
#[should_panic(expected = "stage \"early\" reads table \"late\", which is not declared before it")]
fn a_stage_cannot_read_a_later_table() {
    let late: Arc<OnceLock<Table<u8, u8>>> = Arc::default();
    let mut b = Builder::new();
    let input: Table<u8, u8> = b.input("input");
    let seen = Arc::clone(&late);
    b.derive("early", input, move |reader, key| {
        let late = *seen.get().expect("already declared");
        reader.get(late, key).map(|value| *value)
    });
    let table = b.derive("late", input, move |reader, key| {
        reader.get(input, key).map(|value| *value)
    });
    late.set(table).expect("set once");
    let mut engine = b.build();
    let mut batch = Batch::new();
    batch.upsert(input, 1, 1);
    engine.commit(batch);
}

#[test]
#[should_panic(expected = "stage \"own\" reads table \"own\", which is not declared before it")]
fn a_stage_cannot_read_its_own_index() {
    let index: Arc<OnceLock<Index<u8, usize, u8>>> = Arc::default();
    let mut b = Builder::new();
    let input: Table<u8, u8> = b.input("input");
    let seen = Arc::clone(&index);
    let own = b.derive("own", input, move |reader, key| {
        Some(reader.count(*seen.get().expect("already declared"), key))
    });
    let by_key = b.index(own, "by_key", |key: &u8, _| vec![*key]);
    index.set(by_key).expect("set once");
    let mut engine = b.build();
    let mut batch = Batch::new();
    batch.upsert(input, 1, 1);
    engine.commit(batch);
}

#[test]
#[should_panic(expected = "belongs to another engine")]
fn a_handle_of_another_engine_is_rejected() {
    let build = || {
        let mut b = Builder::new();
        let table: Table<u8, u8> = b.input("table");
        (b.build(), table)
    };
    let ((engine, _), (_, foreign)) = (build(), build());
    engine.len(foreign);
}

#[test]
#[should_panic(expected = "a batch changes only input tables")]
fn a_batch_cannot_change_a_derived_table() {
    let mut b = Builder::new();
    let input: Table<u8, u8> = b.input("input");
    let derived = b.derive("derived", input, |_, key| Some(*key));
    Batch::new().upsert(derived, 1, 1);
}

#[test]
#[should_panic(expected = "two tables named \"twice\"")]
fn names_are_unique() {
    let mut b = Builder::new();
    let _: Table<u8, u8> = b.input("twice");
    let _: Table<u8, u8> = b.input("twice");
}

#[test]
fn a_panic_propagates_and_further_commits_panic() {
    let mut b = Builder::new();
    let input: Table<u8, u8> = b.input("input");
    let out = b.derive("out", input, move |reader, key| {
        let value = *reader.get(input, key)?;
        assert!(value != 13, "thirteen");
        Some(value)
    });
    let mut engine = b.build();
    let mut commit = |value: u8| {
        let mut batch = Batch::new();
        batch.upsert(input, 1, value);
        let commit = std::panic::AssertUnwindSafe(|| engine.commit(batch));
        std::panic::catch_unwind(commit).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        })
    };
    assert!(commit(12).is_ok());
    assert_eq!(commit(13).err(), Some(Some("thirteen".to_owned())));
    let rejected = commit(14).err().flatten().expect("panics with a message");
    assert!(rejected.contains("an earlier commit"), "{rejected}");
    assert_eq!(engine.get(out, &1).as_deref(), Some(&12));
}
