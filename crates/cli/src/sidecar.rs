//! `sesame envoy-sidecar`: what runs beside each Envoy of a managed fleet. People have no use for it.
//!
//! In: flags that the pod's template gives. Out: answers to the kubelet. What is done is `sesame-fleet`'s business.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use sesame_control::module;
use sesame_control::sidecar::{self, Settings};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::LogFormat;
use crate::logging;

/// `sesame envoy-sidecar`.
#[derive(Debug, clap::Args)]
pub(crate) struct SidecarArgs {
    /// What to do
    #[command(subcommand)]
    command: SidecarCommand,
}

#[derive(Debug, Subcommand)]
enum SidecarCommand {
    /// Say when Envoy is ready (/ready) and when it is drained (/drained), until told to end
    Serve(ServeArgs),
    /// Have the running sidecar begin to drain Envoy
    Drain,
    /// Put Sesame's module where Envoy looks for it
    Module(ModuleArgs),
}

#[derive(Debug, clap::Args)]
struct ModuleArgs {
    /// The folder that ENVOY_DYNAMIC_MODULES_SEARCH_PATH names to Envoy
    #[arg(long, value_name = "DIR", default_value = sidecar::FOLDER)]
    folder: PathBuf,
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    /// The port for the kubelet
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// Milliseconds for which a drain goes on as if nothing were
    #[arg(long, value_name = "N")]
    delay_ms: u64,
    /// Milliseconds for which clients are waited for after that
    #[arg(long, value_name = "N")]
    timeout_ms: u64,
}

pub(crate) fn run(args: &SidecarArgs) -> Result<ExitCode> {
    // It does next to nothing, next to an Envoy that needs the memory.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime can't be started")?;
    runtime.block_on(async {
        match &args.command {
            SidecarCommand::Serve(args) => serve(args).await,
            SidecarCommand::Drain => sidecar::begin(&Settings::default().control_socket)
                .await
                .context("the sidecar can't be told to drain"),
            SidecarCommand::Module(args) => put_module(&args.folder),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn put_module(folder: &Path) -> Result<()> {
    let folder_name = folder.display();
    let there = module::install(folder)
        .with_context(|| format!("the module can't be written to {folder_name}"))?;
    ensure!(
        there,
        "{folder_name}: no Envoy can load a module from there (not Linux, or the folder is mounted `noexec`)"
    );
    Ok(())
}

async fn serve(args: &ServeArgs) -> Result<()> {
    logging::start("info", LogFormat::Text, false, logging::Stderr)?;
    // As the first process of a container it would otherwise be deaf to it.
    let mut end = signal(SignalKind::terminate()).context("signals can't be listened to")?;
    let listener = sidecar::listen(args.port)
        .await
        .with_context(|| format!("port {} can't be listened on", args.port))?;
    let settings = Settings {
        delay: Duration::from_millis(args.delay_ms),
        timeout: Duration::from_millis(args.timeout_ms),
        ..Settings::default()
    };
    tokio::select! {
        // The kubelet tells us only when Envoy has ended.
        _ = end.recv() => Ok(()),
        served = sidecar::serve(listener, settings) => served.context("the control socket can't be made"),
    }
}
