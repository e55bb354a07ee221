//! Sesame as a child process.

use std::env;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sesame_testkit::client::{Request, send};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Time limit for starting Sesame and its Envoy.
const START: Duration = Duration::from_secs(60);

/// Time limit for shutting down Sesame and its Envoy.
const END: Duration = Duration::from_secs(30);

/// A folder for `sesame local`, and its settings.
pub(crate) struct Example {
    /// The folder.
    pub(crate) folder: &'static str,
    /// Added to the objects' ports if some are below 1024.
    pub(crate) port_offset: u16,
    /// Envoy's ports: without TLS, and with TLS.
    pub(crate) ports: (u16, u16),
    /// Finds the example's address in the objects' statuses; `None` until they are served.
    pub(crate) address: fn(&Value) -> Option<IpAddr>,
}

/// The quickstart, served by the Gateway `web`.
pub(crate) const QUICKSTART: Example = Example {
    folder: "examples/quickstart",
    port_offset: 0,
    ports: (8080, 8443),
    address: of_gateway,
};

/// An Ingress and HTTPProxies, served by the default fleet.
pub(crate) const INGRESS: Example = Example {
    folder: "examples/ingress",
    port_offset: 10_000,
    ports: (10_080, 10_443),
    address: of_ingress,
};

/// `sesame local`, serving an example.
pub(crate) struct Gateway {
    child: Child,
    example: Example,
    address: IpAddr,
}

impl Gateway {
    /// Starts Sesame and waits until it serves the example.
    pub(crate) async fn start(example: Example) -> Result<Self> {
        // A free port, which Sesame binds shortly afterwards.
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let sesame =
            env::current_exe()?.with_file_name(format!("sesame{}", env::consts::EXE_SUFFIX));
        let mut child = Command::new(&sesame)
            .args([
                "local",
                example.folder,
                "--port-offset",
                &example.port_offset.to_string(),
                "--admin",
                &admin.to_string(),
            ])
            .current_dir(root())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!(
                    "cannot start {}; `cargo xtask demo` builds it",
                    sesame.display()
                )
            })?;
        let deadline = Instant::now() + START;
        loop {
            if let Some(status) = child.try_wait()? {
                bail!("sesame exited ({status}) before it served the example; see above");
            }
            if let Ok(response) = send(admin, &Request::get("localhost", "/status")).await
                && let Some(address) = (example.address)(&response.json())
                && listens(address, example.ports).await
            {
                return Ok(Self {
                    child,
                    example,
                    address,
                });
            }
            if Instant::now() > deadline {
                child.kill().await?;
                bail!(
                    "{} was not served within {} s; see above",
                    example.folder,
                    START.as_secs()
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Envoy's address.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// The address on which Envoy serves HTTP.
    pub(crate) fn plain(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.example.ports.0)
    }

    /// The address on which Envoy serves HTTPS.
    pub(crate) fn secure(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.example.ports.1)
    }

    /// Waits for Ctrl-C or for Sesame to exit.
    pub(crate) async fn stay(&mut self) -> Result<()> {
        tokio::select! {
            done = tokio::signal::ctrl_c() => done.context("cannot wait for Ctrl-C"),
            status = self.child.wait() => bail!("sesame exited: {}", status?),
        }
    }

    /// Stops Sesame and its Envoy.
    pub(crate) async fn stop(mut self) -> Result<()> {
        if let Some(id) = self.child.id() {
            Command::new("kill")
                .args(["-TERM", &id.to_string()])
                .status()
                .await?;
        }
        match timeout(END, self.child.wait()).await {
            Ok(status) => match status? {
                status if status.success() => Ok(()),
                status => bail!("sesame exited with {status}"),
            },
            Err(_) => {
                self.child.kill().await?;
                bail!("sesame did not exit within {} s", END.as_secs())
            }
        }
    }
}

/// Whether the ports are open: Envoy opens them shortly after accepting the listeners.
async fn listens(address: IpAddr, (plain, secure): (u16, u16)) -> bool {
    TcpStream::connect((address, plain)).await.is_ok()
        && TcpStream::connect((address, secure)).await.is_ok()
}

/// The status of an object.
fn status<'a>(statuses: &'a Value, kind: &str, name: &str) -> Option<&'a Value> {
    let mut entries = statuses.as_array()?.iter();
    let entry = entries.find(|entry| entry["kind"] == kind && entry["metadata"]["name"] == name)?;
    Some(&entry["status"])
}

/// The address of the Ingress `docs`.
fn of_ingress(statuses: &Value) -> Option<IpAddr> {
    let status = status(statuses, "Ingress", "docs")?;
    let address = &status["loadBalancer"]["ingress"][0]["ip"];
    address.as_str()?.parse().ok()
}

/// The address of the Gateway `web`, once it is programmed.
fn of_gateway(statuses: &Value) -> Option<IpAddr> {
    let status = status(statuses, "Gateway", "web")?;
    let holds = |name: &str| {
        let conditions = status["conditions"].as_array();
        conditions.is_some_and(|all| {
            all.iter()
                .any(|entry| entry["type"] == name && entry["status"] == "True")
        })
    };
    if !holds("Programmed") {
        return None;
    }
    status["addresses"][0]["value"].as_str()?.parse().ok()
}

/// The root of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
