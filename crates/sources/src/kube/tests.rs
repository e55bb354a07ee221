use super::*;

#[test]
fn kinds_with_a_namespace_are_watched_in_each_namespace() {
    let config = WatchConfig {
        namespaces: Some(vec!["b".to_owned(), "a".to_owned(), "b".to_owned()]),
        kinds: vec![Kind::Service, Kind::GatewayClass, Kind::Namespace],
        ..WatchConfig::default()
    };
    let watched = watched(&config).unwrap();
    let lines: Vec<_> = watched
        .iter()
        .map(|(kind, namespace)| format!("{kind} {}", namespace.as_deref().unwrap_or("*")))
        .collect();
    assert_eq!(
        lines,
        [
            "GatewayClass *",
            "Namespace a",
            "Namespace b",
            "Service a",
            "Service b"
        ]
    );
}

#[test]
fn an_invalid_namespace_is_an_error() {
    for name in ["", "a/b", "A", "a..", &"a".repeat(64)] {
        let config = WatchConfig {
            namespaces: Some(vec![name.to_owned()]),
            ..WatchConfig::default()
        };
        assert_eq!(
            watched(&config),
            Err(WatchError::Namespace(name.to_owned()))
        );
    }
}
