//! `cargo xtask cluster`: a Kubernetes cluster of one node, in namespaces of its own, which needs no container engine, no
//! registry and no network but that of Go's modules.
//!
//! In: a command line, or calls of other subcommands. Out: a cluster that runs, is asked, or is gone.

mod build;
pub(crate) mod go;
mod packages;
mod programs;

use anyhow::Result;

/// Options of `cargo xtask cluster`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Build all that a cluster is made of, and print the folder (up does it, too, when needed)
    Build {
        /// Only what tests need that talk to an API server without a cluster behind it
        #[arg(long)]
        api_server: bool,
    },
}

/// Runs a command line.
pub(crate) fn run(args: &Args) -> Result<()> {
    match args.command {
        Command::Build { api_server } => {
            let built = if api_server {
                build::api_server()?
            } else {
                build::everything()?
            };
            println!("{}", built.programs().display());
            Ok(())
        }
    }
}
