//! `cargo xtask bench`: measures Sesame and prints each figure beside what it should be.
//!
//! In: which figures. Out: a table, or JSON. Nothing fails because of a number: numbers are read by people.
//!
//! Each figure's file says how it is measured.

// A command-line tool talks to its user by printing.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod api_server;
mod floor;
mod machine;
mod objects;
mod probe;
mod propagate;
mod report;
mod rig;
mod rss;
mod sesame;
mod steady;
mod throughput;
mod translate;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use crate::report::Figure;

/// As in the binary `sesame`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measure Sesame.
#[derive(Parser)]
#[command(name = "cargo xtask bench --", bin_name = "cargo xtask bench --")]
struct Settings {
    /// What to measure; everything if nothing is named
    #[arg(value_enum)]
    figures: Vec<Group>,
    /// How to print it
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Measure `sesame serve` with a real API server, instead of figures
    #[arg(long, conflicts_with = "figures")]
    api_server: bool,
    /// HTTPRoutes of `--api-server`
    #[arg(long, value_name = "NUMBERS", default_value = "10,1000,5000,10000")]
    api_server_routes: api_server::Sizes,
    /// HTTPRoutes of `translate` and `rss`
    #[arg(long, default_value_t = 10_000)]
    routes: usize,
    /// HTTPRoutes of `propagate` and `steady`
    #[arg(long, default_value_t = 1_000)]
    hosts: usize,
    /// Rounds of `propagate` and `--api-server`
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// Changes of `steady`
    #[arg(long, default_value_t = 1_000)]
    changes: usize,
    /// Use this `sesame` for `rss` and `--api-server` instead of the one beside this program
    #[arg(long, value_name = "PATH")]
    sesame: Option<PathBuf>,
    /// Use this Envoy
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
}

/// Figures that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Translation by itself
    Translate,
    /// Memory of `sesame local`
    Rss,
    /// From a changed object to the answer of an Envoy
    Propagate,
    /// Changes under requests, and every answer judged
    Steady,
    /// What a request costs an Envoy
    Throughput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// For machines
    Json,
}

fn main() -> Result<()> {
    let settings = Settings::parse();
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: numbers mean nothing");
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
                Group::Propagate => propagate::run(settings)?,
                Group::Steady => steady::run(settings)?,
                Group::Throughput => throughput::run(settings)?,
            });
        }
    }
    Ok(figures)
}
