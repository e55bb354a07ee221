use sesame_model::TextMatch;

use super::super::testing::yaml;
use super::*;

fn read_list(text: &str, place: Place) -> Result<Conditions, Vec<String>> {
    let list: Vec<MatchCondition> = serde_json::from_value(yaml(text)).expect("conditions");
    let mut findings = Findings::default();
    match read("f", &list, place, &mut findings) {
        Some(Listed {
            conditions,
            partial: false,
        }) => Ok(conditions),
        _ => Err(findings
            .list
            .into_iter()
            .map(|found| found.message)
            .collect()),
    }
}

fn of_route(text: &str) -> Conditions {
    read_list(text, Place::Route).expect("valid conditions")
}

#[track_caller]
fn error(text: &str) -> String {
    let errors = read_list(text, Place::Route).expect_err("invalid conditions");
    errors.join("\n")
}

fn joined(outer: &str, inner: &str) -> Result<PathMatch, String> {
    let outer = read_list(outer, Place::Include).expect("valid conditions");
    let both = outer.and(&of_route(inner));
    Ok(both.map_err(|misfit| misfit.message)?.requests().path)
}

#[test]
fn paths_are_prefixes_of_text() {
    let path = |text: &str| of_route(text).requests().path;
    assert_eq!(path("[]"), PathMatch::Prefix("/".into()));
    assert_eq!(path("[{prefix: /}]"), PathMatch::Prefix("/".into()));
    assert_eq!(
        path("[{prefix: //a//b/}]"),
        PathMatch::StartsWith("/a/b/".into())
    );
    assert_eq!(path("[{exact: /a//b}]"), PathMatch::Exact("/a//b".into()));
    assert_eq!(
        path("[{regex: '/v[0-9]+'}]"),
        PathMatch::Regex("/v[0-9]+".into())
    );
}

#[test]
fn prefixes_of_inclusions_are_put_before_paths() {
    let prefix = |path: &str| Ok(PathMatch::StartsWith(path.into()));
    assert_eq!(joined("[{prefix: /a}]", "[]"), prefix("/a"));
    assert_eq!(joined("[{prefix: /a}]", "[{prefix: /}]"), prefix("/a/"));
    assert_eq!(joined("[{prefix: /a/}]", "[{prefix: /b}]"), prefix("/a/b"));
    assert_eq!(joined("[{prefix: /}]", "[{prefix: /b}]"), prefix("/b"));
    assert_eq!(
        joined("[{prefix: /a/}]", "[{exact: /b}]"),
        Ok(PathMatch::Exact("/a/b".into()))
    );
    let regex = |path: &str| Ok(PathMatch::Regex(path.into()));
    assert_eq!(
        joined("[{prefix: /a.b/}]", "[{regex: '^/c|/d'}]"),
        regex(r"/a\.b(?:/c|/d)")
    );
    for outer in ["[]", "[{prefix: /}]"] {
        assert_eq!(joined(outer, "[{regex: '.*'}]"), regex(".*"));
        assert_eq!(joined(outer, "[{regex: '^/a|^/b'}]"), regex("^/a|^/b"));
    }
    assert_eq!(
        joined("[{prefix: /a/}]", "[{regex: '[a-z]'}]"),
        regex("/a(?:[a-z])")
    );
    assert!(joined("[{prefix: /a}]", "[{regex: '/a|^/b'}]").is_err());
    let long = format!("[{{prefix: /{}}}]", "a".repeat(4_000));
    assert!(joined(&long, &long).is_err());
}

#[test]
fn headers_have_one_matcher() {
    let value = |text: &str| {
        let mut found = of_route(&format!("[{{header: {{name: x, {text}}}}}]")).headers;
        found.remove(0).value
    };
    let text = |text: &str, position, ignore_case| {
        ValueMatch::Text(Box::new(TextMatch {
            text: text.into(),
            position,
            ignore_case,
        }))
    };
    let not = |value| ValueMatch::Not(Box::new(value));
    let not_or_absent = |value| ValueMatch::NotOrAbsent(Box::new(value));
    assert_eq!(value("present: true"), ValueMatch::Present);
    assert_eq!(value("notpresent: true"), ValueMatch::Absent);
    assert_eq!(value("exact: a"), ValueMatch::Exact("a".into()));
    assert_eq!(value("regex: a+"), ValueMatch::Regex("a+".into()));
    assert_eq!(
        value("exact: a, ignoreCase: true"),
        text("a", TextPosition::Whole, true)
    );
    assert_eq!(
        value("contains: a, ignoreCase: true"),
        text("a", TextPosition::Anywhere, true)
    );
    assert_eq!(value("notexact: a"), not(ValueMatch::Exact("a".into())));
    assert_eq!(
        value("notcontains: a, treatMissingAsEmpty: true"),
        not_or_absent(text("a", TextPosition::Anywhere, false))
    );
}

#[test]
fn query_parameters_have_one_matcher() {
    let value = |text: &str| {
        let mut found = of_route(&format!("[{{queryParameter: {{name: x, {text}}}}}]")).query;
        found.remove(0).value
    };
    for (matcher, position) in [
        ("prefix", TextPosition::Start),
        ("suffix", TextPosition::End),
        ("contains", TextPosition::Anywhere),
    ] {
        let expected = ValueMatch::Text(Box::new(TextMatch {
            text: "a".into(),
            position,
            ignore_case: false,
        }));
        assert_eq!(value(&format!("{matcher}: a")), expected);
    }
    assert_eq!(value("present: true"), ValueMatch::Present);
    assert_eq!(value("exact: a"), ValueMatch::Exact("a".into()));
    assert_eq!(value("regex: a*"), ValueMatch::Regex("a*".into()));
}

#[test]
fn invalid_conditions_are_reported_with_their_field() {
    // Contour's CRD doesn't bound names.
    let long = |kind: &str| format!("[{{{kind}: {{name: {}, present: true}}}}]", "a".repeat(257));
    for (text, expected) in [
        (&*long("header"), "f.conditions[0].header: name"),
        (
            &long("queryParameter"),
            "f.conditions[0].queryParameter: name",
        ),
        ("[{prefix: a}]", "f.conditions[0].prefix: expected"),
        ("[{exact: '/a?b'}]", "f.conditions[0].exact: expected"),
        ("[{regex: '('}]", "f.conditions[0].regex: the regular"),
        ("[{prefix: /a}, {exact: /b}]", "f.conditions[1]: only one"),
        (
            "[{prefix: /a, exact: /b}]",
            "f.conditions[0]: prefix, exact",
        ),
        (
            "[{header: {name: 'a b', present: true}}]",
            "f.conditions[0].header: name",
        ),
        (
            "[{header: {name: a}}]",
            "f.conditions[0].header: has no matcher",
        ),
        (
            "[{header: {name: a, exact: b, contains: c}}]",
            "f.conditions[0].header: contains and exact",
        ),
        (
            "[{header: {name: a, contains: ''}}]",
            "f.conditions[0].header: contains must",
        ),
        (
            "[{header: {name: a, exact: b, treatMissingAsEmpty: true}}]",
            "f.conditions[0].header: treatMissing",
        ),
        (
            "[{queryParameter: {name: a, regex: b, ignoreCase: true}}]",
            "f.conditions[0].queryParameter: ignoreCase",
        ),
        (
            "[{queryParameter: {name: a}}]",
            "f.conditions[0].queryParameter: has no",
        ),
    ] {
        let found = error(text);
        assert!(found.starts_with(expected), "{text}: {found}");
    }
    for text in ["[{exact: /a}]", "[{regex: /a}]"] {
        let errors = read_list(text, Place::Include).expect_err("invalid conditions");
        assert!(errors[0].contains("allows only a prefix"), "{errors:?}");
    }
}

#[test]
fn contradictions_are_errors() {
    for pair in [
        "exact: a}}, {header: {name: X, exact: b",
        "present: true}}, {header: {name: X, notpresent: true",
        "exact: a}}, {header: {name: X, notexact: a",
        "contains: a}}, {header: {name: X, notcontains: a, treatMissingAsEmpty: true",
        "notpresent: true}}, {header: {name: X, exact: b",
    ] {
        let found = error(&format!("[{{header: {{name: x, {pair}}}}}]"));
        assert!(found.starts_with("f.conditions: header x: "), "{found}");
    }
    for pair in [
        "exact: a}}, {header: {name: w, exact: b",
        "contains: a}}, {header: {name: x, contains: b",
        "notexact: a}}, {header: {name: x, notexact: b",
        "exact: a}}, {header: {name: x, exact: a",
    ] {
        of_route(&format!("[{{header: {{name: x, {pair}}}}}]"));
    }
    let parameter = "queryParameter: {name: x, exact:";
    let found = error(&format!("[{{{parameter} a}}}}, {{{parameter} b}}}}]"));
    assert!(found.contains("query parameter x: several"), "{found}");
}

#[test]
fn conditions_have_the_same_fingerprint_in_any_order() {
    let a = "{header: {name: A, exact: b}}";
    let b = "{header: {name: c, present: true}}";
    let one = of_route(&format!("[{a}, {b}, {{prefix: /p}}]"));
    let other = of_route(&format!("[{{prefix: /p}}, {b}, {}]", a.replace('A', "a")));
    assert_eq!(one.fingerprint(), other.fingerprint());
    assert_ne!(
        one.fingerprint(),
        of_route(&format!("[{a}, {b}]")).fingerprint()
    );
}
