//! Arguments of the cluster commands.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, ValueEnum, ValueHint};
use sesame_api::NamespacedName;

use super::{IngressArgs, LogFormat, LogLevel, RouteShards, loopback_address, namespaced_name};

/// Settings of a replica in a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplicaArgs {
    /// Namespace of the replicas, and of the objects that they share, such as the Lease
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "sesame-system",
        hide_env = true
    )]
    pub(crate) namespace: String,
    /// Unique name of this replica [default: the hostname]
    #[arg(long, env = "POD_NAME", hide_env = true)]
    pub(crate) name: Option<String>,
    /// Kubeconfig; not needed in a pod
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Log level; logs go to standard error
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,
    /// Log format
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// `sesame serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Runs as a Deployment with any number of replicas (see deploy/). Every replica watches the API server and serves \
Envoys. The leader, which holds the Lease `sesame-leader`, writes statuses and manages a Deployment of Envoys for each \
Gateway and, in Sesame's namespace, one for all Ingresses and HTTPProxies. With --unmanaged, you run the Envoys, using \
the output of `sesame bootstrap`; they serve one Gateway, and all Ingresses and HTTPProxies.

On SIGTERM the replica releases the Lease and closes its Envoys' streams; the Envoys keep their configuration and connect \
to another replica.

Environment:
  POD_NAME, POD_NAMESPACE    defaults for --name and --namespace
  KUBECONFIG                 path to the kubeconfig; --kubeconfig takes precedence
  RUST_LOG                   log filter; --log-level takes precedence")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) replica: ReplicaArgs,
    /// Namespaces to watch [default: all]
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    pub(crate) watch_namespaces: Vec<String>,
    /// File with a SesameConfiguration, instead of the flags for Ingresses, HTTPProxies and unmanaged Envoys; reloaded
    /// when it changes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Name of a SesameConfiguration in Sesame's namespace, instead of a file. Sesame waits until it exists
    #[arg(long, value_name = "NAME", conflicts_with_all = ["config", "ingress_class", "root_namespaces",
          "fallback_certificate", "rate_limit_service", "unmanaged"])]
    pub(crate) configuration: Option<String>,
    #[command(flatten)]
    pub(crate) ingress: IngressArgs,
    /// Listen address of the xDS server (mutual TLS)
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:18000")]
    pub(crate) xds: SocketAddr,
    /// Host at which Envoys reach the xDS server [default: the Service `sesame-xds`]
    #[arg(long, value_name = "NAME", conflicts_with = "unmanaged")]
    pub(crate) xds_host: Option<String>,
    /// Port on which Envoys reach the xDS server [default: the port of --xds]
    #[arg(long, value_name = "PORT", conflicts_with = "unmanaged")]
    pub(crate) xds_port: Option<u16>,
    /// Folder with tls.crt, tls.key and ca.crt for the xDS server, reloaded when they change [default: Sesame issues
    /// certificates for itself and for Envoys, and stores them in Secrets]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) xds_certificates: Option<PathBuf>,
    /// Split route tables into shards, so that Envoy's cost per change doesn't grow with the number of hosts
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) route_shards: RouteShards,
    /// Load Sesame's module into Envoys; the module selects a request's route shard faster than regular expressions do
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub(crate) envoy_module: bool,
    /// Listen address of /healthz, /readyz and, without --metrics, /metrics
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8080")]
    pub(crate) probes: SocketAddr,
    /// Listen address of /metrics, to serve it separately from the probes
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Loopback address on which to serve the admin pages (/status, /fleets, /config and more)
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8081", value_parser = loopback_address)]
    pub(crate) admin: SocketAddr,
    /// Elect a leader among the replicas; if false, this replica always leads
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub(crate) leader_election: bool,
    /// Image for managed Envoys
    #[arg(long, value_name = "IMAGE", default_value_t = default_envoy_image(), conflicts_with = "unmanaged")]
    pub(crate) envoy_image: String,
    /// Image for the sidecar in each Envoy's pod (Sesame's own image)
    #[arg(long, value_name = "IMAGE", default_value_t = default_sidecar_image(), conflicts_with = "unmanaged")]
    pub(crate) sidecar_image: String,
    /// Namespace of managed Envoys: that of their Gateway, or Sesame's own
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_enum,
        default_value_t,
        conflicts_with = "unmanaged"
    )]
    pub(crate) envoy_namespace: EnvoyNamespace,
    /// Don't manage Envoys; run them yourself
    #[arg(long, conflicts_with = "config")]
    pub(crate) unmanaged: bool,
    /// Gateway that unmanaged Envoys serve [default: the oldest Gateway of the oldest GatewayClass]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name, requires = "unmanaged")]
    pub(crate) gateway: Option<NamespacedName>,
    /// Address at which clients reach the unmanaged Envoys: an IP address or a hostname
    #[arg(
        long = "address",
        value_name = "ADDRESS",
        requires = "unmanaged",
        conflicts_with = "envoy_service"
    )]
    pub(crate) addresses: Vec<String>,
    /// Service whose status lists the addresses of the unmanaged Envoys
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name, requires = "unmanaged")]
    pub(crate) envoy_service: Option<NamespacedName>,
}

/// Where managed Envoys run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvoyNamespace {
    /// In the Gateway's namespace
    #[default]
    Gateway,
    /// In Sesame's own namespace
    Sesame,
}

/// `sesame operator`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Runs as a Deployment (see docs/operator.md). For each SesameConfiguration with a gateway, ingress, httpProxy or instance \
section, the leader creates an instance of Sesame in the object's namespace, updates it, and removes it with the object. \
The condition Available of the SesameConfiguration shows whether the instance runs, and why not.

Environment:
  POD_NAME, POD_NAMESPACE    defaults for --name and --namespace
  KUBECONFIG                 path to the kubeconfig; --kubeconfig takes precedence
  RUST_LOG                   log filter; --log-level takes precedence")]
pub(crate) struct OperatorArgs {
    #[command(flatten)]
    pub(crate) replica: ReplicaArgs,
    /// Image of the instances, and of the sidecar in each Envoy's pod
    #[arg(long, value_name = "IMAGE", default_value_t = default_sidecar_image())]
    pub(crate) image: String,
    /// Image for managed Envoys
    #[arg(long, value_name = "IMAGE", default_value_t = default_envoy_image())]
    pub(crate) envoy_image: String,
    /// Listen address of /healthz and /readyz
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8080")]
    pub(crate) probes: SocketAddr,
}

/// `sesame uninstall`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
While Sesame or the operator runs, they remove these objects themselves: Sesame when Gateways, Ingresses and HTTPProxies are deleted, the \
operator when a SesameConfiguration is deleted. This command is for the objects that remain if Sesame or the operator was \
deleted first. It keeps Gateways, routes, SesameConfigurations and CRDs.

Examples:
  kubectl --namespace sesame-system delete deployment sesame
  sesame uninstall --namespace sesame-system")]
pub(crate) struct UninstallArgs {
    /// Namespace in which Sesame ran
    #[arg(short, long)]
    pub(crate) namespace: String,
    /// Kubeconfig [default: KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
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
Problems come first. The command reads the objects' statuses, so it needs permission to list Gateways, \
ListenerSets, all kinds of routes, Ingresses, HTTPProxies and ExtensionServices, but no connection to Sesame. Problems \
with Ingresses are reported as Events, not in their statuses: see `kubectl describe ingress`.

Examples:
  sesame status              the namespace of the current context
  sesame status -A           all namespaces
  sesame status -n shop")]
pub(crate) struct StatusArgs {
    /// Show all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Show this namespace [default: the current context's namespace]
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// Name of the ingress class that Sesame implements; Ingresses and HTTPProxies of other controllers are not shown
    #[arg(long, value_name = "NAME", default_value = sesame_control::INGRESS_CLASS)]
    pub(crate) ingress_class: String,
    /// Also show Contour's HTTPProxies and ExtensionServices
    #[arg(long)]
    pub(crate) contour_compat: bool,
    /// Kubeconfig [default: KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: StatusOutput,
}

/// Output formats of `sesame status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatusOutput {
    /// A table
    Table,
    /// YAML
    Yaml,
    /// JSON
    Json,
}
