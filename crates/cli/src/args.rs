//! What was typed.
//!
//! In: the command line. Out: its parts, with the right types. Nothing is looked up here: no file, no environment.

mod cluster;
#[cfg(test)]
mod pods;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use sesame_api::NamespacedName;
use sesame_control::Sharding;

pub(crate) use self::cluster::{ServeArgs, StatusArgs, StatusOutput};
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
  sesame local examples/quickstart         run what a folder says, and follow its changes
  sesame translate gateway.yaml routes/    show what Envoy would get
  sesame status -A                         how a cluster's Gateways and routes are
  sesame local --help                      more about a command"
)]
pub(crate) struct Args {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the Gateways that files describe, each with an Envoy on this machine
    Local(LocalArgs),
    /// Run in a cluster: watch its objects, serve its Envoys, write its statuses
    Serve(Box<ServeArgs>),
    /// Show the Gateways and routes of a cluster, problems first
    Status(StatusArgs),
    /// Show what Envoys would get and what owners of objects would be told
    Translate(TranslateArgs),
    /// Print a bootstrap for an Envoy that you run yourself
    Bootstrap(BootstrapArgs),
    /// Run beside an Envoy of a managed fleet: pods are made so
    #[command(hide = true)]
    EnvoySidecar(SidecarArgs),
    /// Print versions
    Version(VersionArgs),
    /// Print a completion script for a shell
    Completion(CompletionArgs),
}

/// `sesame local`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each Gateway gets an Envoy of its own on a loopback address of its own (127.0.0.1, 127.0.0.2 ...), or on the addresses
in its spec.addresses. The GatewayClass `sesame` is there without being written. What is wrong with an object is told in
its status, what is wrong with a file as file:line:column; everything else is served on. Ctrl-C lets Envoys finish their
requests and ends them; a second one ends them at once.

Examples:
  sesame local examples/quickstart
  sesame local gateway.yaml routes/ --port-offset 8000    without the right to listen below port 1024: 80 becomes 8080
  sesame local routes/ -o json                            one JSON object a line for each event, for programs
  kubectl get gateways,httproutes,services,endpointslices -A -o yaml | sesame local -

Environment:
  SESAME_ENVOY    the Envoy to run, if --envoy doesn't say
  RUST_LOG        what is logged, if --log-level doesn't say
  NO_COLOR        no colours")]
pub(crate) struct LocalArgs {
    /// Folders and files with objects, as YAML or JSON; - is standard input
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// The Envoy to run; else SESAME_ENVOY, the one that `cargo xtask envoy` has fetched, or the one on PATH
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath)]
    pub(crate) envoy: Option<PathBuf>,
    /// Added to each port of a Gateway to get the one that Envoy listens on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) port_offset: u16,
    /// Put route tables in shards, so that a change costs Envoy the same whatever the number of hosts
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) route_shards: RouteShards,
    /// Let Envoys load a module of Sesame's, without which a request to a table in shards costs them more
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub(crate) envoy_module: bool,
    /// Follow changes of the files; false: read them once and go on serving
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub(crate) watch: bool,
    /// Serve Sesame's own pages here: /status, /fleets, /config, /metrics and more. They ask for no password
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) admin: Option<SocketAddr>,
    /// How to tell what happens
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: LocalOutput,
    /// Worker threads of each Envoy
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) concurrency: u32,
    /// What is logged to standard error, by Sesame and by Envoys
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,
    /// How it is logged
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// How `sesame local` tells what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LocalOutput {
    /// A table that follows the state, and a line for each change; lines alone where there is no terminal
    Table,
    /// One JSON object a line for each event, told apart by `type`
    Json,
}

/// What is logged.
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

/// How it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

/// `sesame translate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Files that can't be read or understood are told on standard error, as file:line:column: what is wrong. The rest is
translated all the same, and the exit status is 1.

Examples:
  sesame translate examples/quickstart
      everything, as YAML
  sesame translate examples/quickstart --gateway default/web --only routes -o json
      the route tables of one Gateway
  kubectl get gateways,httproutes,services,endpointslices -A -o yaml | sesame translate - --only status
      what a cluster's objects would be told")]
pub(crate) struct TranslateArgs {
    /// Folders and files with objects, as YAML or JSON; - is standard input
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub(crate) output: Format,
    /// Only what belongs to this Gateway: its Envoy, its status and that of its routes
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name)]
    pub(crate) gateway: Option<NamespacedName>,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    pub(crate) only: Vec<Part>,
    /// Added to each port of a Gateway to get the one that Envoy listens on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) port_offset: u16,
    /// Put route tables in shards, so that a change costs Envoy the same whatever the number of hosts
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) route_shards: RouteShards,
}

/// When route tables are in shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RouteShards {
    /// Where a table has some hundreds of hosts
    #[default]
    Auto,
    /// From the first host on
    Always,
    /// Nowhere
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
pub(crate) enum Part {
    /// What listens (LDS)
    Listeners,
    /// Route tables (RDS)
    Routes,
    /// Service ports (CDS)
    Clusters,
    /// Who answers there (EDS)
    Endpoints,
    /// Certificates, without their private keys (SDS)
    Secrets,
    /// What owners of objects are told
    Status,
}

/// `sesame bootstrap`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sesame bootstrap --xds-address sesame-xds.sesame-system.svc:18000 \\
      --tls-certificate tls.crt --tls-key tls.key --tls-authority ca.crt > envoy.yaml && envoy -c envoy.yaml
  sesame bootstrap --fleet default/web --xds-address unix:/run/sesame/xds.sock --admin none")]
pub(crate) struct BootstrapArgs {
    /// The fleet that the Envoy belongs to: the namespace and name of its Gateway; unless given, that of the unmanaged Envoys
    /// of `sesame serve --unmanaged`
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name)]
    pub(crate) fleet: Option<NamespacedName>,
    /// What tells the Envoy from others of its fleet; the fleet's name unless given
    #[arg(long, value_name = "ID")]
    pub(crate) node_id: Option<String>,
    /// Where Sesame is
    #[arg(long, value_name = "HOST:PORT|unix:PATH")]
    pub(crate) xds_address: String,
    /// Where Envoy's own pages are. Whoever reaches them rules the Envoy
    #[arg(
        long,
        value_name = "IP:PORT|unix:PATH|none",
        default_value = "127.0.0.1:9901"
    )]
    pub(crate) admin: String,
    /// The Envoy's certificate, as PEM: a file where the Envoy runs
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_authority"])]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Who vouches for Sesame's certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_authority: Option<PathBuf>,
    /// The name in Sesame's certificate; the host of --xds-address unless given
    #[arg(long, value_name = "NAME", requires = "tls_certificate")]
    pub(crate) tls_server_name: Option<String>,
    /// Connections from clients at the same time; further ones are refused
    #[arg(long, value_name = "N", default_value_t = sesame_control::MAX_CONNECTIONS)]
    pub(crate) max_connections: u64,
    /// Bytes of memory at which the Envoy starts to refuse requests, instead of dying with all that it carries
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_limit: Option<u64>,
    /// Say that Sesame's module lies beside the Envoy, which makes requests cheaper where there are many hosts: put it
    /// there with `sesame envoy-sidecar module --folder DIR`, and start the Envoy with
    /// ENVOY_DYNAMIC_MODULES_SEARCH_PATH=DIR
    #[arg(long)]
    pub(crate) module: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub(crate) output: Format,
}

/// `sesame version`.
#[derive(Debug, clap::Args)]
pub(crate) struct VersionArgs {
    /// How to print
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: VersionFormat,
}

/// How versions are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VersionFormat {
    /// Lines for people
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
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// `NAMESPACE/NAME`; a name alone is in namespace `default`.
fn namespaced_name(text: &str) -> Result<NamespacedName, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err("expected NAMESPACE/NAME, for example default/web".to_owned());
    }
    Ok(NamespacedName::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_declaration_holds_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn names_with_and_without_a_namespace() {
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
