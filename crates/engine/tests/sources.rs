//! Rows with more than one possible source: unions, merges, and rows that move between source keys.

use std::sync::Arc;

use sesame_engine::{Batch, Builder, Change, Commit, Engine, ReadKind, Table};

fn upsert<V>(key: u8, value: V) -> (u8, Change<V>) {
    (key, Change::Upsert(Arc::new(value)))
}

/// Each source key outputs the rows listed in its value.
struct Lists {
    engine: Engine,
    lists: Table<u8, Vec<(u8, &'static str)>>,
    out: Table<u8, &'static str>,
}

impl Lists {
    fn new() -> Self {
        let mut b = Builder::new();
        let lists: Table<u8, Vec<(u8, &'static str)>> = b.input("lists");
        let out = b.derive_many("out", lists, move |reader, key| {
            let list = reader.get(lists, key);
            list.map_or_else(Vec::new, |list| list.to_vec())
        });
        Lists {
            engine: b.build(),
            lists,
            out,
        }
    }

    fn set(&mut self, lists: &[(u8, &[(u8, &'static str)])]) -> Vec<(u8, Change<&'static str>)> {
        let mut batch = Batch::new();
        for (key, list) in lists {
            batch.upsert(self.lists, *key, list.to_vec());
        }
        self.engine.commit(batch).changes(self.out).to_vec()
    }

    /// The source key of a row.
    fn origin(&self, key: u8) -> Option<String> {
        Some(self.engine.explain(self.out, &key)?.key)
    }
}

#[test]
fn a_row_moves_between_source_keys_within_a_commit() {
    let mut lists = Lists::new();
    assert_eq!(lists.set(&[(5, &[(0, "a")])]), [upsert(0, "a")]);
    assert_eq!(lists.origin(0).as_deref(), Some("5"));
    // Moves the row to a source key that runs later, then back to one that runs earlier.
    let moved = lists.set(&[(5, &[]), (7, &[(0, "b")])]);
    assert_eq!(moved, [upsert(0, "b")]);
    assert_eq!(lists.origin(0).as_deref(), Some("7"));
    let moved = lists.set(&[(5, &[(0, "c")]), (7, &[])]);
    assert_eq!(moved, [upsert(0, "c")]);
    // The same value from another source key does not change the row.
    assert_eq!(lists.set(&[(5, &[]), (7, &[(0, "c")])]), []);
    assert_eq!(lists.origin(0).as_deref(), Some("7"));

    let mut batch = Batch::new();
    batch.remove(lists.lists, 7);
    batch.upsert(lists.lists, 5, vec![(0, "d")]);
    let commit = lists.engine.commit(batch);
    assert_eq!(commit.changes(lists.out), [upsert(0, "d")]);
    assert_eq!(lists.set(&[(5, &[(1, "d")])]).len(), 2, "to another key");
    assert_eq!(lists.origin(0), None);
    assert_eq!(lists.set(&[(5, &[])]), [(1, Change::Remove)]);
    assert!(lists.engine.is_empty(lists.out));
}

#[test]
fn if_a_run_outputs_a_key_twice_the_last_row_wins() {
    let mut lists = Lists::new();
    let changes = lists.set(&[(3, &[(1, "first"), (1, "last")])]);
    assert_eq!(changes, [upsert(1, "last")]);
}

#[test]
#[should_panic(expected = "table \"out\": source keys 5 and 7 both output key 0")]
fn two_source_keys_cannot_output_one_row() {
    Lists::new().set(&[(5, &[(0, "a")]), (7, &[(0, "a")])]);
}

#[test]
#[should_panic(expected = "table \"out\": source keys 7 and 5 both output key 0")]
fn a_source_key_cannot_take_over_the_row_of_another() {
    let mut lists = Lists::new();
    lists.set(&[(7, &[(0, "a")])]);
    lists.set(&[(5, &[(0, "a")])]);
}

/// A union of an input table and a derived one.
struct Names {
    engine: Engine,
    given: Table<u8, String>,
    numbers: Table<u8, u32>,
    names: Table<u8, String>,
}

impl Names {
    fn new() -> Self {
        let mut b = Builder::new();
        let given: Table<u8, String> = b.input("given");
        let numbers: Table<u8, u32> = b.input("numbers");
        let spelled = b.derive("spelled", numbers, move |reader, key| {
            reader.get(numbers, key).map(|number| number.to_string())
        });
        let names = b.union("names", [given, spelled]);
        Names {
            engine: b.build(),
            given,
            numbers,
            names,
        }
    }

    fn commit(&mut self, given: &[(u8, Option<&str>)], numbers: &[(u8, Option<u32>)]) -> Commit {
        let mut batch = Batch::new();
        for (key, name) in given {
            match name {
                Some(name) => batch.upsert(self.given, *key, (*name).to_owned()),
                None => batch.remove(self.given, *key),
            }
        }
        for (key, number) in numbers {
            match number {
                Some(number) => batch.upsert(self.numbers, *key, *number),
                None => batch.remove(self.numbers, *key),
            }
        }
        self.engine.commit(batch)
    }
}

#[test]
fn a_union_has_the_rows_of_all_its_tables() {
    let mut world = Names::new();
    let commit = world.commit(&[(1, Some("one"))], &[(2, Some(2))]);
    let names = world.names;
    let both = [upsert(1, "one".to_owned()), upsert(2, "2".to_owned())];
    assert_eq!(commit.changes(names), both);
    assert_eq!(commit.ran(names), [1, 2]);
    let row = world.engine.get(names, &1).expect("it has a row");
    let given = world.engine.get(world.given, &1).expect("it has a row");
    assert!(Arc::ptr_eq(&row, &given), "the value is shared");

    // A key moves between tables: with another value, then with the same one.
    let commit = world.commit(&[(1, None), (2, Some("two"))], &[(1, Some(1)), (2, None)]);
    let both = [upsert(1, "1".to_owned()), upsert(2, "two".to_owned())];
    assert_eq!(commit.changes(names), both);
    let commit = world.commit(&[(1, Some("1"))], &[(1, None)]);
    assert_eq!(commit.changes(names), []);

    let commit = world.commit(&[(1, None), (2, None)], &[]);
    let both = [(1, Change::Remove), (2, Change::Remove)];
    assert_eq!(commit.changes(names), both);
    assert_eq!(world.engine.footprint(), Default::default());
}

#[test]
fn a_row_of_a_union_is_explained_by_its_table() {
    let mut world = Names::new();
    world.commit(&[(1, Some("one"))], &[]);
    world.commit(&[], &[(2, Some(2))]);
    let why = world.engine.explain(world.names, &2).expect("it ran");
    assert_eq!((why.stage, &*why.key, why.revision), ("spelled", "2", 2));
    assert_eq!(why.reads.len(), 1);
    assert_eq!(why.reads[0].table, "numbers");
    let inputs = world.engine.explain(world.names, &1);
    assert_eq!(inputs, None, "an input table has no stage");
    assert_eq!(world.engine.explain(world.names, &3), None);
}

#[test]
#[should_panic(expected = "table \"names\": key 1 is in both \"given\" and \"spelled\"")]
fn a_key_cannot_be_in_two_tables_of_a_union() {
    let mut world = Names::new();
    world.commit(&[], &[(1, Some(1))]);
    world.commit(&[(1, Some("1"))], &[]);
}

#[test]
fn a_union_of_no_tables_is_empty() {
    let mut b = Builder::new();
    let input: Table<u8, u8> = b.input("input");
    let none: Table<u8, u8> = b.union("none", []);
    let mut engine = b.build();
    let mut batch = Batch::new();
    batch.upsert(input, 1, 1);
    engine.commit(batch);
    assert!(engine.is_empty(none));
}

#[test]
fn a_stage_merges_tables_and_indexes_by_precedence() {
    let mut b = Builder::new();
    let fixed: Table<u8, u8> = b.input("fixed");
    let votes: Table<u32, u8> = b.input("votes");
    let by_choice = b.index(votes, "by_choice", |_, choice| vec![*choice]);
    let keys = b.union_keys("keys", [fixed.into(), by_choice.into()]);
    let merged = b.derive("merged", keys, move |reader, key| {
        Some(match reader.get(fixed, key) {
            Some(value) => *value,
            None => u8::try_from(reader.count(by_choice, key)).expect("few votes"),
        })
    });
    let mut engine = b.build();
    let mut commit = |fix: &[(u8, Option<u8>)], vote: &[(u32, Option<u8>)]| {
        let mut batch = Batch::new();
        for (key, value) in fix {
            match value {
                Some(value) => batch.upsert(fixed, *key, *value),
                None => batch.remove(fixed, *key),
            }
        }
        for (key, choice) in vote {
            match choice {
                Some(choice) => batch.upsert(votes, *key, *choice),
                None => batch.remove(votes, *key),
            }
        }
        let commit = engine.commit(batch);
        (commit.changes(merged).to_vec(), commit.ran(merged))
    };
    let both = (vec![upsert(1, 100), upsert(2, 2)], vec![1, 2]);
    let votes = [(1, Some(2)), (2, Some(2)), (3, Some(1))];
    assert_eq!(commit(&[(1, Some(100))], &votes), both);
    // The votes for 1 were not read, since the table takes precedence.
    assert_eq!(commit(&[], &[(4, Some(1))]), (vec![], vec![]));
    assert_eq!(commit(&[(1, None)], &[]), (vec![upsert(1, 2)], vec![1]));
    // A key moves between sources: it stays in the union.
    let moved = commit(&[(2, Some(2))], &[(1, None), (2, None)]);
    assert_eq!(moved, (vec![], vec![2]));
    assert_eq!(
        commit(&[(2, None)], &[]),
        (vec![(2, Change::Remove)], vec![])
    );

    let why = engine.explain(merged, &1).expect("it ran");
    let reads: Vec<_> = why
        .reads
        .iter()
        .map(|read| (read.table, read.kind))
        .collect();
    assert_eq!(
        reads,
        [
            ("fixed", ReadKind::Get),
            ("votes", ReadKind::Count),
            ("keys", ReadKind::Get)
        ]
    );
    assert_eq!(engine.explain(keys, &1), None);
}
