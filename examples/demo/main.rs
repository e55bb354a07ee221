//! Runs an example: backends, Sesame on the files in its folder, and requests through a real Envoy.
//!
//! In: a `sesame` binary next to this program. Out: a result for each request; with `--once` an exit status, otherwise
//! a running gateway to try out.

// Command-line tools print.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod checks;
mod gateway;
mod ingress;

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use sesame_testkit::backend::Backend;

use crate::gateway::{Gateway, INGRESS, QUICKSTART};

/// Run an example and check some responses.
#[derive(Parser)]
#[command(name = "demo")]
struct Args {
    /// Exit after checking the responses
    #[arg(long)]
    once: bool,
    /// Run examples/ingress instead of examples/quickstart
    #[arg(long)]
    ingress: bool,
}

/// The backends in each example's `backends.yaml`.
const BACKENDS: [(&str, &str); 3] = [
    ("shop", "127.0.0.1:18081"),
    ("shop-next", "127.0.0.1:18082"),
    ("audit", "127.0.0.1:18083"),
];

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all responses are correct.
async fn run(args: &Args) -> Result<bool> {
    let mut backends = Vec::new();
    for (name, address) in BACKENDS {
        let address: SocketAddr = address.parse()?;
        let backend = Backend::start(name, address).await.with_context(|| {
            format!(
                "the demo's backend {name} cannot listen on {address}; is another demo running?"
            )
        })?;
        backends.push(backend);
    }
    println!(
        "Backends listen on {}.",
        BACKENDS
            .map(|(name, address)| format!("{address} ({name})"))
            .join(", ")
    );

    let example = if args.ingress { INGRESS } else { QUICKSTART };
    let folder = example.folder;
    let mut gateway = Gateway::start(example).await?;
    println!(
        "Sesame serves {folder} on {}. Checking responses:\n",
        gateway.address()
    );
    let right = match args.ingress {
        true => ingress::run(&gateway).await,
        false => checks::run(&gateway, &backends).await,
    };
    if !args.once {
        match args.ingress {
            true => ingress::what_next(&gateway),
            false => what_next(&gateway),
        }
        gateway.stay().await?;
    }
    gateway.stop().await?;
    for backend in backends {
        backend.stop().await;
    }
    Ok(right)
}

/// Prints what to try next.
fn what_next(gateway: &Gateway) {
    let address = gateway.address();
    println!(
        "
It keeps running. In another terminal, try:
  curl -i -H 'Host: shop.example.com' http://{address}:8080/canary
  curl -ik --resolve shop.example.com:8443:{address} https://shop.example.com:8443/
and edit examples/quickstart; this terminal shows each change and when Envoy has applied it:
  routes/shop.yaml     change the weights 75 and 25, or a path
  routes/orders.yaml   break it (delete a colon): the last good version stays, and the error has the location; then fix it
  routes/mine.yaml     add a route
Ctrl-C stops everything.
"
    );
}
