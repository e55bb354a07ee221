//! The processes behind a test's API server: etcd, the server, and a keeper that kills both when the test process ends.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

/// Below the ephemeral range, so that no outgoing connection takes a port while the server is stopped.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Number of log lines shown after a failure.
const LAST_LINES: usize = 8;

const KEEPER: &str = include_str!("keeper.sh");

/// The ports of the processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) etcd: u16,
    etcd_peers: u16,
    pub(super) api_server: u16,
}

impl Ports {
    /// Free ports.
    pub(super) fn free() -> Result<Self> {
        // Depends on the process and time, so that concurrent tests rarely collide.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let seed = u64::from(std::process::id()) * 7_919 + u64::from(now.subsec_nanos());
        let count = u64::from(PORTS.end - PORTS.start);
        let mut free = (0..count)
            .map(|step| PORTS.start + u16::try_from((seed + step) % count).unwrap_or_default())
            .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
        let mut next = || free.next().context("no free port");
        Ok(Self {
            etcd: next()?,
            etcd_peers: next()?,
            api_server: next()?,
        })
    }
}

/// The processes. Drop kills them and removes their directory.
#[derive(Debug)]
pub(super) struct Processes {
    programs: PathBuf,
    folder: PathBuf,
    ports: Ports,
    flags: Vec<String>,
    /// The leader of the process group that the keeper kills.
    first: Child,
    group: i32,
    keeper: Child,
    etcd: Option<Child>,
    api_server: Option<Child>,
}

impl Processes {
    /// Starts the keeper, which then owns the directory.
    pub(super) fn new(
        programs: &Path,
        folder: &Path,
        ports: Ports,
        flags: &[&str],
    ) -> Result<Self> {
        // The group leader, which keeps the group ID from being reused.
        let first = Command::new("sleep")
            .arg("2147483647")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("can't run sleep")?;
        let group = i32::try_from(first.id()).context("a PID out of range")?;
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(folder)
            .arg(group.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Not affected by signals to the test's group.
            .process_group(0)
            .spawn()
            .context("can't run sh")?;
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
        self.etcd = Some(command.spawn().context("can't run etcd")?);
        Ok(())
    }

    /// Does nothing if the server is running.
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
            // The server doesn't need to be reachable through a Service.
            .arg("--endpoint-reconciler-type=none")
            .arg("--service-cluster-ip-range=10.0.0.0/16")
            .args(["--authorization-mode=RBAC", "--anonymous-auth=false"])
            // Otherwise Pods would need service accounts, which no controller creates.
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
        self.api_server = Some(command.spawn().context("can't run kube-apiserver")?);
        Ok(())
    }

    /// Does nothing if the server is stopped.
    pub(super) fn stop_api_server(&mut self) -> Result<()> {
        if let Some(mut child) = self.api_server.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Returns an error if a process has exited unexpectedly.
    pub(super) fn check(&mut self) -> Result<()> {
        for (name, child) in [
            ("etcd", &mut self.etcd),
            ("kube-apiserver", &mut self.api_server),
        ] {
            let Some(child) = child else { continue };
            if let Some(status) = child.try_wait()? {
                bail!("{name} exited ({status}): {}", log_tail(&self.folder, name));
            }
        }
        Ok(())
    }

    /// The last lines of each log.
    pub(super) fn log_tails(&self) -> String {
        ["etcd", "kube-apiserver"]
            .map(|name| format!("{name}: {}", log_tail(&self.folder, name)))
            .join("\n")
    }

    /// A command that runs in the group and appends its output to its log.
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
        // If this fails, the keeper kills them when this process ends.
        for child in [&mut self.api_server, &mut self.etcd].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        drop(self.keeper.stdin.take());
        let _ = self.first.wait();
        let _ = self.keeper.wait();
    }
}

fn log_tail(folder: &Path, name: &str) -> String {
    let text = fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
