//! A host whose many paths form a tree responds like one whose routes are a list.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use sesame_testkit::client::{Connect, Request};

use crate::harness::{Dice, Folder, HTTP, Sesame, gateway, listening, new_ip, route};

/// Number of routes on the host, each with one or two matches.
const ROUTES: usize = 90;
/// Number of route sets.
const ROUNDS: usize = 3;
/// Number of requests per set.
const REQUESTS: usize = 1_000;

/// A path made of few letters, so that many paths are nested.
fn path(dice: &mut Dice) -> String {
    let segments = 1 + dice.roll(4);
    let segment =
        |dice: &mut Dice| format!("/{}", dice.one_of(&["a", "b", "ab", "a-b", "%41", "c.d"]));
    (0..segments).map(|_| segment(dice)).collect()
}

fn some_match(dice: &mut Dice) -> String {
    let path = path(dice);
    // Matches for every path are rare, since each key of a tree contains all of them.
    let path = match dice.roll(120) {
        0 => "{value: /}".to_owned(),
        1 => format!("{{type: RegularExpression, value: \"{path}[ab]?\"}}"),
        2..20 => format!("{{type: Exact, value: {path}/}}"),
        20..50 => format!("{{type: Exact, value: {path}}}"),
        _ => format!("{{value: {path}}}"),
    };
    let more = dice.one_of(&[
        "",
        "",
        "",
        ", method: POST",
        ", headers: [{name: x-a, value: b}]",
        ", queryParams: [{name: q, value: \"1\"}]",
    ]);
    format!("{{path: {path}{more}}}")
}

/// Routes whose responses identify them.
fn routes(dice: &mut Dice) -> String {
    let mut text = String::new();
    for number in 0..ROUTES {
        let matches: BTreeSet<String> = (0..=dice.roll(2)).map(|_| some_match(dice)).collect();
        // Only prefix matches can be replaced.
        let replaced = matches.len() == 1 && !matches.iter().any(|one| one.contains("type: "));
        let new = match replaced {
            true => ", path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}",
            false => "",
        };
        let matches = Vec::from_iter(matches).join(", ");
        let rule = format!(
            "matches: [{matches}], filters: [{{type: RequestRedirect, requestRedirect: {{hostname: r{number}.test{new}}}}}]"
        );
        text += &route(&format!("r{number}"), &["web"], &["many.test"], &[rule]);
    }
    text
}

/// Routes that don't match any request. They keep the host's routes from forming a tree: there are many keys, and each
/// would contain all of the many regular expressions.
fn never() -> String {
    let rule = |number: usize| {
        let regex = format!("{{type: RegularExpression, value: \"/never-{number}[0-9]\"}}");
        format!("matches: [{{path: {regex}}}, {{path: {{value: /never/{number}}}}}]")
    };
    let mut text = String::new();
    for number in 0..40 {
        let rules: Vec<String> = (0..8)
            .map(|rule_number| rule(number * 8 + rule_number))
            .collect();
        text += &route(&format!("never-{number}"), &["web"], &["many.test"], &rules);
    }
    text
}

fn request(dice: &mut Dice) -> Request {
    let mut path = path(dice);
    path += dice.one_of(&["", "", "", "/", "x", "?q=1", "/?q=1", "?q=2&r=/a/b"]);
    let mut request = Request::get("many.test", &path);
    if dice.roll(5) == 0 {
        request = request.method("POST");
    }
    if dice.roll(5) == 0 {
        request = request.header("x-a", "b");
    }
    request
}

async fn responses(at: SocketAddr, requests: &[Request]) -> Vec<String> {
    listening(at).await;
    let mut connection = Connect::plain()
        .open(at)
        .await
        .expect("the gateway listens");
    let mut out = Vec::new();
    for request in requests {
        let response = connection.send(request).await.expect("a response");
        let (status, location) = (response.status.as_u16(), response.header("location"));
        out.push(format!("{status} {location}"));
    }
    out
}

#[tokio::test]
async fn a_tree_responds_like_a_list() {
    let mut dice = Dice::new(11);
    let mut found = BTreeSet::new();
    for _ in 0..ROUNDS {
        let routes = routes(&mut dice);
        let serving = async |more: &str| {
            let ip = new_ip();
            let text = gateway("web", ip, &[HTTP]) + &routes + more;
            let folder = Folder::new(&[("all.yaml", text)]);
            let sesame = Sesame::start(ip, folder, &[]).await;
            sesame.programmed().await;
            sesame
        };
        let (tree, list) = (serving("").await, serving(&never()).await);
        for (sesame, has) in [(&tree, true), (&list, false)] {
            let config = sesame
                .page("/config?fleet=default/web")
                .await
                .expect("the host's resources");
            assert_eq!(
                config["routes"].to_string().contains("prefix_match_map"),
                has
            );
        }
        let requests: Vec<Request> = (0..REQUESTS).map(|_| request(&mut dice)).collect();
        let by_tree = responses(tree.at(8080), &requests).await;
        let by_list = responses(list.at(8080), &requests).await;
        for ((request, one), other) in requests.iter().zip(&by_tree).zip(&by_list) {
            assert_eq!(one, other, "{request:?}");
        }
        found.extend(by_tree);
    }
    // The requests were varied enough.
    assert!(found.len() > 100, "{found:?}");
}
