//! `sesame serve`.
//!
//! In: flags, signals. Out: logs.

use std::fs;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, bail};
use sesame_api::{NamespacedName, SesameConfiguration};
use sesame_control::serve::{Envoys, Serve, ServeConfig, await_configuration};
use sesame_control::{ElectionSettings, Mode, Settings, StartSettings};
use tokio::runtime::Runtime;

use crate::args::{EnvoyNamespace, ReplicaArgs, ServeArgs};
use crate::logging::{LogSettings, Logs};
use crate::signals::Signals;
use crate::{config as file_config, logging, output};

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    let logs = start_logs(&args.replica)?;
    runtime()?.block_on(serve(args, &logs))
}

/// Starts the logs of a program that runs in a cluster.
pub(crate) fn start_logs(args: &ReplicaArgs) -> Result<Logs> {
    let settings = LogSettings {
        level: args.log_level,
        format: args.log_format,
        colour: io::stderr().is_terminal(),
        in_cluster: true,
    };
    logging::start(settings, logging::Stderr)
}

pub(crate) fn runtime() -> Result<Runtime> {
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

async fn serve(args: &ServeArgs, logs: &Logs) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let configuration = tokio::select! {
        () = signals.next() => return Ok(ExitCode::SUCCESS),
        configuration = configuration(args) => configuration?,
    };
    let mut serve = Serve::start(config(args, configuration.as_ref())?).await?;
    tracing::info!(xds = %serve.xds(), "serving");
    let logging = serve.logging();
    tokio::select! {
        () = signals.next() => {}
        error = serve.failed() => return Err(error.into()),
        () = logs.follow(logging) => {}
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
    let advertised_host = settings
        .start
        .xds
        .advertised_host
        .as_deref()
        .map(str::to_owned);
    let envoys = match managed {
        true => Envoys::Managed {
            envoy_image: args.envoy_image.clone(),
            sidecar_image: args.sidecar_image.clone(),
            xds_host: advertised_host.or_else(|| args.xds_host.clone()),
            xds_port: settings.start.xds.advertised_port.or(args.xds_port),
            own_namespace: args.envoy_namespace == EnvoyNamespace::Sesame,
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
    let contour = args.ingress.contour(&settings);
    let start = &settings.start;
    let listen = |default: SocketAddr, address: Option<IpAddr>, port: Option<u16>| {
        SocketAddr::new(
            address.unwrap_or(default.ip()),
            port.unwrap_or(default.port()),
        )
    };
    let metrics = start
        .metrics
        .map(|(address, port)| listen(args.probes, address, Some(port)));
    Ok(ServeConfig {
        kubeconfig: args.replica.kubeconfig.clone(),
        namespace: args.replica.namespace.clone(),
        replica,
        watch_namespaces: watched_namespaces(args, start)?,
        configuration_file: args.config.clone(),
        contour,
        envoys,
        xds: listen(args.xds, start.xds.address, start.xds.port),
        certificates: args.xds_certificates.clone(),
        sharding: args.route_shards.into(),
        module: args.envoy_module,
        election: start.election.unwrap_or(ElectionSettings {
            enabled: args.leader_election,
            ..ElectionSettings::default()
        }),
        probes: Some(args.probes),
        metrics: metrics.or(args.metrics),
        admin: Some(args.admin),
        settings,
    })
}

/// The namespaces to watch; `None` means all.
fn watched_namespaces(args: &ServeArgs, start: &StartSettings) -> Result<Option<Vec<String>>> {
    let own = &args.replica.namespace;
    if let Some(listed) = &start.watch_namespaces {
        let own = (!listed.iter().any(|name| **name == **own)).then(|| own.clone());
        let listed = listed.iter().map(ToString::to_string);
        return Ok(Some(listed.chain(own).collect()));
    }
    let listed = &args.watch_namespaces;
    if args.configuration.is_some() && !listed.is_empty() && !listed.contains(own) {
        bail!(
            "--configuration: the namespace {own} isn't watched, so changes would be missed; add {own} to --watch-namespaces"
        );
    }
    Ok(Some(listed.clone()).filter(|list| !list.is_empty()))
}
