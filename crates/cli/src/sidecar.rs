//! `sesame envoy-sidecar`: runs beside each Envoy of a managed fleet.
//!
//! In: flags from the pod template. Out: responses to the kubelet's probes and hooks.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use sesame_control::module;
use sesame_control::sidecar::{self, SidecarConfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{LogFormat, LogLevel};
use crate::logging::{self, LogSettings};

/// `sesame envoy-sidecar`.
#[derive(Debug, clap::Args)]
pub(crate) struct SidecarArgs {
    #[command(subcommand)]
    command: SidecarCommand,
}

#[derive(Debug, Subcommand)]
enum SidecarCommand {
    /// Report Envoy's readiness (/ready) and drain state (/drained) until SIGTERM
    Serve(ServeArgs),
    /// Make the running sidecar drain Envoy
    Drain,
    /// Install Sesame's module for Envoy
    Module(ModuleArgs),
}

#[derive(Debug, clap::Args)]
struct ModuleArgs {
    /// The folder in Envoy's ENVOY_DYNAMIC_MODULES_SEARCH_PATH
    #[arg(long, value_name = "DIR", default_value = sidecar::FOLDER)]
    folder: PathBuf,
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    /// Port for the kubelet's probes and hooks
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// Delay before Envoy starts to drain, in milliseconds
    #[arg(long, value_name = "N")]
    delay_ms: u64,
    /// Time limit for clients to disconnect after the delay, in milliseconds
    #[arg(long, value_name = "N")]
    timeout_ms: u64,
}

pub(crate) fn run(args: &SidecarArgs) -> Result<ExitCode> {
    // One thread, to leave memory for Envoy.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(async {
        match &args.command {
            SidecarCommand::Serve(args) => serve(args).await,
            SidecarCommand::Drain => sidecar::start_drain(&SidecarConfig::default().control_socket)
                .await
                .context("cannot reach the sidecar's control socket"),
            SidecarCommand::Module(args) => install_module(&args.folder),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn install_module(folder: &Path) -> Result<()> {
    let path = folder.display();
    let loadable =
        module::install(folder).with_context(|| format!("cannot write the module to {path}"))?;
    ensure!(
        loadable,
        "Envoy cannot load a module from {path}: the system is not Linux, or the folder is mounted with `noexec`"
    );
    Ok(())
}

async fn serve(args: &ServeArgs) -> Result<()> {
    let settings = LogSettings {
        level: Some(LogLevel::Info),
        format: LogFormat::Text,
        colour: false,
        in_cluster: true,
    };
    logging::start(settings, logging::Stderr)?;
    // PID 1 ignores signals without a handler.
    let mut terminate =
        signal(SignalKind::terminate()).context("cannot register a signal handler")?;
    let listener = sidecar::listen(args.port)
        .with_context(|| format!("cannot listen on port {}", args.port))?;
    let config = SidecarConfig {
        delay: Duration::from_millis(args.delay_ms),
        timeout: Duration::from_millis(args.timeout_ms),
        ..SidecarConfig::default()
    };
    tokio::select! {
        // The kubelet sends SIGTERM only after Envoy has exited.
        _ = terminate.recv() => Ok(()),
        served = sidecar::serve(listener, config) => served.context("cannot create the control socket"),
    }
}
