//! `sesame serve`.
//!
//! In: flags, signals. Out: logs.

use std::env;
use std::fs;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use sesame_control::serve::{Envoys, Serve, ServeConfig};

use crate::args::{LogLevel, ServeArgs};
use crate::settings::log_filter;
use crate::signals::Signals;
use crate::{logging, output};

/// Turns off the client library's logs: it logs failed requests without context, and callers log them with context.
const NO_CLIENT_LOGS: &str = "kube_client::client=off";

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    let rust_log = env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = match (args.log_level, rust_log) {
        // In a cluster, logs are read after the fact, so the default is more verbose than for `sesame local`.
        (None, None) => format!("info,{NO_CLIENT_LOGS}"),
        (Some(LogLevel::Error | LogLevel::Warn | LogLevel::Info), rust_log) => {
            format!("{},{NO_CLIENT_LOGS}", log_filter(args.log_level, rust_log))
        }
        (level, rust_log) => log_filter(level, rust_log),
    };
    let colour = io::stderr().is_terminal();
    logging::start(&filter, args.log_format, colour, logging::Stderr)?;
    let config = config(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // The engine has its own thread. More worker threads would cost more in context switches than they gain.
        .worker_threads(thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)))
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(serve(config))
}

async fn serve(config: ServeConfig) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let mut serve = Serve::start(config).await?;
    tracing::info!(xds = %serve.xds(), "serving");
    tokio::select! {
        () = signals.next() => {}
        error = serve.failed() => return Err(error.into()),
    }
    tracing::info!("shutting down; Envoys keep their configuration");
    tokio::select! {
        () = serve.shutdown() => {}
        () = signals.next() => output::warn(format_args!("second signal received: exiting immediately")),
    }
    Ok(ExitCode::SUCCESS)
}

fn config(args: &ServeArgs) -> Result<ServeConfig> {
    let replica = match &args.name {
        Some(name) => name.clone(),
        None => fs::read_to_string("/proc/sys/kernel/hostname")
            .context("cannot read the hostname; set --name")?
            .trim()
            .to_owned(),
    };
    let envoys = match args.unmanaged {
        true => Envoys::Unmanaged {
            gateway: args.gateway.clone(),
            addresses: args.addresses.clone(),
            service: args.envoy_service.clone(),
        },
        false => Envoys::Managed {
            envoy_image: args.envoy_image.clone(),
            sidecar_image: args.sidecar_image.clone(),
            xds_host: args.xds_host.clone(),
            xds_port: args.xds_port,
        },
    };
    Ok(ServeConfig {
        kubeconfig: args.kubeconfig.clone(),
        namespace: args.namespace.clone(),
        replica,
        watch_namespaces: Some(args.watch_namespaces.clone()).filter(|list| !list.is_empty()),
        ingress: args.ingress.settings(),
        contour: args.ingress.contour(),
        envoys,
        xds: args.xds,
        certificates: args.xds_certificates.clone(),
        sharding: args.route_shards.into(),
        module: args.envoy_module,
        leader_election: args.leader_election,
        probes: Some(args.probes),
        admin: Some(args.admin),
    })
}
