//! What was typed.
//!
//! In: the command line. Out: its parts, with the right types. Nothing is looked up here: no file, no environment but
//! the variables that stand for a flag.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use sesame_api::NamespacedName;

use crate::output::Format;

/// Sesame: an ingress controller and Gateway API implementation with Envoy as its data plane.
#[derive(Debug, Parser)]
#[command(
    name = "sesame",
    version,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  sesame translate gateway.yaml routes/    show what Envoy would get
  sesame translate --help                  more about a command"
)]
pub(crate) struct Args {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what Envoys would get and what owners of objects would be told
    Translate(TranslateArgs),
    /// Print a bootstrap for an Envoy that you run yourself
    Bootstrap(BootstrapArgs),
    /// Print versions
    Version(VersionArgs),
    /// Print a completion script for a shell
    Completion(CompletionArgs),
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
  sesame bootstrap --fleet default/web --xds-address sesame.sesame-system:8001 > envoy.yaml && envoy -c envoy.yaml
  sesame bootstrap --fleet default/web --xds-address unix:/run/sesame/xds.sock --admin none
  sesame bootstrap --fleet default/web --xds-address sesame:8001 \\
      --tls-certificate tls.crt --tls-key tls.key --tls-authority ca.crt --tls-server-name sesame")]
pub(crate) struct BootstrapArgs {
    /// The fleet that the Envoy belongs to: the namespace and name of its Gateway
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name)]
    pub(crate) fleet: NamespacedName,
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
