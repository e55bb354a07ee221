//! `sesame serve` as a process with unmanaged Envoys, since there are no pods here. The bench starts the Envoys with
//! the certificate that Sesame issues.
//!
//! In: a kubeconfig. Out: a process, its memory and CPU time.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};
use sesame_control::serve::{SERVICE, UNMANAGED_SECRET};
use sesame_envoy::{XdsAddress, XdsTls};
use sesame_testkit::many;

use super::cluster::Cluster;
use super::site;
use crate::local;
use crate::machine::{self, Memory};
use crate::probe::Probe;
use crate::rig;

/// Time limit for a shutdown.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings for replicas.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    sesame: PathBuf,
    kubeconfig: PathBuf,
    /// The same address for each replica, so Envoys reconnect to the next one.
    pub(crate) xds: SocketAddr,
    /// Address of `/metrics`.
    probes: SocketAddr,
    log: PathBuf,
}

/// An Envoy's certificate, key and CA bundle, as files.
#[derive(Clone, Debug)]
pub(crate) struct EnvoyFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) private_key: PathBuf,
    pub(crate) authority: PathBuf,
}

/// A running replica, killed on drop.
pub(crate) struct Replica {
    child: Child,
    probes: SocketAddr,
    /// Start time.
    pub(crate) begun: Instant,
}

impl Settings {
    pub(crate) fn new(sesame: PathBuf, cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            sesame,
            kubeconfig: cluster.kubeconfig(),
            xds: (Ipv4Addr::LOCALHOST, rig::free_port()?).into(),
            probes: (Ipv4Addr::LOCALHOST, rig::free_port()?).into(),
            log: cluster.folder().join("sesame.log"),
        })
    }

    /// The DNS name in Sesame's certificate.
    pub(crate) fn server_name() -> String {
        format!("{SERVICE}.{}.svc", site::SYSTEM)
    }

    /// Starts a replica. All replicas append to the same log.
    pub(crate) fn start(&self, name: &str) -> Result<Replica> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.sesame);
        command
            .arg("serve")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", site::SYSTEM, "--name", name])
            .arg(format!("--xds={}", self.xds))
            .arg(format!("--probes={}", self.probes))
            .arg("--admin=127.0.0.1:0")
            .args(["--unmanaged", "--address=127.0.0.1"])
            .arg(format!("--gateway={}/{}", many::NAMESPACE, many::GATEWAY))
            .args(["--log-format=json", "--log-level=info"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let begun = Instant::now();
        let child = command
            .spawn()
            .with_context(|| format!("cannot run {}", self.sesame.display()))?;
        Ok(Replica {
            child,
            probes: self.probes,
            begun,
        })
    }

    /// The last lines of the log.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.join("\n")
    }

    /// Waits until Sesame has issued the certificate for unmanaged Envoys, and writes it to files.
    pub(crate) fn envoy_files(&self, cluster: &Cluster) -> Result<EnvoyFiles> {
        let like = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": site::SYSTEM, "name": UNMANAGED_SECRET},
        });
        let found = cluster.until(&like, "the Envoys' certificate exists", |secret| {
            secret["data"]["tls.crt"].is_string()
        });
        let secret = found.with_context(|| self.last_words())?;
        let write = |key: &str| -> Result<PathBuf> {
            let text = secret["data"][key].as_str();
            let bytes = BASE64_STANDARD.decode(text.context("the Secret lacks a key")?)?;
            let path = cluster.folder().join(key);
            fs::write(&path, bytes)?;
            Ok(path)
        };
        Ok(EnvoyFiles {
            certificate: write("tls.crt")?,
            private_key: write("tls.key")?,
            authority: write("ca.crt")?,
        })
    }

    /// The xDS address and TLS settings for Envoys.
    pub(crate) fn xds_address(&self, files: &EnvoyFiles) -> XdsAddress {
        XdsAddress::Tcp {
            host: self.xds.ip().to_string(),
            port: self.xds.port(),
            tls: Some(XdsTls {
                certificate: files.certificate.clone(),
                private_key: files.private_key.clone(),
                authority: files.authority.clone(),
                server_name: Self::server_name(),
                secrets: None,
            }),
        }
    }
}

impl Replica {
    pub(crate) fn memory(&self) -> Result<Memory> {
        machine::memory(Some(self.child.id()))
    }

    /// CPU time so far, in milliseconds.
    pub(crate) fn milliseconds(&self) -> Result<f64> {
        machine::process_milliseconds(self.child.id())
    }

    /// Bytes of resources sent to Envoys so far.
    pub(crate) fn sent_bytes(&self) -> Result<f64> {
        let page = Probe::connect(self.probes)?.get_path("localhost", "/metrics")?;
        local::sent_bytes(page.body())
    }

    /// Stops it with SIGTERM.
    pub(crate) fn end(&mut self) -> Result<()> {
        machine::terminate(&mut self.child, PATIENCE)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // Fails if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a Gateway is programmed.
pub(crate) fn programmed(gateway: &Value) -> bool {
    let conditions = gateway["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Programmed" && condition["status"] == "True")
}
