//! The processes of a test's API server: etcd, the server, and a keeper that ends them when the test's process is over.
//!
//! In: programs, a folder, ports. Out: processes in a group of their own. It must not know what they serve.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

/// Ports are taken from here, since outgoing connections get theirs from above: nobody takes one while the server is stopped.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How much of a log is shown when something goes wrong, in lines.
const LAST_LINES: usize = 8;

const KEEPER: &str = include_str!("keeper.sh");

/// Where the processes listen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) etcd: u16,
    etcd_peers: u16,
    pub(super) api_server: u16,
}

impl Ports {
    /// Ports that nobody had a moment ago.
    pub(super) fn free() -> Result<Self> {
        // Somewhere else for each process and moment, so that tests beside each other seldom meet.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let seed = u64::from(std::process::id()) * 7_919 + u64::from(now.subsec_nanos());
        let count = u64::from(PORTS.end - PORTS.start);
        let mut free = (0..count)
            .map(|step| PORTS.start + u16::try_from((seed + step) % count).unwrap_or_default())
            .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
        let mut next = || free.next().context("no port is free");
        Ok(Self {
            etcd: next()?,
            etcd_peers: next()?,
            api_server: next()?,
        })
    }
}

/// The processes. Dropping this ends them and removes their folder.
#[derive(Debug)]
pub(super) struct Processes {
    programs: PathBuf,
    folder: PathBuf,
    ports: Ports,
    flags: Vec<String>,
    /// The first process of the group that the keeper ends.
    first: Child,
    group: i32,
    keeper: Child,
    etcd: Option<Child>,
    api_server: Option<Child>,
}

impl Processes {
    /// Starts the keeper alone. From now on the folder is its own to remove.
    pub(super) fn new(
        programs: &Path,
        folder: &Path,
        ports: Ports,
        flags: &[&str],
    ) -> Result<Self> {
        // The first of the group, which keeps its number from being given to others.
        let first = Command::new("sleep")
            .arg("2147483647")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("sleep can't be run")?;
        let group = i32::try_from(first.id()).context("a process has a strange number")?;
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(folder)
            .arg(group.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What interrupts the test must not interrupt it.
            .process_group(0)
            .spawn()
            .context("sh can't be run")?;
        Ok(Self {
            programs: programs.to_owned(),
            folder: folder.to_owned(),
            ports,
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            first,
            keeper,
            group,
            etcd: None,
            api_server: None,
        })
    }

    pub(super) fn start_etcd(&mut self) -> Result<()> {
        let Ports {
            etcd, etcd_peers, ..
        } = self.ports;
        let clients = format!("http://127.0.0.1:{etcd}");
        let peers = format!("http://127.0.0.1:{etcd_peers}");
        let mut command = self.command("etcd")?;
        command
            .args(["--name", "test", "--unsafe-no-fsync", "--log-level", "warn"])
            .arg("--data-dir")
            .arg(self.folder.join("etcd"))
            .args(["--listen-client-urls", &clients])
            .args(["--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers])
            .args(["--initial-advertise-peer-urls", &peers])
            .arg(format!("--initial-cluster=test={peers}"));
        self.etcd = Some(command.spawn().context("etcd can't be run")?);
        Ok(())
    }

    /// Does nothing if it runs.
    pub(super) fn start_api_server(&mut self) -> Result<()> {
        if self.api_server.is_some() {
            return Ok(());
        }
        let file = |name: &str| self.folder.join(name).display().to_string();
        let mut command = self.command("kube-apiserver")?;
        command
            .arg(format!(
                "--etcd-servers=http://127.0.0.1:{}",
                self.ports.etcd
            ))
            .arg(format!("--secure-port={}", self.ports.api_server))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            // Nobody reaches it through a Service.
            .arg("--endpoint-reconciler-type=none")
            .arg("--service-cluster-ip-range=10.0.0.0/16")
            .args(["--authorization-mode=RBAC", "--anonymous-auth=false"])
            // Nobody makes service accounts here, which pods would have to have.
            .arg("--disable-admission-plugins=ServiceAccount")
            .arg("--allow-privileged")
            .arg("--profiling=false")
            .arg(format!("--client-ca-file={}", file("ca.crt")))
            .arg(format!("--tls-cert-file={}", file("server.crt")))
            .arg(format!("--tls-private-key-file={}", file("server.key")))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", file("tokens.pub")))
            .arg(format!(
                "--service-account-signing-key-file={}",
                file("tokens.key")
            ))
            .args(&self.flags);
        self.api_server = Some(command.spawn().context("kube-apiserver can't be run")?);
        Ok(())
    }

    /// Does nothing if it is stopped.
    pub(super) fn stop_api_server(&mut self) -> Result<()> {
        if let Some(mut child) = self.api_server.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Complains if a process has ended that should run.
    pub(super) fn check(&mut self) -> Result<()> {
        for (name, child) in [
            ("etcd", &mut self.etcd),
            ("kube-apiserver", &mut self.api_server),
        ] {
            let Some(child) = child else { continue };
            if let Some(status) = child.try_wait()? {
                bail!("{name} ended ({status}): {}", log_end(&self.folder, name));
            }
        }
        Ok(())
    }

    /// The ends of the logs.
    pub(super) fn last_words(&self) -> String {
        ["etcd", "kube-apiserver"]
            .map(|name| format!("{name}: {}", log_end(&self.folder, name)))
            .join("\n")
    }

    /// A program in the group, whose log goes on in its file.
    fn command(&self, name: &str) -> Result<Command> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("{name}.log")))?;
        let mut command = Command::new(self.programs.join(name));
        command
            .current_dir(&self.folder)
            .process_group(self.group)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(command)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // If any of this fails, the keeper sees to it when this process ends.
        for child in [&mut self.api_server, &mut self.etcd].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        drop(self.keeper.stdin.take());
        let _ = self.first.wait();
        let _ = self.keeper.wait();
    }
}

fn log_end(folder: &Path, name: &str) -> String {
    let text = fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
