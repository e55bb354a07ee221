//! Sharded route tables respond like whole ones, with and without the module, and no request is lost when a table
//! switches between the two forms.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};
use sesame_testkit::client::{Connect, Connection, Request};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::harness::{
    Dice, Folder, HTTP, Sesame, backend, becomes, eventually, gateway, listening, new_ip, route, to,
};

/// Number of HTTPRoutes.
const ROUTES: usize = 120;
/// Number of changes.
const ROUNDS: usize = 5;
/// Number of requests after each change.
const REQUESTS: usize = 2_000;

/// Listeners on one port with overlapping hosts: a request reaches the routes of the most specific one only.
const LISTENERS: [&str; 4] = [
    "name: all, protocol: HTTP, port: 8080",
    "name: example, protocol: HTTP, port: 8080, hostname: \"*.example.com\"",
    "name: team, protocol: HTTP, port: 8080, hostname: \"*.t1.example.com\"",
    "name: one, protocol: HTTP, port: 8080, hostname: h1.t1.example.com",
];

/// A random route hostname.
fn hostname(dice: &mut Dice) -> String {
    let (host, team) = (dice.roll(40), dice.roll(4));
    match dice.roll(12) {
        0 => "*.example.com".to_owned(),
        1 => format!("*.t{team}.example.com"),
        2 => format!("*.h{host}.t{team}.example.com"),
        3 => format!("shop-{host}.io"),
        4 => format!("{host}.com"),
        _ => format!("h{host}.t{team}.example.com"),
    }
}

/// A route by number. Its responses identify the rule and the round.
fn some_route(number: usize, round: usize, dice: &mut Dice) -> String {
    let hosts: Vec<String> = (0..=dice.roll(2)).map(|_| hostname(dice)).collect();
    let mut hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    if dice.roll(40) == 0 {
        // No hostname: matches every host of its listeners.
        hosts.clear();
    }
    let section = dice.one_of(&["", ", sectionName: all", ", sectionName: example"]);
    let rule = |name: &str, matches: &str| {
        format!(
            "matches: [{matches}], filters: [{{type: RequestRedirect, requestRedirect: {{hostname: \
             {name}.r{number}.v{round}.test, statusCode: 302}}}}]"
        )
    };
    let path = dice.one_of(&["/", "/a", "/a/b"]);
    let rules = [
        rule("path", &format!("{{path: {{value: {path}}}}}")),
        rule("exact", "{path: {type: Exact, value: /a}}"),
        rule("header", "{headers: [{name: x-a, value: b}]}"),
    ];
    let rules = &rules[..=dice.roll(rules.len())].to_vec();
    route(
        &format!("r{number}"),
        &[&format!("web{section}")],
        &hosts,
        rules,
    )
}

/// A Host header, mostly one that some route has.
fn host(dice: &mut Dice) -> String {
    let known = hostname(dice).replace('*', dice.one_of(&["x", "h1", "a.b", "x-y"]));
    match dice.roll(16) {
        0 => known.to_uppercase(),
        1 => format!("{known}:8080"),
        2 => format!("{known}."),
        3 => format!("{known}.:80"),
        4 => format!("X.{known}:1"),
        5 => known.replacen('h', "H", 1),
        6 => dice
            .one_of(&[
                "127.0.0.1",
                "[::1]",
                "[::1]:8080",
                "localhost",
                "example.com",
                "a_b.c",
                ".",
                "*",
            ])
            .to_owned(),
        7 => format!("{known}.de"),
        8 => "marker.test".to_owned(),
        _ => known,
    }
}

fn request(dice: &mut Dice) -> Request {
    let path = dice.one_of(&["/", "/a", "/a/b", "/a/b/c?d=e", "/ab"]);
    let mut request = Request::get(&host(dice), path);
    if dice.roll(4) == 0 {
        request = request.header("x-a", "b");
    }
    match dice.roll(8) {
        0 => request.header("x-sesame-shard", "8080#3.3"),
        1 => request
            .header("X-Sesame-Shard", "")
            .header("x-sesame-shard", "8080#3.255"),
        _ => request,
    }
}

/// Summarizes a response: the Location or the status.
async fn summary(
    connection: &mut Option<Connection>,
    at: SocketAddr,
    request: &Request,
) -> Result<String> {
    summary_by(&Connect::plain(), connection, at, request).await
}

async fn summary_by(
    connect: &Connect,
    connection: &mut Option<Connection>,
    at: SocketAddr,
    request: &Request,
) -> Result<String> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => connect.open(at).await?,
    };
    let response = open.send(request).await?;
    // Envoy closes the connection after some invalid requests.
    if response.header("connection") != "close" {
        *connection = Some(open);
    }
    Ok(format!(
        "{} {}",
        response.status.as_u16(),
        response.header("location")
    ))
}

/// Sends a CONNECT request, which Envoy rejects, and returns the status line.
async fn tunnel(at: SocketAddr, host: &str) -> Result<String> {
    let mut stream = BufReader::new(TcpStream::connect(at).await?);
    let request = format!("CONNECT {host}:80 HTTP/1.1\r\nhost: {host}:80\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    timeout(Duration::from_secs(10), stream.read_line(&mut line)).await??;
    ensure!(line.contains(" 404 "), "{line:?}");
    Ok(line)
}

/// Whether its Envoy has loaded Sesame's module.
fn has_module(sesame: &Sesame) -> bool {
    let envoys = sesame.envoys();
    let [(pid, _)] = &envoys[..] else {
        panic!("expected one Envoy: {envoys:?}");
    };
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
    maps.expect("a running process").contains("sesame_shard")
}

#[tokio::test]
async fn shards_respond_like_a_whole_table() {
    let mut dice = Dice::new(7);
    let mut routes: Vec<String> = (0..ROUTES)
        .map(|number| some_route(number, 0, &mut dice))
        .collect();
    let text = |routes: &[String], ip: IpAddr, round: usize| {
        let marker = format!(
            "filters: [{{type: RequestRedirect, requestRedirect: {{hostname: v{round}.test}}}}]"
        );
        let marker = route("marker", &["web"], &["marker.test"], &[marker]);
        let mut text = gateway("web", ip, &LISTENERS) + &marker;
        routes.iter().for_each(|route| text += route);
        text
    };
    let start = async |arguments: &[&str]| {
        let ip = new_ip();
        let folder = Folder::new(&[("all.yaml", text(&routes, ip, 0))]);
        let sesame = Sesame::start(ip, folder, arguments).await;
        sesame.programmed().await;
        sesame
    };
    let whole = start(&["--route-shards=never"]).await;
    let by_module = start(&["--route-shards=always"]).await;
    let by_expressions = start(&["--route-shards=always", "--envoy-module=false"]).await;
    let loaded = [&whole, &by_module, &by_expressions].map(has_module);
    assert_eq!(loaded, [false, true, false]);
    for round in 0..ROUNDS {
        if round > 0 {
            for _ in 0..ROUTES / 6 {
                let number = dice.roll(ROUTES);
                routes[number] = match dice.roll(5) {
                    0 => String::new(),
                    _ => some_route(number, round, &mut dice),
                };
            }
            for sesame in [&whole, &by_module, &by_expressions] {
                sesame
                    .folder()
                    .replace("all.yaml", &text(&routes, sesame.ip, round));
            }
        }
        for sesame in [&whole, &by_module, &by_expressions] {
            eventually("the change is served", async || {
                let mut none = None;
                let seen = summary(
                    &mut none,
                    sesame.at(8080),
                    &Request::get("marker.test", "/"),
                )
                .await?;
                ensure!(seen == format!("302 http://v{round}.test:8080/"), "{seen}");
                Ok(())
            })
            .await;
        }
        let connect = match round % 2 {
            0 => Connect::plain(),
            _ => Connect::plain().h2(),
        };
        let mut to_whole = None;
        let mut shards = [(&by_module, None), (&by_expressions, None)];
        for _ in 0..REQUESTS {
            let request = request(&mut dice);
            // The last shard may arrive shortly after the first.
            eventually("the same response", async || {
                let one = summary_by(&connect, &mut to_whole, whole.at(8080), &request).await?;
                for (sesame, connection) in &mut shards {
                    let other = summary_by(&connect, connection, sesame.at(8080), &request).await?;
                    let (ours, theirs) = (sesame.ip.to_string(), whole.ip.to_string());
                    ensure!(
                        one == other.replace(&ours, &theirs),
                        "{request:?}: {one} or {other}"
                    );
                }
                Ok(())
            })
            .await;
        }
    }
    for host in ["marker.test", "h1.t1.example.com", "unknown.test"] {
        let mut seen = Vec::new();
        for sesame in [&whole, &by_module, &by_expressions] {
            seen.push(tunnel(sesame.at(8080), host).await.expect("a response"));
        }
        assert!(
            seen.windows(2).all(|two| two[0] == two[1]),
            "{host}: {seen:?}"
        );
    }
}

#[tokio::test]
async fn backends_see_no_trace_of_shards() {
    let (_backend, service) = backend("a").await;
    let ip = new_ip();
    let rule = "backendRefs: [{name: a, port: 80}], filters: [{type: RequestHeaderModifier, \
                requestHeaderModifier: {add: [{name: x-b, value: c}]}}]";
    let text = gateway("web", ip, &[HTTP]) + &service + &route("a", &["web"], &["a.test"], &[rule]);
    let folder = Folder::new(&[("all.yaml", text)]);
    let sesame = Sesame::start(ip, folder, &["--route-shards", "always"]).await;
    sesame.programmed().await;
    listening(sesame.at(8080)).await;
    let request = Request::get("A.test:99", "/").header("x-sesame-shard", "8080#3.1");
    let response = sesame.ask_well(&request).await.json();
    let headers = response["headers"].to_string().to_lowercase();
    assert!(
        headers.contains("x-b") && headers.contains("a.test:99"),
        "{response}"
    );
    assert!(!headers.contains("shard"), "{response}");
}

/// Routes on a listener, for this many hosts.
fn hosts(listener: &str, number: usize) -> String {
    let parent = format!("web, sectionName: {listener}");
    let route = |host: usize| {
        let hostname = format!("h{host}.test");
        route(
            &format!("{listener}-{host}"),
            &[&parent],
            &[&hostname],
            &[to("a")],
        )
    };
    (0..number).map(route).collect()
}

/// Requests the first host, on a persistent connection and on new ones, while `work` runs.
///
/// # Panics
/// If a response isn't a 200.
async fn under_requests(at: SocketAddr, work: impl Future<Output = ()>) {
    let (over, asked) = (Cell::new(false), Cell::new(0_u32));
    let request = Request::get("h0.test", "/");
    let steady = async {
        let mut kept: Option<Connection> = None;
        while !over.get() {
            let seen = summary(&mut kept, at, &request).await;
            let seen = seen.expect("a response on the persistent connection");
            assert_eq!(seen, "200 ", "on the persistent connection");
            let fresh = Connect::plain().send(at, &request).await;
            assert_eq!(fresh.expect("a response").status, 200);
            asked.set(asked.get() + 2);
        }
    };
    let work = async {
        work.await;
        over.set(true);
    };
    tokio::join!(steady, work);
    assert!(asked.get() > 100, "{}", asked.get());
}

async fn responses(at: SocketAddr, host: usize, status: u16) {
    eventually(
        &format!("h{host}.test responds with {status}"),
        async || {
            let request = Request::get(&format!("h{host}.test"), "/");
            let response = Connect::plain().send(at, &request).await?;
            ensure!(response.status == status, "{}", response.status);
            Ok(())
        },
    )
    .await;
}

#[tokio::test]
async fn no_request_is_lost_when_a_table_grows_and_shrinks() {
    let (_backend, service) = backend("a").await;
    let sesame = Sesame::with_gateway(&[HTTP], &service).await;
    sesame.folder().write("hosts.yaml", &hosts("http", 190));
    let at = sesame.at(8080);
    responses(at, 189, 200).await;
    let changes = async {
        // Above the sharding threshold, then far enough below it to return to a whole table.
        for number in [410, 600, 150, 420, 100, 430] {
            if number == 430 {
                // Once the previous listener has drained, the shards don't have subscribers, and are removed.
                sleep(Duration::from_secs(12)).await;
            }
            sesame
                .folder()
                .replace("hosts.yaml", &hosts("http", number));
            responses(at, number - 1, 200).await;
            responses(at, number, 404).await;
        }
        // The listener's whole table is removed too.
        sleep(Duration::from_secs(12)).await;
        responses(at, 429, 200).await;
    };
    under_requests(at, changes).await;
}

#[tokio::test]
async fn no_request_is_lost_when_a_second_table_grows() {
    let (_backend, service) = backend("a").await;
    let other = "name: other, protocol: HTTP, port: 8081";
    let sesame = Sesame::with_gateway(&[HTTP, other], &service).await;
    sesame.folder().write("hosts.yaml", &hosts("http", 410));
    sesame.folder().write("others.yaml", &hosts("other", 10));
    let at = sesame.at(8081);
    responses(sesame.at(8080), 409, 200).await;
    responses(at, 9, 200).await;
    let changes = async {
        for number in [420, 100, 430] {
            sesame
                .folder()
                .replace("others.yaml", &hosts("other", number));
            responses(at, number - 1, 200).await;
            responses(at, number, 404).await;
            responses(sesame.at(8080), 409, 200).await;
        }
    };
    under_requests(at, changes).await;
}

/// Routes for hosts of about 64 KiB each.
fn large(hosts: &[&str]) -> String {
    let value = "v".repeat(1_000);
    let matches: Vec<String> = (0..64)
        .map(|n| format!("{{path: {{value: /{n}}}, headers: [{{name: x-a, value: {value}}}]}}"))
        .collect();
    let rules = [
        format!("matches: [{}], {}", matches.join(", "), to("a")),
        to("a"),
    ];
    let route = |host: &&str| {
        let name = host.replace("*.", "any.");
        route(&name, &["web, sectionName: http"], &[host], &rules)
    };
    hosts.iter().map(route).collect()
}

#[tokio::test]
async fn no_request_is_lost_when_a_wildcard_host_changes_the_number_of_shards() {
    let (_backend, service) = backend("a").await;
    for arguments in [&[][..], &["--envoy-module=false"]] {
        let ip = new_ip();
        let objects = gateway("web", ip, &[HTTP]) + &service;
        let folder = Folder::new(&[("all.yaml", objects)]);
        let sesame = Sesame::start(ip, folder, arguments).await;
        let at = sesame.at(8080);
        let names: Vec<String> = (0..20).map(|number| format!("h{number}.test")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        sesame.folder().write("hosts.yaml", &large(&names));
        responses(at, 0, 200).await;
        let changes = async {
            for round in 0..3 {
                // 256 copies would take 16 MiB, which is more than all other hosts take.
                sesame.folder().write("wide.yaml", &large(&["*.wide.test"]));
                becomes(at, "x.wide.test", "/", "a").await;
                let number = 100 + round;
                let host = format!("h{number}.test");
                let more = route("more", &["web, sectionName: http"], &[&host], &[to("a")]);
                sesame.folder().replace("more.yaml", &more);
                for number in (0..20).chain([number]) {
                    responses(at, number, 200).await;
                }
                sesame.folder().remove("wide.yaml");
                becomes(at, "x.wide.test", "/", "404").await;
                responses(at, number, 200).await;
            }
        };
        under_requests(at, changes).await;
    }
}
