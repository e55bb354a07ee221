//! The command line.
//!
//! In: arguments. Out: typed values. Doesn't read files.

mod cluster;
#[cfg(test)]
mod pods;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgAction, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use sesame_api::{ContourCompatMode, NamespacedName};
use sesame_control::serve::ContourCompat;
use sesame_control::{IngressSettings, Mode, RateLimitSettings, Settings, Sharding};

pub(crate) use self::cluster::{
    EnvoyNamespace, OperatorArgs, ReplicaArgs, ServeArgs, StatusArgs, StatusOutput, UninstallArgs,
};
use crate::output::Format;
use crate::sidecar::SidecarArgs;

/// Sesame: an ingress controller and Gateway API implementation with Envoy as its data plane.
#[derive(Debug, Parser)]
#[command(
    name = "sesame",
    version,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  sesame local examples/quickstart         serve the objects in a folder and watch it for changes
  sesame translate gateway.yaml routes/    print the Envoy resources and statuses
  sesame status -A                         show the Gateways, routes and Ingresses of a cluster
  sesame local --help                      show a command's options"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the Gateways, Ingresses and HTTPProxies in local files with Envoys on this machine
    Local(LocalArgs),
    /// Run as a controller in a cluster: watch objects, configure Envoys, write statuses
    Serve(Box<ServeArgs>),
    /// Run the operator in a cluster: an instance of `sesame serve` for each SesameConfiguration
    Operator(OperatorArgs),
    /// Remove the Envoys and finalizers of an installation whose Sesame and operator no longer run
    Uninstall(UninstallArgs),
    /// Show the Gateways, routes, Ingresses and HTTPProxies of a cluster, problems first
    Status(StatusArgs),
    /// Print the Envoy resources and statuses generated from objects
    Translate(TranslateArgs),
    /// Print the bootstrap configuration of an Envoy that Sesame doesn't manage
    Bootstrap(BootstrapArgs),
    /// Run as the sidecar of a managed Envoy, in the Envoy's pod
    #[command(hide = true)]
    EnvoySidecar(SidecarArgs),
    /// Print versions
    Version(VersionArgs),
    /// Print a shell completion script
    Completion(CompletionArgs),
}

/// `sesame local`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each Gateway gets its own Envoy, on its own loopback address (127.0.0.1, 127.0.0.2 ...) or on the addresses in \
spec.addresses. All Ingresses and HTTPProxies share another Envoy, the default fleet, on ports 80 and 443 of its \
own address. The GatewayClass and the ingress class `sesame` exist by default. Errors in objects appear in their statuses, errors in \
files as file:line:column; all other objects are served. Ctrl-C drains and stops the Envoys; a second Ctrl-C kills \
them.

Examples:
  sesame local examples/quickstart
  sesame local gateway.yaml routes/ --port-offset 8000    listen on 8080 instead of 80
  sesame local examples/ingress --port-offset 10000       serve Ingresses and HTTPProxies
  sesame local routes/ -o json                            print each event as a line of JSON
  kubectl get gateways,httproutes,services,endpointslices -A -o yaml | sesame local -

Environment:
  SESAME_ENVOY    path to Envoy; --envoy takes precedence
  RUST_LOG        log filter; --log-level takes precedence
  NO_COLOR        disables colours")]
pub(crate) struct LocalArgs {
    /// Files and folders with YAML or JSON objects; - reads standard input
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// Envoy executable [default: SESAME_ENVOY, then the Envoy downloaded by `cargo xtask envoy`, then PATH]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath)]
    pub(crate) envoy: Option<PathBuf>,
    /// Add this number to each port to get the port that Envoy listens on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) port_offset: u16,
    /// File with a SesameConfiguration, instead of the flags for Ingresses and HTTPProxies
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) ingress: IngressArgs,
    /// Split route tables into shards, so that Envoy's cost per change doesn't grow with the number of hosts
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) route_shards: RouteShards,
    /// Load Sesame's module into Envoys; the module selects a request's route shard faster than regular expressions do
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub(crate) envoy_module: bool,
    /// Watch the files for changes; if false, read them once
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub(crate) watch: bool,
    /// Loopback address on which to serve the admin pages (/status, /fleets, /config, /metrics and more)
    #[arg(long, value_name = "IP:PORT", value_parser = loopback_address)]
    pub(crate) admin: Option<SocketAddr>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: LocalOutput,
    /// Number of worker threads per Envoy
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) concurrency: u32,
    /// Log level for Sesame and Envoy; logs go to standard error
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,
    /// Log format
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// Output formats of `sesame local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LocalOutput {
    /// A live table and a line per event; only the lines if standard output is not a terminal
    Table,
    /// Each event as a line of JSON, with a `type` field
    Json,
}

/// Log levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(
    missing_docs,
    reason = "clap shows a variant's comment as help, and these need none"
)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Log formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text
    Text,
    /// A JSON object per line
    Json,
}

/// `sesame translate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Errors in files are printed to standard error as file:line:column: message. All other objects are translated, and the \
exit status is 1. Problems with Ingresses are also printed there, since an Ingress's status has no field for them.

Examples:
  sesame translate examples/quickstart
      all resources and statuses, as YAML
  sesame translate examples/quickstart --gateway default/web --only routes -o json
      the route tables of one Gateway
  kubectl get gateways,httproutes,services -A -o yaml | sesame translate - --only status
      the statuses of a cluster's objects, as a List")]
pub(crate) struct TranslateArgs {
    /// Files and folders with YAML or JSON objects; - reads standard input
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub(crate) output: Format,
    /// Print only this Gateway's resources, its status and the statuses of its routes, but not the default fleet
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name)]
    pub(crate) gateway: Option<NamespacedName>,
    /// Print only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    pub(crate) only: Vec<OutputPart>,
    /// Add this number to each port to get the port that Envoy listens on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) port_offset: u16,
    /// File with a SesameConfiguration, instead of the flags for Ingresses and HTTPProxies
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) ingress: IngressArgs,
    /// Split route tables into shards, so that Envoy's cost per change doesn't grow with the number of hosts
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) route_shards: RouteShards,
}

/// Settings for Ingresses and HTTPProxies, the same for all commands that translate them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IngressArgs {
    /// Name of the ingress class that Sesame implements; IngressClasses with Sesame's controller name also count
    #[arg(long, value_name = "NAME", default_value = sesame_control::INGRESS_CLASS, conflicts_with = "config")]
    ingress_class: String,
    /// Namespaces whose HTTPProxies may have a virtualhost, comma-separated [default: all]
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        conflicts_with = "config"
    )]
    root_namespaces: Vec<String>,
    /// Secret with the certificate for TLS connections with no SNI or an unknown server name. These connections reach
    /// only the hosts of HTTPProxies that enable this certificate
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = secret_name, conflicts_with = "config")]
    fallback_certificate: Option<NamespacedName>,
    /// ExtensionService that enforces the global rate limits of HTTPProxies [default: none; global rate limits are errors]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name, conflicts_with = "config")]
    rate_limit_service: Option<NamespacedName>,
    /// Domain of the descriptors sent to the rate limit service
    #[arg(long, value_name = "DOMAIN", default_value = sesame_control::RATE_LIMIT_DOMAIN,
          value_parser = NonEmptyStringValueParser::new(), requires = "rate_limit_service")]
    rate_limit_domain: String,
    /// Let requests pass if the rate limit service fails or can't be used; by default, they get 503
    #[arg(long, requires = "rate_limit_service")]
    rate_limit_fail_open: bool,
    /// Add X-RateLimit headers to responses if a global rate limit applies to the request
    #[arg(long, requires = "rate_limit_service")]
    rate_limit_headers: bool,
    /// Respond to rejected gRPC calls with RESOURCE_EXHAUSTED instead of UNAVAILABLE
    #[arg(long, requires = "rate_limit_service")]
    rate_limit_resource_exhausted: bool,
    /// Read Contour's objects (API group projectcontour.io) and annotations as Sesame's own
    #[arg(long, value_name = "MODE", value_enum, default_value = "off", num_args = 0..=1, require_equals = true,
          default_missing_value = "read")]
    contour_compat: ContourMode,
}

/// Whether Contour's objects are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContourMode {
    /// Ignore them
    Off,
    /// Serve them; leave their statuses, and those of Ingresses, to Contour
    Read,
    /// Serve them, and write their statuses
    Write,
}

impl IngressArgs {
    /// Whether Contour's objects are read, from the configuration or else the flag.
    pub(crate) fn contour(&self, settings: &Settings) -> ContourCompat {
        match (&settings.start.contour, self.contour_compat) {
            (Some(ContourCompatMode::Write), _) | (None, ContourMode::Write) => {
                ContourCompat::Write
            }
            (Some(ContourCompatMode::Read), _) | (None, ContourMode::Read) => ContourCompat::Read,
            _ => ContourCompat::Off,
        }
    }

    /// Converts these flags to settings.
    pub(crate) fn settings(&self, mode: Mode) -> Settings {
        Settings {
            ingress: self.ingress_settings(),
            ..Settings::new(mode)
        }
    }

    fn ingress_settings(&self) -> IngressSettings {
        IngressSettings {
            classes: BTreeSet::from([self.ingress_class.as_str().into()]),
            root_namespaces: (!self.root_namespaces.is_empty()).then(|| {
                let namespaces = self.root_namespaces.iter();
                namespaces.map(|name| name.as_str().into()).collect()
            }),
            fallback_certificate: self.fallback_certificate.clone(),
            rate_limits: self
                .rate_limit_service
                .clone()
                .map(|service| RateLimitSettings {
                    service,
                    domain: self.rate_limit_domain.as_str().into(),
                    fail_open: self.rate_limit_fail_open,
                    headers: self.rate_limit_headers,
                    resource_exhausted: self.rate_limit_resource_exhausted,
                    default: None,
                }),
            ..IngressSettings::default()
        }
    }
}

/// When to split route tables into shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RouteShards {
    /// If a table has hundreds of hosts, or large ones
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl From<RouteShards> for Sharding {
    fn from(when: RouteShards) -> Self {
        match when {
            RouteShards::Auto => Self::Auto,
            RouteShards::Always => Self::Always,
            RouteShards::Never => Self::Never,
        }
    }
}

/// A part of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputPart {
    /// Listeners (LDS)
    Listeners,
    /// Route tables (RDS)
    Routes,
    /// Clusters, usually one for each Service port (CDS)
    Clusters,
    /// Cluster endpoints (EDS)
    Endpoints,
    /// Certificates, without private keys (SDS)
    Secrets,
    /// Statuses of objects
    Status,
}

/// `sesame bootstrap`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sesame bootstrap --xds-address sesame-xds.sesame-system.svc:18000 \\
      --tls-certificate tls.crt --tls-key tls.key --tls-authority ca.crt > envoy.yaml
  envoy -c envoy.yaml
  sesame bootstrap --fleet default/web --xds-address unix:/run/sesame/xds.sock --admin none")]
pub(crate) struct BootstrapArgs {
    /// The Envoy's fleet: the namespace and name of its Gateway [default: the fleet of `sesame serve --unmanaged`]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name)]
    pub(crate) fleet: Option<NamespacedName>,
    /// Node ID, unique in its fleet [default: the fleet's name]
    #[arg(long, value_name = "ID")]
    pub(crate) node_id: Option<String>,
    /// Address of Sesame's xDS server
    #[arg(long, value_name = "HOST:PORT|unix:PATH")]
    pub(crate) xds_address: String,
    /// Address of Envoy's admin interface, which grants full control of the Envoy: keep it private
    #[arg(
        long,
        value_name = "IP:PORT|unix:PATH|none",
        default_value = "127.0.0.1:9901"
    )]
    pub(crate) admin: String,
    /// Unix socket on which Envoy reports readiness [default: none]. `sesame envoy-sidecar` expects
    /// /run/sesame/readiness.sock
    #[arg(long, value_name = "PATH")]
    pub(crate) readiness_socket: Option<PathBuf>,
    /// The Envoy's certificate: a PEM file on the Envoy's machine
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_authority"])]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Private key of the Envoy's certificate: a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// CA bundle that verifies Sesame's certificate: a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_authority: Option<PathBuf>,
    /// DNS name in Sesame's certificate [default: the host of --xds-address]
    #[arg(long, value_name = "NAME", requires = "tls_certificate")]
    pub(crate) tls_server_name: Option<String>,
    /// Maximum number of concurrent client connections; further connections are rejected
    #[arg(long, value_name = "N", default_value_t = sesame_control::MAX_CONNECTIONS)]
    pub(crate) max_connections: u64,
    /// Memory limit in bytes. Envoy sheds load as it approaches the limit, instead of being OOM-killed
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_limit: Option<u64>,
    /// Load Sesame's module, which reduces the cost of a request if there are many hosts. Install it with
    /// `sesame envoy-sidecar module --folder DIR` and start Envoy with ENVOY_DYNAMIC_MODULES_SEARCH_PATH=DIR
    #[arg(long)]
    pub(crate) module: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub(crate) output: Format,
}

/// `sesame version`.
#[derive(Debug, clap::Args)]
pub(crate) struct VersionArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: VersionFormat,
}

/// Output formats of `sesame version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VersionFormat {
    /// Lines of text
    Text,
    /// JSON
    Json,
}

/// `sesame completion`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(sesame completion bash)
  sesame completion zsh > \"${fpath[1]}/_sesame\"
  sesame completion fish > ~/.config/fish/completions/sesame.fish")]
pub(crate) struct CompletionArgs {
    /// Shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Parses `NAMESPACE/NAME`; the namespace defaults to `default`.
fn namespaced_name(text: &str) -> Result<NamespacedName, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err("expected NAMESPACE/NAME, for example default/web".to_owned());
    }
    Ok(NamespacedName::new(namespace, name))
}

fn secret_name(text: &str) -> Result<NamespacedName, String> {
    // Without a slash, the namespace is empty, which is invalid.
    let name = sesame_api::secret_name(&"".into(), text);
    name.ok_or_else(|| {
        "expected NAMESPACE/NAME of a Secret, for example sesame-system/fallback".to_owned()
    })
}

/// Parses the address of the admin pages.
fn loopback_address(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "expected IP:PORT, for example 127.0.0.1:8081".to_owned())?;
    if !address.ip().is_loopback() {
        let message = "the admin pages show all configuration without authentication, so they need a loopback address, \
                       for example 127.0.0.1:8081; to reach them from elsewhere, use `kubectl port-forward` or `ssh -L`";
        return Err(message.to_owned());
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_secret_needs_a_namespace() {
        assert_eq!(secret_name("a/b"), Ok(NamespacedName::new("a", "b")));
        for invalid in ["b", "/b", "a/", "a/b/c", "a/B"] {
            assert!(secret_name(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn admin_pages_need_a_loopback_address() {
        for good in ["127.0.0.1:0", "127.7.0.1:80", "[::1]:80"] {
            assert_eq!(loopback_address(good), Ok(good.parse().unwrap()));
        }
        for command in [&["local", "."][..], &["serve"]] {
            let line = [&["sesame"], command, &["--admin", "0.0.0.0:8081"]].concat();
            let error = Args::try_parse_from(line).unwrap_err().to_string();
            assert!(error.contains("kubectl port-forward"), "{error}");
        }
        for bad in ["", "127.0.0.1", "localhost:80", "10.0.0.1:80", "[::]:80"] {
            assert!(loopback_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_parse_with_and_without_a_namespace() {
        assert_eq!(namespaced_name("a/b"), Ok(NamespacedName::new("a", "b")));
        assert_eq!(
            namespaced_name("b"),
            Ok(NamespacedName::new("default", "b"))
        );
        for bad in ["", "/", "a/", "/b", "a/b/c"] {
            assert!(namespaced_name(bad).is_err(), "{bad:?}");
        }
    }
}
