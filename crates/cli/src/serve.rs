//! `sesame serve`.
//!
//! In: flags, signals. Out: logs.

use std::env;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, bail};
use sesame_api::{NamespacedName, SesameConfiguration};
use sesame_control::serve::{Envoys, Serve, ServeConfig, await_configuration};
use sesame_control::{Mode, Settings};
use tokio::runtime::Runtime;

use crate::args::{EnvoyNamespace, LogFormat, LogLevel, ServeArgs};
use crate::settings::log_filter;
use crate::signals::Signals;
use crate::{config as file_config, logging, output};

/// Turns off the client library's logs: it logs failed requests without context, and callers log them with context.
const NO_CLIENT_LOGS: &str = "kube_client::client=off";

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    runtime(args.replica.log_level, args.replica.log_format)?.block_on(serve(args))
}

/// Starts the logs of a program that runs in a cluster, and the runtime.
pub(crate) fn runtime(log_level: Option<LogLevel>, log_format: LogFormat) -> Result<Runtime> {
    let rust_log = env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = match (log_level, rust_log) {
        // In a cluster, logs are read after the fact, so the default is more verbose than for `sesame local`.
        (None, None) => format!("info,{NO_CLIENT_LOGS}"),
        (Some(LogLevel::Error | LogLevel::Warn | LogLevel::Info), rust_log) => {
            format!("{},{NO_CLIENT_LOGS}", log_filter(log_level, rust_log))
        }
        (level, rust_log) => log_filter(level, rust_log),
    };
    let colour = io::stderr().is_terminal();
    logging::start(&filter, log_format, colour, logging::Stderr)?;
    tokio::runtime::Builder::new_multi_thread()
        // The engine has its own thread. More worker threads would cost more in context switches than they gain.
        .worker_threads(thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)))
        .enable_all()
        .build()
        .context("cannot start the async runtime")
}

/// The name of this replica.
pub(crate) fn replica(name: Option<&str>) -> Result<String> {
    match name {
        Some(name) => Ok(name.to_owned()),
        None => Ok(fs::read_to_string("/proc/sys/kernel/hostname")
            .context("cannot read the hostname; set --name")?
            .trim()
            .to_owned()),
    }
}

async fn serve(args: &ServeArgs) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let configuration = tokio::select! {
        () = signals.next() => return Ok(ExitCode::SUCCESS),
        configuration = configuration(args) => configuration?,
    };
    let mut serve = Serve::start(config(args, configuration.as_ref())?).await?;
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

/// The instance's SesameConfiguration, if it has one. Waits for it if it is an object.
async fn configuration(args: &ServeArgs) -> Result<Option<SesameConfiguration>> {
    if let Some(file) = &args.config {
        return file_config::read(file).map(Some);
    }
    let Some(name) = &args.configuration else {
        return Ok(None);
    };
    let name = NamespacedName::new(args.replica.namespace.as_str(), name.as_str());
    let kubeconfig = args.replica.kubeconfig.as_deref();
    let settings = Settings::new(Mode::Managed);
    let found = await_configuration(kubeconfig, &name, &settings, Some(args.probes)).await?;
    Ok(Some(found))
}

fn config(args: &ServeArgs, configuration: Option<&SesameConfiguration>) -> Result<ServeConfig> {
    let replica = replica(args.replica.name.as_deref())?;
    let watched = &args.watch_namespaces;
    if args.configuration.is_some()
        && !watched.is_empty()
        && !watched.contains(&args.replica.namespace)
    {
        bail!(
            "--configuration: the namespace {0} isn't watched, so changes would be missed; add {0} to --watch-namespaces",
            args.replica.namespace
        );
    }
    let spec = configuration.map(|configuration| &configuration.spec);
    let managed = spec.map_or(!args.unmanaged, |spec| spec.envoy.is_some());
    let mode = match managed {
        true => Mode::Managed,
        false => Mode::Unmanaged {
            gateway: args.gateway.clone(),
        },
    };
    let mut settings = args.ingress.settings(mode);
    if let Some(configuration) = configuration {
        let file = args
            .config
            .as_deref()
            .unwrap_or(Path::new("SesameConfiguration"));
        settings = file_config::settings(file, &settings, configuration)?;
    }
    let envoys = match managed {
        true => Envoys::Managed {
            envoy_image: args.envoy_image.clone(),
            sidecar_image: args.sidecar_image.clone(),
            own_namespace: args.envoy_namespace == EnvoyNamespace::Sesame,
            xds_host: args.xds_host.clone(),
            xds_port: args.xds_port,
        },
        false => match spec.and_then(|spec| spec.unmanaged_envoy.as_ref()) {
            Some(envoy) => Envoys::Unmanaged {
                addresses: envoy
                    .addresses
                    .iter()
                    .flatten()
                    .map(ToString::to_string)
                    .collect(),
                service: envoy.service.as_ref().map(|service| service.key()),
            },
            None => Envoys::Unmanaged {
                addresses: args.addresses.clone(),
                service: args.envoy_service.clone(),
            },
        },
    };
    Ok(ServeConfig {
        kubeconfig: args.replica.kubeconfig.clone(),
        namespace: args.replica.namespace.clone(),
        replica,
        watch_namespaces: Some(args.watch_namespaces.clone()).filter(|list| !list.is_empty()),
        settings,
        configuration_file: args.config.clone(),
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
