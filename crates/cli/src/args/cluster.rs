//! What was typed of the commands for clusters.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, ValueHint};
use sesame_api::NamespacedName;

use super::{LogFormat, LogLevel, RouteShards, namespaced_name};

/// `sesame serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Runs as a Deployment of any number of replicas (see deploy/). Every replica watches the API server and serves Envoys;
the one that holds the Lease `sesame-leader` writes statuses and keeps a Deployment of Envoys for every Gateway. With
--unmanaged somebody else runs the Envoys, from `sesame bootstrap`, and they serve one Gateway.

SIGTERM hands the lead to another replica and sends Envoys there; they go on with what they have.

Environment:
  POD_NAME, POD_NAMESPACE    --name and --namespace, if those don't say
  KUBECONFIG                 where the API server is, outside a pod
  RUST_LOG                   what is logged, if --log-level doesn't say")]
pub(crate) struct ServeArgs {
    /// Sesame's own namespace: for the Lease, and for the Secrets with its certificates
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "sesame-system",
        hide_env = true
    )]
    pub(crate) namespace: String,
    /// What tells this replica from others; the host's name unless given
    #[arg(long, env = "POD_NAME", hide_env = true)]
    pub(crate) name: Option<String>,
    /// How to reach the API server; a pod's service account needs none
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Only look into these namespaces; all unless given
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    pub(crate) watch_namespaces: Vec<String>,
    /// Serve Envoys here, over mutual TLS
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:18000")]
    pub(crate) xds: SocketAddr,
    /// The name by which Envoys reach --xds; that of the Service `sesame-xds` unless given
    #[arg(long, value_name = "NAME", conflicts_with = "unmanaged")]
    pub(crate) xds_host: Option<String>,
    /// The port there; the one of --xds unless given
    #[arg(long, value_name = "PORT", conflicts_with = "unmanaged")]
    pub(crate) xds_port: Option<u16>,
    /// A folder with tls.crt, tls.key and ca.crt for --xds, read again when they change; else Sesame makes certificates for
    /// itself and for Envoys, and keeps them in Secrets
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) xds_certificates: Option<PathBuf>,
    /// Put route tables in shards, so that a change costs Envoy the same whatever the number of hosts
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) route_shards: RouteShards,
    /// Let Envoys load a module of Sesame's, without which a request to a table in shards costs them more
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub(crate) envoy_module: bool,
    /// Serve /healthz, /readyz and /metrics here
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8080")]
    pub(crate) probes: SocketAddr,
    /// Serve all of Sesame's own pages here: /status, /fleets, /config and more. They ask for no password
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8081")]
    pub(crate) admin: SocketAddr,
    /// Agree with other replicas on who leads; false: this one always does
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub(crate) leader_election: bool,
    /// The image of the Envoys
    #[arg(long, value_name = "IMAGE", default_value_t = default_envoy_image(), conflicts_with = "unmanaged")]
    pub(crate) envoy_image: String,
    /// Sesame's own image, for the process beside each Envoy
    #[arg(long, value_name = "IMAGE", default_value_t = default_sidecar_image(), conflicts_with = "unmanaged")]
    pub(crate) sidecar_image: String,
    /// Somebody else runs the Envoys
    #[arg(long)]
    pub(crate) unmanaged: bool,
    /// The Gateway that unmanaged Envoys serve; the oldest one of the oldest GatewayClass unless given
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name, requires = "unmanaged")]
    pub(crate) gateway: Option<NamespacedName>,
    /// Where clients reach unmanaged Envoys: an IP address or a name
    #[arg(
        long = "address",
        value_name = "ADDRESS",
        requires = "unmanaged",
        conflicts_with = "envoy_service"
    )]
    pub(crate) addresses: Vec<String>,
    /// A Service whose status says where clients reach unmanaged Envoys
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name, requires = "unmanaged")]
    pub(crate) envoy_service: Option<NamespacedName>,
    /// What is logged to standard error
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,
    /// How it is logged
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

fn default_envoy_image() -> String {
    format!(
        "ghcr.io/projectsesame/envoy:{}",
        sesame_control::ENVOY_VERSION
    )
}

fn default_sidecar_image() -> String {
    format!("ghcr.io/projectsesame/sesame:{}", env!("CARGO_PKG_VERSION"))
}

/// `sesame status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Problems come first. What is shown is what stands in the objects' statuses: it needs the right to list Gateways and
HTTPRoutes, and no Sesame at hand.

Examples:
  sesame status              the namespace of the current context
  sesame status -A           all namespaces
  sesame status -n shop")]
pub(crate) struct StatusArgs {
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// This namespace; that of the current context unless given
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// How to reach the API server; else KUBECONFIG or ~/.kube/config says
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: StatusOutput,
}

/// How statuses are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatusOutput {
    /// A table for people
    Table,
    /// YAML
    Yaml,
    /// JSON
    Json,
}
