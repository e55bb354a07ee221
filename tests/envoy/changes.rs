//! Many changes of all kinds under constant load: every response matches the objects before or after the change, and no
//! connection is lost.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use sesame_testkit::backend::Backend;
use sesame_testkit::client::{Connect, Request, Response};

use crate::harness::{HTTP, Sesame, backends, eventually, listening, route, service};

/// The number of changes.
const CHANGES: usize = 200;

/// A change counts as done after this many consecutive matching responses. With two equally weighted backends, the
/// chance that one of them gets none of these requests is one in ten million.
const IN_A_ROW: usize = 24;

/// The responses currently allowed, by host.
type Allowed = RefCell<BTreeMap<String, BTreeSet<String>>>;

/// A change: a file, and its host's responses afterwards.
struct Change {
    host: String,
    text: String,
    responses: BTreeSet<String>,
}

/// Returns change number `number`: the kinds rotate, each with its own host and file.
fn change(number: usize, backends: &[Backend]) -> Change {
    let (round, kind) = (number / 8, number % 8);
    let odd = round % 2 == 1;
    let (here, there) = if odd { ("b", "a") } else { ("a", "b") };
    let kind_host = |name: &str| format!("{name}.example.com");
    let simple = |host: &str, rest: &str, responses: &[&str]| Change {
        host: kind_host(host),
        text: route(host, &["web"], &[&kind_host(host)], &[rest]),
        responses: responses
            .iter()
            .map(|&response| response.to_owned())
            .collect(),
    };
    let to = |backend: &str| format!("backendRefs: [{{name: {backend}, port: 80}}]");
    match kind {
        0 => simple(&format!("new-{round}"), &to(here), &[&format!("{here} /")]),
        1 => simple("swap", &to(there), &[&format!("{there} /")]),
        2 => {
            let weights = [(0, 1), (1, 1), (1, 0), (1, 1)][round % 4];
            let rest = format!(
                "backendRefs: [{{name: a, port: 80, weight: {}}}, {{name: b, port: 80, weight: {}}}]",
                weights.0, weights.1
            );
            let named = [(weights.0, "a /"), (weights.1, "b /")];
            let responses: Vec<_> = named
                .iter()
                .filter(|(weight, _)| *weight > 0)
                .map(|(_, name)| *name)
                .collect();
            simple("weights", &rest, &responses)
        }
        3 => {
            let mut change = simple("again", &to("a"), &["a /"]);
            if odd {
                change.text.clear();
                change.responses = BTreeSet::from(["404".to_owned()]);
            }
            change
        }
        4 => {
            // The Service's port changes and the route refers to the new one. Clients see no change.
            let port = if odd { 81 } else { 80 };
            let mut change = simple(
                "port",
                &format!("backendRefs: [{{name: port, port: {port}}}]"),
                &["a /"],
            );
            let service = service("port", &[backends[0].address()]);
            change.text += &service.replace("[{port: 80}]", &format!("[{{port: {port}}}]"));
            change
        }
        5 => {
            let path = format!("/rewritten-{round}");
            let filter = format!(
                "filters: [{{type: URLRewrite, urlRewrite: {{path: {{type: ReplaceFullPath, replaceFullPath: {path}}}}}}}]"
            );
            simple(
                "filter",
                &format!("{filter}, {}", to("a")),
                &[&format!("a {path}")],
            )
        }
        6 => {
            // One endpoint replaces another.
            let endpoint = if odd { 0 } else { 1 };
            let mut change = simple("endpoint", "backendRefs: [{name: endpoint, port: 80}]", &[]);
            change
                .responses
                .insert(format!("{} /", backends[endpoint].name()));
            change.text += &service("endpoint", &[backends[endpoint].address()]);
            change
        }
        _ => {
            // A more specific route takes requests over from a wider one, then gives them back.
            let mut change = simple("host", &to("b"), &["b /"]);
            if odd {
                change.text = route("host", &["web"], &["elsewhere.example.org"], &[&to("b")]);
                change.responses = BTreeSet::from(["404".to_owned()]);
            }
            change
        }
    }
}

/// Summarizes a response: the backend and the path it received, or the status.
fn summary(response: &Response) -> String {
    match response.status.as_u16() {
        200 => format!(
            "{} {}",
            response.backend(),
            response.json()["path"].as_str().unwrap_or_default()
        ),
        status => status.to_string(),
    }
}

/// Requests all hosts in turn until all changes are done. Returns the number of requests.
async fn load(address: SocketAddr, allowed: &Allowed, done: &Cell<bool>, keep: bool) -> usize {
    let mut connection = Connect::plain().open(address).await.expect("a connection");
    let mut asked = 0;
    while !done.get() {
        let hosts: Vec<String> = allowed.borrow().keys().cloned().collect();
        for host in hosts {
            let mut fits = allowed.borrow()[&host].clone();
            if !keep {
                connection = Connect::plain().open(address).await.expect("a connection");
            }
            let response = connection.send(&Request::get(&host, "/")).await;
            let response =
                summary(&response.unwrap_or_else(|error| panic!("{host}: no response: {error:#}")));
            fits.extend(allowed.borrow()[&host].iter().cloned());
            assert!(
                fits.contains(&response),
                "{host}: got {response:?}, expected one of {fits:?}"
            );
            asked += 1;
        }
    }
    asked
}

#[tokio::test]
async fn responses_match_either_the_old_or_the_new_objects() {
    let (backends, services) = backends(&["a", "b"]).await;
    let sesame = Sesame::with_gateway(&[HTTP], &services).await;
    let address = sesame.at(8080);
    listening(address).await;
    let silent = (
        "silent.example.com".to_owned(),
        BTreeSet::from(["404".to_owned()]),
    );
    let allowed = Allowed::new(BTreeMap::from([silent]));
    let done = Cell::new(false);
    let changes = async {
        let mut connection = Connect::plain().open(address).await.expect("a connection");
        for number in 0..CHANGES {
            let Change {
                host,
                text,
                responses,
            } = change(number, &backends);
            let mut before = allowed.borrow().get(&host).cloned();
            let both = before.get_or_insert_with(|| BTreeSet::from(["404".to_owned()]));
            both.extend(responses.iter().cloned());
            allowed.borrow_mut().insert(host.clone(), both.clone());
            sesame.folder().replace(&format!("{host}.yaml"), &text);
            eventually(
                &format!("change {number}: {host} responds with {responses:?}"),
                async || {
                    let mut seen = BTreeSet::new();
                    for _ in 0..IN_A_ROW {
                        let response = summary(&connection.send(&Request::get(&host, "/")).await?);
                        anyhow::ensure!(responses.contains(&response), "{response}");
                        seen.insert(response);
                    }
                    anyhow::ensure!(seen == responses, "only {seen:?}");
                    Ok(())
                },
            )
            .await;
            allowed.borrow_mut().insert(host, responses);
        }
        done.set(true);
    };
    let ((), kept, fresh) = tokio::join!(
        changes,
        load(address, &allowed, &done, true),
        load(address, &allowed, &done, false)
    );
    println!("{CHANGES} changes during {} requests", kept + fresh);
    assert!(
        kept > CHANGES && fresh > CHANGES,
        "too few requests: {kept} and {fresh}"
    );
}
