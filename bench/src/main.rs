//! `cargo xtask bench`: measures Sesame and compares each figure with its target.
//!
//! In: the groups to measure. Out: a table or JSON. A missed target is not an error.
//!
//! Each group's file describes the measurement.

// Command-line tools print.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod api_server;
mod echo;
mod fleets;
mod floor;
mod kinds;
mod listeners;
mod local;
mod machine;
mod objects;
mod policies;
mod probe;
mod report;
mod rig;
mod rss;
mod sessions;
mod throughput;
mod translate;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use crate::report::Figure;

/// The allocator of the `sesame` binary.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measure Sesame
#[derive(Parser)]
#[command(name = "cargo xtask bench --", bin_name = "cargo xtask bench --")]
struct Settings {
    /// Groups to measure [default: all]
    #[arg(value_enum)]
    figures: Vec<Group>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Measure `sesame serve` with a real API server, instead of the groups
    #[arg(long, conflicts_with = "figures")]
    api_server: bool,
    /// Numbers of HTTPRoutes for `--api-server`, in increasing order
    #[arg(long, value_name = "NUMBERS", default_value = "10,1000,5000,10000")]
    api_server_routes: api_server::Sizes,
    /// Use HTTPProxies instead of HTTPRoutes for `--api-server`
    #[arg(long, requires = "api_server")]
    proxies: bool,
    /// Number of HTTPRoutes for `translate` and `rss`
    #[arg(long, default_value_t = 10_000)]
    routes: usize,
    /// Number of routes for `kinds`, of children for `translate`, and of BackendTLSPolicies for `policies`
    #[arg(long, default_value_t = 1_000)]
    objects: usize,
    /// Kinds of routes for `kinds`, after HTTPRoutes [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    kinds: Vec<kinds::Kind>,
    /// Number of ListenerSets for `listeners`
    #[arg(long, default_value_t = 500)]
    sets: usize,
    /// Number of TCP connections and of UDP sessions for `sessions`
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// Number of rounds for `--api-server`, of pairs of changes for `kinds` and `sessions`, and of updates for `fleets`
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// Use this `sesame` binary for `rss` and `--api-server` instead of the one next to this program
    #[arg(long, value_name = "PATH")]
    sesame: Option<PathBuf>,
    /// Only run clients that flood the xDS server at this socket, for `fleets`
    #[arg(long, value_name = "PATH", hide = true)]
    flood: Option<PathBuf>,
    /// Use this Envoy instead of the downloaded one
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
}

/// Groups of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Translation alone, without Envoy or a network
    Translate,
    /// Memory of `sesame local`
    Rss,
    /// Envoy's CPU time per request
    Throughput,
    /// Changes to each kind of route, compared with HTTPRoutes
    Kinds,
    /// TCP connections and UDP sessions that stay open during changes
    Sessions,
    /// Rotation of the CA that BackendTLSPolicies share
    Policies,
    /// HTTPS listeners of many ListenerSets
    Listeners,
    /// Updates of a fleet while another one floods the xDS server
    Fleets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table
    Table,
    /// JSON
    Json,
}

fn main() -> Result<()> {
    let settings = Settings::parse();
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build; its figures are meaningless");
    }
    if let Some(socket) = &settings.flood {
        return fleets::flood(socket);
    }
    let figures = match settings.api_server {
        true => api_server::run(&settings)?,
        false => groups(&settings)?,
    };
    match settings.output {
        Output::Table => println!("{}", report::table(&figures)),
        Output::Json => println!("{}", report::json(&figures)?),
    }
    Ok(())
}

fn groups(settings: &Settings) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for &group in Group::value_variants() {
        if settings.figures.is_empty() || settings.figures.contains(&group) {
            figures.extend(match group {
                Group::Translate => translate::run(settings)?,
                Group::Rss => rss::run(settings)?,
                Group::Throughput => throughput::run(settings)?,
                Group::Kinds => kinds::run(settings)?,
                Group::Sessions => sessions::run(settings)?,
                Group::Policies => policies::run(settings)?,
                Group::Listeners => listeners::run(settings)?,
                Group::Fleets => fleets::run(settings)?,
            });
        }
    }
    Ok(figures)
}
