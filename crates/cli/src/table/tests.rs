use sesame_api::{Kind, ObjectKey};
use sesame_control::files::FileError;
use sesame_control::status_store::{DEFAULT_FLEET, NoticeView, ParentView};

use super::*;

fn listener(name: &str, severity: Severity) -> ListenerView {
    ListenerView {
        name: name.to_owned(),
        port: 80,
        protocol: "HTTP".to_owned(),
        hostname: None,
        attached_routes: Some(3),
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
            name: "shop/edge".to_owned(),
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
        ..Overview::default()
    }
}

fn ingress(kind: Kind, name: &str, hosts: &[&str]) -> IngressView {
    IngressView {
        key: ObjectKey::new(kind, "shop", name),
        hosts: hosts.iter().map(ToString::to_string).collect(),
        more_hosts: 0,
        class: Some("sesame".to_owned()),
        addresses: vec!["127.0.0.2".to_owned()],
        severity: Severity::Ok,
        message: None,
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
fn ingresses_have_a_table_of_their_own() {
    let mut fleet = overview(2, 0);
    fleet.gateways[0].name = DEFAULT_FLEET.to_owned();
    fleet.gateways[0].listeners[0].attached_routes = None;
    let overview = Overview {
        gateways: fleet.gateways,
        ingresses: vec![
            ingress(Kind::HTTPProxy, "root", &["a.example"]),
            ingress(Kind::HTTPProxy, "leaf", &[]),
            ingress(Kind::Ingress, "any", &[]),
        ],
        more_ingresses: 7,
        notices: vec![NoticeView {
            object: ObjectKey::new(Kind::Service, "shop", "web"),
            level: NoticeLevel::Warning,
            field: "metadata.annotations".to_owned(),
            message: "ignored".to_owned(),
        }],
        ..Overview::default()
    };
    let text = draw(&overview, false, None, MAX_ROWS);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        text.lines().next().unwrap(),
        "Service/shop/web: metadata.annotations: ignored"
    );
    assert_eq!(
        lines[2][..6],
        ["default", "fleet", "l0", "80/HTTP", "*", "-"]
    );
    assert_eq!(
        lines[4],
        ["INGRESS/HTTPPROXY", "HOSTS", "CLASS", "ADDRESS", "STATE"]
    );
    assert_eq!(
        lines[5][..3],
        ["HTTPProxy/shop/root", "a.example", "sesame"]
    );
    assert_eq!(lines[6][..2], ["HTTPProxy/shop/leaf", "-"]);
    assert_eq!(lines[7][..2], ["Ingress/shop/any", "*"]);
    assert_eq!(lines[8], ["and", "7", "more"]);
    // An empty table of routes isn't drawn.
    assert!(
        !text.contains("ROUTE ") && !text.contains("no routes"),
        "{text}"
    );
}

#[test]
fn the_message_of_a_listener_is_shown_beside_it() {
    let mut overview = overview(1, 0);
    overview.gateways[0]
        .listeners
        .push(listener("bad", Severity::Error));
    let text = draw(&overview, false, None, MAX_ROWS);
    let states = ["l0", "bad"].map(|name| {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        line.rsplit("  ").next().unwrap().trim()
    });
    assert_eq!(states, ["ok", "error: the port is in use"]);
}

#[test]
fn tables_fit_the_terminal() {
    for (listeners, routes) in [(0, 0), (1, 50), (50, 1), (50, 50)] {
        for (rows, ingresses) in [8, 22, 60].into_iter().zip([0, 5, 90]) {
            let mut overview = overview(listeners, routes);
            overview.ingresses = (0..ingresses)
                .map(|number| ingress(Kind::Ingress, &format!("i{number}"), &["a.example"]))
                .collect();
            let text = draw(&overview, false, Some(80), rows);
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
