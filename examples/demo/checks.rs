//! Requests, and checks of their responses.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sesame_testkit::backend::{Backend, Received};
use sesame_testkit::client::{Connect, Request, Response};

use crate::gateway::Gateway;

/// Number of requests for checking weights.
const WEIGHED: usize = 400;

/// Sends all requests and prints them with their responses. Returns whether all are correct.
pub(crate) async fn run(gateway: &Gateway, backends: &[Backend]) -> bool {
    let (plain, secure) = (gateway.plain(), gateway.secure());
    let [shop, _, audit] = backends else {
        return false;
    };
    let checks = [
        report("plain", "GET http://shop.example.com/", pages(plain).await),
        report("TLS", "GET https://shop.example.com/", tls(secure).await),
        report(
            "unknown host",
            "GET http://unknown.example.org/",
            unknown(plain).await,
        ),
        report(
            "redirect",
            "GET http://shop.example.com/old/cup?size=2",
            redirect(plain).await,
        ),
        report(
            "rewrite",
            "GET http://shop.example.com/api/v1/cups",
            rewrite(plain).await,
        ),
        report(
            "weights",
            &format!("GET http://shop.example.com/canary, {WEIGHED} times"),
            weights(plain).await,
        ),
        report(
            "timeout",
            "GET http://orders.example.com/slow?delay=2s",
            slow(plain).await,
        ),
        report(
            "retry",
            "GET http://orders.example.com/flaky, which fails twice",
            retry(plain).await,
        ),
        report(
            "mirror",
            "POST http://orders.example.com/orders/7",
            mirror(plain, shop, audit).await,
        ),
        report(
            "CORS preflight",
            "OPTIONS http://api.example.com/",
            preflight(plain).await,
        ),
        report(
            "CORS, other site",
            "OPTIONS http://api.example.com/",
            foreign(plain).await,
        ),
    ];
    summarise(&checks)
}

/// Prints how many responses are correct. Returns whether all are.
pub(crate) fn summarise(checks: &[bool]) -> bool {
    let wrong = checks.iter().filter(|&&right| !right).count();
    match wrong {
        0 => println!("\nAll {} responses are correct.", checks.len()),
        wrong => println!("\n{wrong} of {} responses are wrong.", checks.len()),
    }
    wrong == 0
}

/// Prints a result.
pub(crate) fn report(name: &str, asked: &str, outcome: Result<String>) -> bool {
    let (mark, result) = match &outcome {
        Ok(result) => ("ok   ", result.clone()),
        Err(error) => ("WRONG", format!("{error:#}")),
    };
    println!("{mark} {name:17} {asked}\n{:24}→ {result}", "");
    outcome.is_ok()
}

/// Fails unless the status is as expected.
pub(crate) fn expect(response: &Response, status: u16) -> Result<()> {
    ensure!(
        response.status.as_u16() == status,
        "expected {status}, got {}",
        response.status
    );
    Ok(())
}

async fn pages(address: SocketAddr) -> Result<String> {
    let response = Connect::plain()
        .send(address, &Request::get("shop.example.com", "/"))
        .await?;
    expect(&response, 200)?;
    ensure!(
        response.backend() == "shop",
        "answered by {:?}",
        response.backend()
    );
    Ok("200 from shop".into())
}

async fn tls(address: SocketAddr) -> Result<String> {
    let mut connection = Connect::tls("shop.example.com").h2().open(address).await?;
    let response = connection
        .send(&Request::get("shop.example.com", "/"))
        .await?;
    expect(&response, 200)?;
    ensure!(
        response.backend() == "shop",
        "answered by {:?}",
        response.backend()
    );
    let bytes = connection
        .certificate()
        .map(<[u8]>::len)
        .unwrap_or_default();
    Ok(format!(
        "200 from shop, over HTTP/2 and TLS with a {bytes}-byte certificate"
    ))
}

async fn unknown(address: SocketAddr) -> Result<String> {
    expect(
        &Connect::plain()
            .send(address, &Request::get("unknown.example.org", "/"))
            .await?,
        404,
    )?;
    Ok("404".into())
}

async fn redirect(address: SocketAddr) -> Result<String> {
    let response = Connect::plain()
        .send(
            address,
            &Request::get("shop.example.com", "/old/cup?size=2"),
        )
        .await?;
    expect(&response, 301)?;
    let location = response.header("location");
    ensure!(
        location == "http://shop.example.com:8080/new/cup?size=2",
        "sent to {location:?}"
    );
    Ok(format!("301 to {location}"))
}

async fn rewrite(address: SocketAddr) -> Result<String> {
    let response = Connect::plain()
        .send(address, &Request::get("shop.example.com", "/api/v1/cups"))
        .await?;
    expect(&response, 200)?;
    let seen = response.json();
    ensure!(
        seen["path"] == "/cups" && seen["host"] == "api.internal",
        "the backend saw {seen}"
    );
    ensure!(
        seen["headers"]["x-api-version"][0] == "1",
        "the backend saw no x-api-version: {seen}"
    );
    Ok("200; the backend saw http://api.internal/cups with x-api-version: 1".into())
}

async fn weights(address: SocketAddr) -> Result<String> {
    let mut connection = Connect::plain().open(address).await?;
    let mut next = 0;
    for _ in 0..WEIGHED {
        let response = connection
            .send(&Request::get("shop.example.com", "/canary"))
            .await?;
        expect(&response, 200)?;
        next += usize::from(response.backend() == "shop-next");
    }
    // A quarter, within five standard deviations.
    ensure!(
        (60..=140).contains(&next),
        "{next} went to shop-next, expected about {}",
        WEIGHED / 4
    );
    Ok(format!(
        "{} from shop, {next} from shop-next (75 to 25)",
        WEIGHED - next
    ))
}

async fn slow(address: SocketAddr) -> Result<String> {
    let since = Instant::now();
    let response = Connect::plain()
        .send(
            address,
            &Request::get("orders.example.com", "/slow?delay=2s"),
        )
        .await?;
    let took = since.elapsed();
    expect(&response, 504)?;
    ensure!(
        took < Duration::from_secs(2),
        "it took {} ms",
        took.as_millis()
    );
    Ok(format!("504 after {} ms", took.as_millis()))
}

async fn retry(address: SocketAddr) -> Result<String> {
    let key = std::process::id();
    let path = format!("/flaky?key={key}&failures=2&code=503");
    let response = Connect::plain()
        .send(address, &Request::get("orders.example.com", &path))
        .await?;
    expect(&response, 200)?;
    Ok("200, on the third try".into())
}

async fn mirror(address: SocketAddr, shop: &Backend, audit: &Backend) -> Result<String> {
    let path = "/orders/7";
    let request = Request::get("orders.example.com", path)
        .method("POST")
        .body("one cup");
    let response = Connect::plain().send(address, &request).await?;
    expect(&response, 200)?;
    ensure!(
        response.backend() == "shop",
        "answered by {:?}",
        response.backend()
    );
    let timeout = Duration::from_secs(5);
    let arrived = |requests: &[Received]| requests.iter().any(|request| request.path == path);
    ensure!(
        audit.wait_for(timeout, arrived).await.is_ok(),
        "audit got no copy"
    );
    ensure!(arrived(&shop.requests()), "shop did not get the request");
    Ok("200 from shop; audit got a copy".into())
}

fn preflight_from(origin: &str) -> Request {
    Request::get("api.example.com", "/")
        .method("OPTIONS")
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type")
}

async fn preflight(address: SocketAddr) -> Result<String> {
    let response = Connect::plain()
        .send(address, &preflight_from("https://shop.example.com"))
        .await?;
    expect(&response, 200)?;
    let allowed = response.header("access-control-allow-origin");
    ensure!(
        allowed == "https://shop.example.com",
        "allow-origin is {allowed:?}"
    );
    ensure!(
        response.header("access-control-max-age") == "3600",
        "max-age is missing"
    );
    Ok(format!(
        "200, allow-origin: {allowed}, answered by the gateway"
    ))
}

async fn foreign(address: SocketAddr) -> Result<String> {
    let response = Connect::plain()
        .send(address, &preflight_from("https://elsewhere.example.net"))
        .await?;
    let allowed = response.header("access-control-allow-origin");
    ensure!(allowed.is_empty(), "allow-origin is {allowed:?}");
    Ok(format!(
        "{} without allow-origin: the browser blocks the script",
        response.status.as_u16()
    ))
}
