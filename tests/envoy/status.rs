//! Statuses while Envoys are running.

use std::net::TcpListener;

use sesame_testkit::client::Request;

use crate::harness::{
    Folder, HTTP, Sesame, Summary, at, backends, becomes, check, eventually, gateway, listening,
    new_ip, route, turns,
};

#[tokio::test]
async fn gateways_are_programmed_once_envoy_serves_and_count_their_routes() {
    let (_backends, services) = backends(&["a"]).await;
    let listeners = [
        HTTP,
        "name: other, protocol: HTTP, port: 8081, hostname: b.example.com",
    ];
    let sesame = Sesame::with_gateway(&listeners, &services).await;
    let count = async |listener: &str, count: u32| {
        eventually(&format!("{listener} has {count} routes"), async || {
            let found = sesame.listener("web", listener).await?["attachedRoutes"].clone();
            anyhow::ensure!(found == count, "it has {found}");
            Ok(())
        })
        .await;
    };
    let status = sesame.status("Gateway", "web").await.expect("a status");
    assert_eq!(
        status["addresses"],
        serde_json::json!([{"type": "IPAddress", "value": sesame.ip.to_string()}])
    );
    for listener in ["http", "other"] {
        for (type_, expected) in [
            ("Accepted", "True"),
            ("Programmed", "True"),
            ("ResolvedRefs", "True"),
            ("Conflicted", "False"),
        ] {
            let found = sesame
                .of_listener("web", listener, type_)
                .await
                .expect("a condition");
            assert_eq!(found.status, expected, "{listener}: {type_}: {found:?}");
        }
        count(listener, 0).await;
    }
    sesame.folder().write(
        "one.yaml",
        &route("one", &["web"], &["a.example.com"], &[&at("/", "a")]),
    );
    count("http", 1).await;
    count("other", 0).await;
    sesame.folder().write(
        "two.yaml",
        &route("two", &["web"], &["b.example.com"], &[&at("/", "a")]),
    );
    count("http", 2).await;
    count("other", 1).await;
    sesame.folder().remove("one.yaml");
    count("http", 1).await;
    turns("the route", "True", "Accepted", async || {
        sesame.of_route("two", "Accepted").await
    })
    .await;
}

#[tokio::test]
async fn a_dangling_reference_is_reported_until_it_resolves() {
    let (_backends, services) = backends(&["a"]).await;
    let sesame = Sesame::serving(|ip| {
        vec![
            (
                "gateway.yaml",
                gateway("web", ip, &[HTTP])
                    + &route("a", &["web"], &["a.example.com"], &[&at("/", "a")]),
            ),
            (
                "other.yaml",
                route("elsewhere", &["nowhere"], &[], &[&at("/", "a")]),
            ),
        ]
    })
    .await;
    let message = turns("the reference", "False", "BackendNotFound", async || {
        sesame.of_route("a", "ResolvedRefs").await
    })
    .await;
    assert!(message.contains("Service default/a"), "{message}");
    turns("the route", "True", "Accepted", async || {
        sesame.of_route("a", "Accepted").await
    })
    .await;
    check(sesame.at(8080), &[("a.example.com", "/", "500")]).await;
    sesame.folder().write("services.yaml", &services);
    becomes(sesame.at(8080), "a.example.com", "/", "a").await;
    turns("the reference", "True", "ResolvedRefs", async || {
        sesame.of_route("a", "ResolvedRefs").await
    })
    .await;
    // A route attached to another controller's Gateway doesn't get a status.
    let elsewhere = sesame.status("HTTPRoute", "elsewhere").await.ok();
    let parents = elsewhere.and_then(|status| status["parents"].as_array().map(Vec::len));
    assert_eq!(parents.unwrap_or_default(), 0);
}

#[tokio::test]
async fn a_port_in_use_by_another_process_is_reported_until_it_is_free() {
    let (_backends, services) = backends(&["a"]).await;
    let ip = new_ip();
    let neighbour = new_ip();
    let taken = TcpListener::bind((ip, 8081)).expect("a free port");
    let listeners = [HTTP, "name: taken, protocol: HTTP, port: 8081"];
    let text = gateway("web", ip, &listeners)
        + &gateway("neighbour", neighbour, &[HTTP])
        + &services
        + &route(
            "a",
            &["web", "neighbour"],
            &["a.example.com"],
            &[&at("/", "a")],
        );
    let sesame = Sesame::start(ip, Folder::new(&[("all.yaml", text)]), &[]).await;
    let get = async || sesame.of_listener("web", "taken", "Accepted").await;
    let message = turns("the listener", "False", "PortUnavailable", get).await;
    assert!(message.contains("8081"), "{message}");
    becomes((neighbour, 8080).into(), "a.example.com", "/", "a").await;
    becomes(sesame.at(8080), "a.example.com", "/", "a").await;
    let accepted = sesame
        .of_gateway("web", "Accepted")
        .await
        .expect("a condition");
    assert_eq!(
        (accepted.status.as_str(), accepted.reason.as_str()),
        ("True", "ListenersNotValid")
    );
    let programmed = sesame
        .of_listener("web", "taken", "Programmed")
        .await
        .expect("a condition");
    assert_eq!(programmed.status, "False", "{programmed:?}");

    drop(taken);
    turns("the listener", "True", "Accepted", async || {
        sesame.of_listener("web", "taken", "Accepted").await
    })
    .await;
    becomes(sesame.at(8081), "a.example.com", "/", "a").await;
}

#[tokio::test]
async fn two_gateways_on_the_same_address_and_port_conflict() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let ip = new_ip();
    let text = gateway("first", ip, &[HTTP])
        + &gateway("second", ip, &[HTTP])
        + &services
        + &route("a", &["first"], &["a.example.com"], &[&at("/", "a")])
        + &route("b", &["second"], &["a.example.com"], &[&at("/", "b")]);
    let sesame = Sesame::start(ip, Folder::new(&[("all.yaml", text)]), &[]).await;
    let message = turns(
        "the second one's listener",
        "False",
        "PortUnavailable",
        async || sesame.of_listener("second", "http", "Accepted").await,
    )
    .await;
    assert!(message.contains("first"), "{message}");
    becomes(sesame.at(8080), "a.example.com", "/", "a").await;
    for _ in 0..20 {
        assert_eq!(
            Request::get("a.example.com", "/").of(sesame.at(8080)).await,
            "a"
        );
    }
}

#[tokio::test]
async fn unusable_addresses_and_unsupported_address_types_are_reported() {
    let (_backends, services) = backends(&["a"]).await;
    let ip = new_ip();
    let elsewhere = "203.0.113.7";
    let with = |name: &str, addresses: &str| {
        gateway(name, ip, &[HTTP])
            .replace(&format!("{{type: IPAddress, value: \"{ip}\"}}"), addresses)
    };
    let all = format!(
        "{{type: example.com/odd, value: odd}}, {{type: IPAddress, value: {elsewhere}}}, {{type: IPAddress, value: {ip}}}"
    );
    let text = services + &route("a", &["web"], &["a.example.com"], &[&at("/", "a")]);
    let folder = Folder::new(&[("gateway.yaml", with("web", &all)), ("all.yaml", text)]);
    let sesame = Sesame::start(ip, folder, &[]).await;
    turns("the Gateway", "False", "UnsupportedAddress", async || {
        sesame.of_gateway("web", "Accepted").await
    })
    .await;

    let two = format!("{{type: IPAddress, value: {elsewhere}}}, {{type: IPAddress, value: {ip}}}");
    sesame.folder().replace("gateway.yaml", &with("web", &two));
    let message = turns("the Gateway", "False", "AddressNotUsable", async || {
        sesame.of_gateway("web", "Programmed").await
    })
    .await;
    assert!(message.contains(elsewhere), "{message}");
    turns("the Gateway", "True", "Accepted", async || {
        sesame.of_gateway("web", "Accepted").await
    })
    .await;

    sesame
        .folder()
        .replace("gateway.yaml", &gateway("web", ip, &[HTTP]));
    turns("the Gateway", "True", "Programmed", async || {
        sesame.of_gateway("web", "Programmed").await
    })
    .await;
    let status = sesame.status("Gateway", "web").await.expect("a status");
    assert_eq!(
        status["addresses"],
        serde_json::json!([{"type": "IPAddress", "value": ip.to_string()}])
    );
    listening(sesame.at(8080)).await;
    check(sesame.at(8080), &[("a.example.com", "/", "a")]).await;
}

#[tokio::test]
async fn listeners_are_added_and_removed() {
    let (_backends, services) = backends(&["a"]).await;
    let sesame = Sesame::serving(|ip| {
        let text = services + &route("a", &["web"], &["a.example.com"], &[&at("/", "a")]);
        vec![
            ("gateway.yaml", gateway("web", ip, &[HTTP])),
            ("all.yaml", text),
        ]
    })
    .await;
    check(sesame.at(8080), &[("a.example.com", "/", "a")]).await;
    let second = "name: second, protocol: HTTP, port: 8081";
    sesame
        .folder()
        .replace("gateway.yaml", &gateway("web", sesame.ip, &[HTTP, second]));
    becomes(sesame.at(8081), "a.example.com", "/", "a").await;
    check(sesame.at(8080), &[("a.example.com", "/", "a")]).await;
    sesame
        .folder()
        .replace("gateway.yaml", &gateway("web", sesame.ip, &[second]));
    becomes(sesame.at(8080), "a.example.com", "/", "no response").await;
    check(sesame.at(8081), &[("a.example.com", "/", "a")]).await;
    eventually("one listener has a status", async || {
        let status = sesame.status("Gateway", "web").await?;
        let listeners = status["listeners"].as_array().map(Vec::len);
        anyhow::ensure!(listeners == Some(1), "{status}");
        Ok(())
    })
    .await;
    // The port is closed.
    eventually("the port is free", async || {
        Ok(TcpListener::bind(sesame.at(8080)).map(drop)?)
    })
    .await;
}
