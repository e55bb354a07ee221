//! A route whose parts multiply to more than the limit is refused; routes beside it are served.

use sesame_testkit::client::Request;

use crate::harness::{HTTP, Sesame, eventually, route};

fn oversized(hostnames: &[&str]) -> String {
    let matches: Vec<String> = (0..64)
        .map(|number| format!("{{path: {{value: /p{number}}}}}"))
        .collect();
    let value = "v".repeat(200);
    let set: Vec<String> = (0..16)
        .map(|number| format!("{{name: x-{number}, value: {value}}}"))
        .collect();
    let rule = format!(
        "matches: [{}], filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{}]}}}}, \
         {{type: RequestRedirect, requestRedirect: {{hostname: large.test}}}}]",
        matches.join(", "),
        set.join(", ")
    );
    route("large", &["web"], hostnames, &[rule])
}

/// Waits until the route's condition Accepted has this status and reason.
async fn becomes_accepted(sesame: &Sesame, status: &str, reason: &str) {
    eventually("the route's status changes", async || {
        let found = sesame.of_route("large", "Accepted").await?;
        anyhow::ensure!(
            (&*found.status, &*found.reason) == (status, reason),
            "{found:?}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn an_oversized_route_is_refused_and_its_neighbours_are_served() {
    let rule = "matches: [{path: {value: /n}}], filters: [{type: RequestRedirect, requestRedirect: {hostname: n.test}}]";
    let neighbour = route("neighbour", &["web"], &["a.test"], &[rule]);
    let hosts = ["a.test", "b.test", "c.test", "d.test"];
    let sesame = Sesame::with_gateway(&[HTTP], &neighbour).await;
    sesame.folder().write("large.yaml", &oversized(&hosts));
    becomes_accepted(&sesame, "False", "UnsupportedValue").await;
    let message = sesame
        .of_route("large", "Accepted")
        .await
        .expect("a condition")
        .message;
    assert!(
        message.contains("4 hosts") && message.contains("the limit is 512 KiB"),
        "{message}"
    );
    let location = async |host: &str, path: &str| {
        let response = sesame.send(&Request::get(host, path)).await;
        format!(
            "{} {}",
            response.status.as_u16(),
            response.header("location")
        )
    };
    assert_eq!(location("a.test", "/n").await, "302 http://n.test:8080/n");
    eventually("the refused route responds with errors", async || {
        let found = location("b.test", "/p1").await;
        anyhow::ensure!(found == "500 ", "{found}");
        Ok(())
    })
    .await;
    assert_eq!(location("a.test", "/p1").await, "500 ");

    // It is served with fewer hostnames.
    sesame.folder().write("large.yaml", &oversized(&hosts[..1]));
    becomes_accepted(&sesame, "True", "Accepted").await;
    eventually("the route is served", async || {
        let found = location("a.test", "/p1").await;
        anyhow::ensure!(found == "302 http://large.test:8080/p1", "{found}");
        Ok(())
    })
    .await;
    assert_eq!(location("a.test", "/n").await, "302 http://n.test:8080/n");
}
