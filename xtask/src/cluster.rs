//! `cargo xtask cluster`: a Kubernetes cluster of one node, in namespaces of its own, which needs no container engine, no
//! registry and no network but that of Go's modules.
//!
//! In: a command line, or calls of other subcommands. Out: a cluster that runs, is asked, or is gone.

mod build;
mod components;
mod down;
pub(crate) mod go;
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
pub(crate) use self::build::{DEFINITIONS_VARIABLE, PROGRAMS_VARIABLE, api_server, definitions};
pub(crate) use self::layout::LOAD_BALANCERS;
use self::layout::Layout;

/// Variables that send requests elsewhere.
const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// Options of `cargo xtask cluster`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The cluster's name: clusters of different names run beside each other
    #[arg(long, global = true, default_value = "sesame", value_name = "NAME")]
    name: String,
    /// Use an existing cluster instead: for kubectl and exec
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    /// Build all that a cluster is made of, and print the folder (up does it, too, when needed)
    Build {
        /// Only what tests need that talk to an API server without a cluster behind it
        #[arg(long)]
        api_server: bool,
    },
    /// Start the cluster, and print its kubeconfig
    Up,
    /// End the cluster, and leave nothing of it
    Down,
    /// Show what runs
    Status,
    /// Run kubectl
    Kubectl {
        /// kubectl's own
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run a program of this machine in the cluster's network, with KUBECONFIG set
    Exec {
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Import archives of images (those in the cache folder's images are imported when a cluster starts)
    Load {
        /// As `cargo xtask image` makes them
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Stop or start the API server alone
    #[command(hide = true)]
    ApiServer {
        #[arg(value_enum)]
        what: Switch,
    },
    /// Be the node
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
pub(crate) fn run(args: &Args) -> Result<()> {
    let find = || Cluster::find(&args.name, args.kubeconfig.as_deref());
    let own = || -> Result<(Layout, Cluster)> {
        ensure!(
            args.kubeconfig.is_none(),
            "this is for clusters of our own: leave --kubeconfig out"
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
                eprintln!("There is no cluster {}.", args.name);
            }
        }
        Subcommand::Status => {
            let (layout, cluster) = own()?;
            ensure!(
                status::print(&layout, &cluster),
                "some components don't run"
            );
        }
        Subcommand::Kubectl { args } => {
            replace(find()?.kubectl().args(args))?;
        }
        Subcommand::Exec { command } => {
            let (program, args) = command.split_first().context("no program is named")?;
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

/// Becomes another program: its exit status is ours.
fn replace(command: &mut Command) -> Result<Infallible> {
    let error = command.exec();
    Err(error).with_context(|| format!("can't run {}", command.get_program().display()))
}

/// A cluster that runs.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    built: Built,
    kubeconfig: PathBuf,
    /// `None`: someone else's, reached over the network as it is.
    own: Option<Own>,
}

#[derive(Clone, Debug)]
struct Own {
    layout: Layout,
    /// Its node's first process.
    pid: i32,
}

impl Cluster {
    /// Starts a cluster of this name unless it is up, with all archives of the images folder in it. Builds what it needs.
    ///
    /// # Errors
    /// If it can't be built or doesn't start: it is left as it is, for a look at its logs.
    pub(crate) fn up(name: &str) -> Result<Self> {
        let layout = Layout::of(name)?;
        start::up(&layout, &build::everything()?)
    }

    /// The running cluster of this name, or the one of a kubeconfig.
    ///
    /// # Errors
    /// If it doesn't run.
    pub(crate) fn find(name: &str, kubeconfig: Option<&Path>) -> Result<Self> {
        let Some(kubeconfig) = kubeconfig else {
            return Self::own(&Layout::of(name)?);
        };
        ensure!(kubeconfig.exists(), "there is no {}", kubeconfig.display());
        Ok(Self {
            built: build::everything()?,
            kubeconfig: std::path::absolute(kubeconfig)?,
            own: None,
        })
    }

    /// Ends the cluster of this name, and says whether there was one.
    ///
    /// # Errors
    /// If something of it can't be removed.
    pub(crate) fn down(name: &str) -> Result<bool> {
        down::down(&Layout::of(name)?)
    }

    fn own(layout: &Layout) -> Result<Self> {
        let pid = process::read(&layout.first_process()).with_context(|| {
            let name = layout.name();
            format!(
                "cluster {name} doesn't run: start it with `cargo xtask cluster up --name {name}`"
            )
        })?;
        let home =
            std::fs::read_to_string(layout.built()).context("the cluster's folder is spoilt")?;
        Ok(Self {
            built: Built::at(home.into()),
            kubeconfig: layout.kubeconfig(),
            own: Some(Own {
                layout: layout.clone(),
                pid,
            }),
        })
    }

    /// kubectl, to be given arguments.
    pub(crate) fn kubectl(&self) -> Command {
        self.command(&self.built.program("kubectl"))
    }

    /// A program of this machine in the cluster's network, to be given arguments. `KUBECONFIG` is set for it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = match &self.own {
            None => Command::new(program),
            Some(own) => {
                let mut command = Command::new("nsenter");
                command
                    .arg(format!("--net=/proc/{}/ns/net", own.pid))
                    .arg("--")
                    .arg(program);
                // No proxy can be reached from there.
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

    /// Imports archives of images.
    ///
    /// # Errors
    /// If one can't be, or the cluster is someone else's.
    pub(crate) fn load(&self, archives: &[PathBuf]) -> Result<()> {
        let Some(own) = &self.own else {
            bail!("an existing cluster gets its images from its registry");
        };
        archives
            .iter()
            .try_for_each(|archive| images::import(&own.layout, &self.built, archive))
    }

    /// Its network's namespace, as a file.
    ///
    /// # Errors
    /// If the cluster is someone else's.
    pub(crate) fn network(&self) -> Result<PathBuf> {
        let own = self.own.as_ref();
        let own = own.context("an existing cluster's network is not ours to enter")?;
        Ok(format!("/proc/{}/ns/net", own.pid).into())
    }

    /// Ends the API server, and keeps it from running until it is started again.
    ///
    /// # Errors
    /// If it doesn't end, or the cluster is someone else's.
    pub(crate) fn stop_api_server(&self) -> Result<()> {
        start::stop_component(self.layout()?, components::API_SERVER)
    }

    /// Starts the API server, and waits until it is ready.
    ///
    /// # Errors
    /// If it doesn't become so, or the cluster is someone else's.
    pub(crate) fn start_api_server(&self) -> Result<()> {
        start::start_component(self.layout()?, components::API_SERVER)?;
        start::ready(self.layout()?, self)
    }

    fn layout(&self) -> Result<&Layout> {
        let own = self.own.as_ref();
        own.map(|own| &own.layout)
            .context("this is for clusters of our own")
    }

    /// What the service accounts of `sesame-system` asked of the API server, an event a line. Empty for a cluster that isn't
    /// ours.
    pub(crate) fn audit_log(&self) -> PathBuf {
        let own = self.own.as_ref();
        own.map_or_else(|| "/dev/null".into(), |own| own.layout.audit_log())
    }
}
