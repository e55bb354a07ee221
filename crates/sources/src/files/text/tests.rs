//! YAML and JSON as trees: values are the same as kubectl's, locations are correct, limits hold, nothing panics.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::files::tree::{Node, Value};

/// All documents, as JSON or as `line:column message` for errors.
fn read_with(
    text: &str,
    format: Format,
    limits: &Limits,
) -> Vec<Result<serde_json::Value, String>> {
    let lines = Lines::new(text);
    let message = |error: SyntaxError| {
        let (line, column) = lines.location(error.at);
        format!("{line}:{column} {}", error.message)
    };
    let mut all = Vec::new();
    let end = documents(text, format, limits, |document| {
        all.push(match (document.root, document.errors.into_iter().next()) {
            (Err(error), _) | (Ok(_), Some(error)) => Err(message(error)),
            (Ok(root), None) => Ok(root.to_json()),
        });
    });
    if let Err(error) = end {
        all.push(Err(message(error)));
    }
    all
}

fn yaml(text: &str) -> Vec<Result<serde_json::Value, String>> {
    read_with(text, Format::Yaml, &Limits::default())
}

fn one(text: &str) -> serde_json::Value {
    let mut all = yaml(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).unwrap()
}

fn invalid(text: &str) -> String {
    let errors: Vec<_> = yaml(text).into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.into_iter().next().unwrap()
}

fn root(text: &str) -> Node {
    let mut found = None;
    documents(text, Format::Yaml, &Limits::default(), |document| {
        found = Some(document.root.unwrap());
    })
    .unwrap();
    found.unwrap()
}

#[test]
fn documents_are_split_at_their_markers() {
    assert_eq!(
        yaml("a: 1\n---\nb: 2\n--- # comment\n---\n# nothing\n---\nc: 3\n...\nd: 4\n"),
        [
            Ok(json!({"a": 1})),
            Ok(json!({"b": 2})),
            Ok(json!({"c": 3})),
            Ok(json!({"d": 4}))
        ]
    );
    assert_eq!(
        yaml("--- {a: 1}\n--- |\n text\n"),
        [Ok(json!({"a": 1})), Ok(json!("text\n"))]
    );
    assert_eq!(yaml("\u{feff}---\r\na: 1\r\n---\r\nb: 2\r\n").len(), 2);
    assert_eq!(one("%YAML 1.2\n---\na: 1\n"), json!({"a": 1}));
    assert_eq!(one("a: |\n  ---\n  text\n"), json!({"a": "---\ntext\n"}));
    assert_eq!(yaml(""), []);
    assert_eq!(yaml("# only\n\n---\n"), []);
}

#[test]
fn an_error_stays_in_its_document() {
    let all = yaml("a: 1\n---\nb: [1, 2\n---\nc: 3\n---\n  d: 1\n e: 2\n---\nf: 4\n");
    assert_eq!(all.len(), 5);
    assert_eq!(all[0], Ok(json!({"a": 1})));
    assert_eq!(all[2], Ok(json!({"c": 3})));
    assert_eq!(all[4], Ok(json!({"f": 4})));
    // The error is located where the bracket is missing, or no later than the end of the document.
    assert!(
        all[1].as_ref().unwrap_err().starts_with("4:1 ")
            || all[1].as_ref().unwrap_err().starts_with("3:"),
        "{all:?}"
    );
    assert!(all[3].as_ref().unwrap_err().starts_with("8:"), "{all:?}");
}

#[test]
fn quotes_and_tags_determine_the_type() {
    assert_eq!(
        one(
            "[yes, 'yes', \"010\", 010, !!str 010, !!int '7', !!float 1, !!bool 'on', ! 1, !!null '']"
        ),
        json!([true, "yes", "010", 8, "010", 7, 1, true, "1", null])
    );
    assert_eq!(
        one("a: |\n  1\nb: >-\n  2\n"),
        json!({"a": "1\n", "b": "2"})
    );
    assert!(invalid("a: !!int x").starts_with("1:"));
    assert!(invalid("a: !secret x").contains("!secret"));
    assert!(invalid("a: !!binary aGk=").contains("base64"));
    assert!(invalid("a: !!set {b: }").contains("tag"));
    assert!(invalid("a: .inf").starts_with("1:4 "));
}

#[test]
fn keys_become_text() {
    assert_eq!(
        one("on: 1\n010: 2\n1.50: 3\n'yes': 4\n"),
        json!({"true": 1, "8": 2, "1.5": 3, "yes": 4})
    );
    assert!(invalid("a: 1\n~: 2\n").starts_with("2:1 "));
    assert!(invalid("? [a, b]\n: 1\n").contains("not a valid key"));
}

#[test]
fn a_duplicate_key_is_an_error_at_its_second_occurrence() {
    assert_eq!(
        invalid("a:\n  b: 1\n  c: 2\n  b: 3\n"),
        "4:3 duplicate key `b`"
    );
    assert!(invalid("{\"a\": 1,\n \"a\": 2}").starts_with("2:7 duplicate key `a`"));
}

#[test]
fn aliases_and_merges_are_expanded() {
    assert_eq!(
        one("a: &x {p: 1, q: 2}\nb: *x\nc: {<<: *x, q: 3}\nd: {<<: [{r: 4, p: 5}, *x]}\n"),
        json!({
            "a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 2}, "c": {"p": 1, "q": 3},
            "d": {"r": 4, "p": 5, "q": 2}
        })
    );
    assert_eq!(one("'<<': 1"), json!({"<<": 1}));
    assert!(invalid("a: *nothing").starts_with("1:4 "));
    assert!(invalid("a: &a [*a]").contains("anchor that contains it"));
    assert!(invalid("<<: 1").contains("<<"));
}

#[test]
fn small_collections_have_no_spare_capacity() {
    let Value::List(items) = root("[{a: 1}, [b], {<<: {c: 1}}]").value else {
        panic!("not a list")
    };
    assert_eq!(items.capacity(), 3);
    for item in &items {
        let capacity = match &item.value {
            Value::List(items) => items.capacity(),
            Value::Map(entries) => entries.capacity(),
            _ => 0,
        };
        assert_eq!(capacity, 1);
    }
}

#[test]
fn aliases_are_limited() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = level - 1;
        let list = vec![format!("*a{before}"); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    assert!(invalid(&bomb).contains("aliases in this document expand to more than"));
    let long = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(1 << 20),
        ["*a"; 100].join(", ")
    );
    assert!(invalid(&long).contains("aliases"));
    // An anchor's copy counts too, even without aliases.
    let text = "x".repeat(100_000);
    let nested = |count: usize| {
        let open: String = (0..count).map(|level| format!("&a{level} [")).collect();
        format!("{open}{text}{}", "]".repeat(count))
    };
    one(&nested(40));
    assert!(invalid(&nested(60)).contains("anchors and aliases"));
    // A deep value inside a deep value counts too.
    let deep = format!(
        "a: &a {}{}\nb: {}*a{}\n",
        "[".repeat(40),
        "]".repeat(40),
        "[".repeat(40),
        "]".repeat(40)
    );
    assert!(invalid(&deep).contains("nested more than 64"));
    // Nested anchors would copy values even without aliases.
    let mut nested = String::new();
    for level in 0..60 {
        nested.push_str(&format!("&a{level} ["));
    }
    nested.push_str(&"x, ".repeat(1000));
    nested.push_str(&"]".repeat(60));
    let limits = Limits {
        values: 10_000,
        ..Limits::default()
    };
    let all = read_with(&nested, Format::Yaml, &limits);
    assert!(
        all[0]
            .as_ref()
            .is_err_and(|e| e.contains("more than 10000 values")),
        "{all:?}"
    );
}

#[test]
fn exceeded_limits_are_errors() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(65), close.repeat(65));
    assert!(invalid(&deep("[", "]")).contains("nested more than 64"));
    assert!(invalid(&deep("{\"a\":", "}").replace(":}", ":1}")).contains("nested more than 64"));
    assert!(invalid(&"- ".repeat(65)).contains("nested more than 64"));
    // The parser has a limit too.
    assert!(invalid(&"[".repeat(1000)).contains("nested more than 64"));
    let few = Limits {
        documents: 2,
        values: 3,
        ..Limits::default()
    };
    let all = read_with("1\n---\n2\n---\n3\n---\n4\n", Format::Yaml, &few);
    assert_eq!(all.len(), 3);
    assert_eq!(
        all[2],
        Err("4:1 more than 2 documents in one file".to_owned())
    );
    let all = read_with("{\"a\":1} {\"a\":1} {\"a\":1}", Format::Json, &few);
    assert!(
        all[2]
            .as_ref()
            .is_err_and(|e| e.contains("more than 2 documents"))
    );
    let all = read_with("{\"a\":[1,2]}", Format::Json, &few);
    assert!(
        all[0]
            .as_ref()
            .is_err_and(|e| e.starts_with("1:9 more than 3 values")),
        "{all:?}"
    );
    // Far beyond every limit, the stack doesn't overflow.
    for text in [
        "[", "{a: ", "- ", "? ", "&a ", "!!str ", "{\"a\":", "*a", "\"", "'", "|\n",
    ] {
        for repeated in [100, 100_000] {
            let all = yaml(&text.repeat(repeated));
            assert!(all.len() <= 1, "{text:?}");
        }
    }
}

#[test]
fn a_document_with_too_many_errors_is_refused() {
    let limits = Limits {
        errors: 10,
        ..Limits::default()
    };
    for (error, message) in [
        ("!x a", "unsupported tag"),
        ("!x {}", "unsupported tag"),
        ("!!int a", "not a valid integer"),
        ("{~: 1}", "not a valid key"),
        ("{<<: 1}", "takes a mapping"),
        ("{\"a\": 1, \"a\": 2}", "duplicate key"),
    ] {
        let read = |count: usize| {
            let text = format!("{{\"a\": [{}]}}", vec![error; count].join(", "));
            let mut roots = Vec::new();
            let each = |document: Document| roots.push((document.root, document.errors.len()));
            documents(&text, Format::Yaml, &limits, each).unwrap();
            roots.remove(0)
        };
        let (root, errors) = read(10);
        assert!(root.is_ok() && errors == 10, "{error}");
        let (root, errors) = read(1000);
        let refused = root.unwrap_err().message;
        assert!(refused.contains(message), "{refused}");
        assert!(refused.ends_with(" (more than 10 errors in one document)"));
        assert_eq!(errors, 10);
    }
}

#[test]
fn json_is_parsed_as_json() {
    assert_eq!(
        one("{\"a\": [1, -2.5, true, null, \"\\u00e9\\ud83d\\ude00\\/\"],\n\t\"b\": {}}"),
        json!({"a": [1, -2.5, true, null, "é😀/"], "b": {}})
    );
    assert_eq!(yaml("{\"a\": 1}\n{\"b\": 2}\n").len(), 2);
    // Text that only looks like JSON is YAML.
    assert_eq!(one("{a: 1, b: yes}"), json!({"a": 1, "b": true}));
    assert_eq!(yaml("{\"a\": 1}\n---\n{\"b\": 2}\n").len(), 2);
    let all = read_with(
        "{\"a\": 1}\n{\n  \"b\": oops\n}",
        Format::Json,
        &Limits::default(),
    );
    assert_eq!(all.len(), 2);
    let error = all[1].as_ref().unwrap_err();
    assert!(
        error.starts_with("3:8 invalid JSON: expected value"),
        "{error}"
    );
    assert!(read_with("{\"a\": 1", Format::Json, &Limits::default())[0].is_err());
    assert_eq!(read_with(" \n", Format::Json, &Limits::default()), []);
    assert!(read_with("{\"a\": \"\\ud800\"}", Format::Json, &Limits::default())[0].is_err());
}

#[test]
fn every_value_has_an_offset() {
    let text = "# é\nmetadata:\n  name: ä\nspec:\n  rules:\n  - a: 1\n    b: [x, {c: y}]\n  - d:\n";
    let root = root(text);
    let lines = Lines::new(text);
    let location_of =
        |path: &[super::super::tree::Step<'_>]| lines.location(root.locate(path.iter().copied()));
    use super::super::tree::Step::{Field, Index};
    assert_eq!(location_of(&[]), (2, 1));
    assert_eq!(location_of(&[Field("metadata"), Field("name")]), (3, 9));
    let rules = [Field("spec"), Field("rules")];
    assert_eq!(
        location_of(&[
            rules[0],
            rules[1],
            Index(0),
            Field("b"),
            Index(1),
            Field("c")
        ]),
        (7, 16)
    );
    // A missing value is located at its key, a missing field at its mapping.
    assert_eq!(
        location_of(&[rules[0], rules[1], Index(1), Field("d")]),
        (8, 5)
    );
    assert_eq!(
        location_of(&[rules[0], rules[1], Index(1), Field("e"), Field("f")]),
        (8, 5)
    );
    assert_eq!(
        location_of(&[rules[0], rules[1], Index(7)]),
        location_of(&rules)
    );
    let text = "{\"a\": [1,\n  {\"b\": \"é\", \"c\": 2}]}";
    let root = self::root(text);
    let at = root.locate([Field("a"), Index(1), Field("c")]);
    assert_eq!(Lines::new(text).location(at), (2, 19));
}

#[test]
fn locations_can_be_computed_in_any_order() {
    let text = "a\nbé\nc";
    let lines = Lines::new(text);
    assert_eq!(lines.location(7), (3, 2));
    assert_eq!(lines.location(0), (1, 1));
    assert_eq!(
        lines.location(4),
        (2, 2),
        "an offset inside a character is the location of the character"
    );
    assert_eq!(lines.location(100), (3, 2));
}

#[test]
fn locations_need_little_memory_and_read_one_block() {
    let size = 1 << 20;
    for line in ["\n", "x"] {
        let text = line.repeat(size);
        assert_eq!(Lines::new(&text).blocks.len(), size / BLOCK + 1);
    }
    let text = "é\n, ".repeat(size / 4);
    let lines = Lines::new(&text);
    let last = text.len() as u32 - 1;
    assert_eq!(lines.location(last), (size as u32 / 4 + 1, 2));
    let text = "é".repeat(size);
    assert_eq!(Lines::new(&text).location(2 * 999_999), (1, 1_000_000));
}

/// YAML that is likely to have errors.
fn scraps() -> impl Strategy<Value = String> {
    let scrap = prop::sample::select(vec![
        "a", ": ", "- ", "\n", "\n  ", "[", "]", "{", "}", ", ", "&a ", "*a", "<<: ", "---\n",
        "...\n", "'", "\"", "| \n", "> ", "!!str ", "!x ", "# c", "? ", "%TAG ! x", "\t", "010",
        "~", "é", "\u{feff}", "\r\n", "\\u", "0x",
    ]);
    prop::collection::vec(scrap, 0..60).prop_map(|scraps| scraps.concat())
}

proptest! {
    #[test]
    fn no_text_causes_a_panic_and_every_error_has_a_location(text in prop_oneof![any::<String>(), scraps()], is_json: bool) {
        let format = if is_json { Format::Json } else { Format::Yaml };
        let lines = Lines::new(&text);
        let mut errors = Vec::new();
        let end = documents(&text, format, &Limits::default(), |document| {
            errors.extend(document.root.err());
            errors.extend(document.errors);
        });
        errors.extend(end.err());
        let last = text.split('\n').count() as u32;
        for error in errors {
            let (line, column) = lines.location(error.at);
            prop_assert!(line >= 1 && line <= last && column >= 1);
            prop_assert!(!error.message.is_empty());
        }
    }

    #[test]
    fn a_location_counts_the_lines_and_characters_before_it(
        mark in "\u{feff}?", text in "[a\né€😀]{0,2000}", at in 0usize..6000,
    ) {
        let whole = format!("{mark}{text}");
        let lines = Lines::new(&whole);
        let at = text.floor_char_boundary(at);
        let before = &text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
        let location = lines.location((mark.len() + at) as u32);
        prop_assert_eq!(location, (line as u32, column as u32));
    }

    #[test]
    fn json_means_the_same_as_yaml(value in json_values()) {
        let text = serde_json::to_string_pretty(&value).unwrap();
        let as_json = read_with(&text, Format::Json, &Limits::default());
        prop_assert_eq!(as_json, vec![Ok(value.clone())]);
        let as_yaml = crate::files::yaml::document(&text, 0, &Limits::default()).unwrap();
        prop_assert_eq!(as_yaml.root.unwrap().to_json(), value);
    }
}

fn json_values() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "[ -~]{0,12}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::btree_map("[ -~]{0,8}", inner, 0..5)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}
