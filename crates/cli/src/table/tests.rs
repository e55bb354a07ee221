use sesame_api::{Kind, NamespacedName, ObjectKey};
use sesame_control::files::FileError;
use sesame_control::status_store::ParentView;

use super::*;

fn listener(name: &str, severity: Severity) -> ListenerView {
    ListenerView {
        name: name.to_owned(),
        port: 80,
        protocol: "HTTP".to_owned(),
        hostname: None,
        attached_routes: 3,
        url: Some("http://127.0.0.1".to_owned()),
        severity,
        message: (severity != Severity::Ok).then(|| "the port is in use".to_owned()),
    }
}

fn route(name: &str, severity: Severity) -> RouteView {
    RouteView {
        key: ObjectKey::new(Kind::HTTPRoute, "shop", name),
        hostnames: vec![
            "a.example".to_owned(),
            "b.example".to_owned(),
            "c.example".to_owned(),
        ],
        parents: vec![ParentView {
            name: "shop/edge".to_owned(),
            severity,
            message: (severity != Severity::Ok).then(|| "no such Service".to_owned()),
        }],
        severity,
    }
}

fn overview(listeners: usize, routes: usize) -> Overview {
    Overview {
        gateways: vec![GatewayView {
            name: NamespacedName::new("shop", "edge"),
            addresses: vec!["127.0.0.1".to_owned()],
            severity: Severity::Ok,
            message: None,
            listeners: (0..listeners)
                .map(|n| listener(&format!("l{n}"), Severity::Ok))
                .collect(),
        }],
        routes: (0..routes)
            .map(|n| route(&format!("r{n}"), Severity::Error))
            .collect(),
        more_routes: 100,
        problems: vec![FileError {
            file: "a.yaml".into(),
            line: Some(3),
            column: Some(7),
            object: None,
            message: "invalid".to_owned(),
            hint: None,
        }],
    }
}

#[test]
fn problems_come_first() {
    let text = draw(&overview(1, 1), false, None, MAX_ROWS);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "a.yaml:3:7: invalid");
    assert!(
        lines[1].contains("GATEWAY") && lines[1].contains("URL"),
        "{text}"
    );
    for part in ["shop/edge", "l0", "80/HTTP", "http://127.0.0.1", " ok"] {
        assert!(lines[2].contains(part), "{part} in {text}");
    }
    for part in [
        "HTTPRoute/shop/r0",
        "a.example, b.example +1",
        "shop/edge",
        "error: no such Service",
    ] {
        assert!(lines[4].contains(part), "{part} in {text}");
    }
    assert_eq!(lines[5], " and 100 more");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn tables_fit_the_terminal() {
    for (listeners, routes) in [(0, 0), (1, 50), (50, 1), (50, 50)] {
        for rows in [8, 22, 60] {
            let text = draw(&overview(listeners, routes), false, Some(80), rows);
            assert!(
                text.lines().count() <= rows,
                "{listeners} {routes} {rows}\n{text}"
            );
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line:?}");
            }
        }
    }
}

#[test]
fn an_empty_overview_is_reported() {
    let text = draw(&Overview::default(), false, Some(80), 20);
    assert_eq!(
        text,
        " no Gateways use Sesame's GatewayClasses\n no routes are attached to Sesame's Gateways\n"
    );
}
