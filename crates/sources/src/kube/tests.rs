use super::*;

#[test]
fn kinds_with_a_namespace_are_watched_in_each() {
    let config = KubeConfig {
        namespaces: Some(vec!["b".to_owned(), "a".to_owned(), "b".to_owned()]),
        kinds: vec![Kind::Service, Kind::GatewayClass, Kind::Namespace],
        ..KubeConfig::default()
    };
    let feeds = feeds(&config).unwrap();
    let told: Vec<_> = feeds
        .iter()
        .map(|(kind, namespace)| format!("{kind} {}", namespace.as_deref().unwrap_or("*")))
        .collect();
    assert_eq!(
        told,
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
fn a_namespace_that_can_not_be_is_refused() {
    for name in ["", "a/b", "A", "a..", &"a".repeat(64)] {
        let config = KubeConfig {
            namespaces: Some(vec![name.to_owned()]),
            ..KubeConfig::default()
        };
        assert_eq!(feeds(&config), Err(WatchError::Namespace(name.to_owned())));
    }
}
