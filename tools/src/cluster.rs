//! `cargo xtask cluster`: a single-node Kubernetes cluster in Linux namespaces. It doesn't need a container engine or a
//! registry, and needs network access only for Go modules.
//!
//! In: a command line, or calls from other subcommands. Out: a running cluster, or none.

mod build;
mod components;
mod down;
mod images;
mod layout;
mod mounts;
mod network;
mod node;
mod packages;
mod pki;
mod process;
mod programs;
mod settings;
mod start;
mod status;

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use self::build::Built;
pub use self::build::{DEFINITIONS_VARIABLE, PROGRAMS_VARIABLE, api_server, definitions};
pub use self::layout::LOAD_BALANCERS;
use self::layout::Layout;

/// Proxy environment variables.
const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// Options of `cargo xtask cluster`.
#[derive(clap::Args)]
pub struct Args {
    /// Name of the cluster; several can run at the same time
    #[arg(long, global = true, default_value = "sesame", value_name = "NAME")]
    name: String,
    /// Use an existing cluster instead (kubectl and exec only)
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    /// Build all of a cluster's programs, and print their folder (`up` also builds them)
    Build {
        /// Build only etcd and the API server, for tests
        #[arg(long)]
        api_server: bool,
    },
    /// Start the cluster, and print its kubeconfig
    Up,
    /// Remove the cluster and its files
    Down,
    /// Show components, nodes, pods and services
    Status,
    /// Run kubectl
    Kubectl {
        /// Arguments for kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run one of this machine's programs in the cluster's network namespace, with KUBECONFIG set
    Exec {
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Import image archives (`up` imports those of `cargo xtask image`)
    Load {
        /// Archives, as written by `cargo xtask image`
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Stop or start the API server
    #[command(hide = true)]
    ApiServer {
        #[arg(value_enum)]
        what: Switch,
    },
    /// Run the node
    #[command(hide = true)]
    Node {
        #[arg(long)]
        programs: PathBuf,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    Stop,
    Start,
}

/// Runs a command line.
pub fn run(args: &Args) -> Result<()> {
    let find = || Cluster::find(&args.name, args.kubeconfig.as_deref());
    let own = || -> Result<(Layout, Cluster)> {
        ensure!(
            args.kubeconfig.is_none(),
            "this subcommand does not support --kubeconfig"
        );
        Ok((Layout::of(&args.name)?, Cluster::find(&args.name, None)?))
    };
    match &args.command {
        Subcommand::Build { api_server } => {
            let built = if *api_server {
                build::api_server()?
            } else {
                build::everything()?
            };
            println!("{}", built.programs().display());
        }
        Subcommand::Up => {
            let cluster = Cluster::up(&args.name)?;
            println!("{}", cluster.kubeconfig.display());
        }
        Subcommand::Down => {
            if !Cluster::down(&args.name)? {
                eprintln!("Cluster {} does not exist.", args.name);
            }
        }
        Subcommand::Status => {
            let (layout, cluster) = own()?;
            ensure!(
                status::print(&layout, &cluster),
                "some components are not running"
            );
        }
        Subcommand::Kubectl { args } => {
            replace(find()?.kubectl().args(args))?;
        }
        Subcommand::Exec { command } => {
            let (program, args) = command.split_first().context("a program is required")?;
            replace(find()?.command(Path::new(program)).args(args))?;
        }
        Subcommand::Load { archives } => own()?.1.load(archives)?,
        Subcommand::ApiServer { what } => {
            let (_, cluster) = own()?;
            match what {
                Switch::Stop => cluster.stop_api_server()?,
                Switch::Start => cluster.start_api_server()?,
            }
        }
        Subcommand::Node { programs } => node::run(&Layout::of(&args.name)?, programs)?,
    }
    Ok(())
}

/// Replaces this process with another program.
fn replace(command: &mut Command) -> Result<Infallible> {
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", command.get_program().display()))
}

/// A running cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    built: Built,
    kubeconfig: PathBuf,
    /// `None` for an existing cluster from a kubeconfig.
    own: Option<Own>,
}

#[derive(Clone, Debug)]
struct Own {
    layout: Layout,
    /// PID of the node's init process.
    pid: i32,
}

impl Cluster {
    /// Starts a cluster unless it is running, and imports all archives in the images folder. Builds missing programs.
    ///
    /// # Errors
    /// If it can't be built or doesn't start. Its files and logs are kept.
    pub fn up(name: &str) -> Result<Self> {
        let layout = Layout::of(name)?;
        start::up(&layout, &build::everything()?)
    }

    /// The running cluster with this name, or the one in a kubeconfig.
    ///
    /// # Errors
    /// If it isn't running.
    pub fn find(name: &str, kubeconfig: Option<&Path>) -> Result<Self> {
        let Some(kubeconfig) = kubeconfig else {
            return Self::own(&Layout::of(name)?);
        };
        ensure!(
            kubeconfig.exists(),
            "{} does not exist",
            kubeconfig.display()
        );
        Ok(Self {
            built: build::everything()?,
            kubeconfig: std::path::absolute(kubeconfig)?,
            own: None,
        })
    }

    /// Removes a cluster; returns whether it existed.
    ///
    /// # Errors
    /// If a part of it can't be removed.
    pub fn down(name: &str) -> Result<bool> {
        down::down(&Layout::of(name)?)
    }

    fn own(layout: &Layout) -> Result<Self> {
        let pid = process::read(&layout.first_process()).with_context(|| {
            let name = layout.name();
            format!(
                "cluster {name} is not running: start it with `cargo xtask cluster up --name {name}`"
            )
        })?;
        let home =
            std::fs::read_to_string(layout.built()).context("the cluster's folder is corrupt")?;
        Ok(Self {
            built: Built::at(home.into()),
            kubeconfig: layout.kubeconfig(),
            own: Some(Own {
                layout: layout.clone(),
                pid,
            }),
        })
    }

    /// A kubectl command without arguments.
    pub fn kubectl(&self) -> Command {
        self.command(&self.kubectl_path())
    }

    /// The path of kubectl.
    pub fn kubectl_path(&self) -> PathBuf {
        self.built.program("kubectl")
    }

    /// A command without arguments in the cluster's network namespace, with `KUBECONFIG` set.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = match &self.own {
            None => Command::new(program),
            Some(own) => {
                let mut command = Command::new("nsenter");
                command
                    .arg(format!("--net=/proc/{}/ns/net", own.pid))
                    .arg("--")
                    .arg(program);
                // Proxies aren't reachable from there.
                for variable in PROXIES {
                    command.env_remove(variable);
                    command.env_remove(variable.to_lowercase());
                }
                command
            }
        };
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Imports image archives.
    ///
    /// # Errors
    /// If the import fails, or for an existing cluster.
    pub fn load(&self, archives: &[PathBuf]) -> Result<()> {
        let Some(own) = &self.own else {
            bail!("cannot import images into an existing cluster");
        };
        archives
            .iter()
            .try_for_each(|archive| images::import(&own.layout, &self.built, archive))
    }

    /// The file that refers to the cluster's network namespace.
    ///
    /// # Errors
    /// For an existing cluster.
    pub fn network(&self) -> Result<PathBuf> {
        let own = self.own.as_ref();
        let own = own.context("the network namespace of an existing cluster is unknown")?;
        Ok(format!("/proc/{}/ns/net", own.pid).into())
    }

    /// Stops the API server until [`Cluster::start_api_server`].
    ///
    /// # Errors
    /// If it doesn't exit, or for an existing cluster.
    pub fn stop_api_server(&self) -> Result<()> {
        start::stop_component(self.layout()?, components::API_SERVER)
    }

    /// Starts the API server and waits until it is ready.
    ///
    /// # Errors
    /// If it isn't ready in time, or for an existing cluster.
    pub fn start_api_server(&self) -> Result<()> {
        start::start_component(self.layout()?, components::API_SERVER)?;
        start::ready(self.layout()?, self)
    }

    fn layout(&self) -> Result<&Layout> {
        let own = self.own.as_ref();
        own.map(|own| &own.layout)
            .context("not supported for an existing cluster")
    }

    /// Audit log of requests by the service accounts in `sesame-system`, as JSON lines. Empty for an existing cluster.
    pub fn audit_log(&self) -> PathBuf {
        let own = self.own.as_ref();
        own.map_or_else(|| "/dev/null".into(), |own| own.layout.audit_log())
    }
}
