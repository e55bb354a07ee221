//! Sesame as a child process.

use std::env;
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sesame_testkit::client::{Request, send};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Time limit for starting Sesame and its Envoy.
const START: Duration = Duration::from_secs(60);

/// Time limit for shutting down Sesame and its Envoy.
const END: Duration = Duration::from_secs(30);

/// `sesame local`, serving the quickstart.
pub(crate) struct Gateway {
    child: Child,
    address: IpAddr,
}

impl Gateway {
    /// Starts it and waits until the Gateway is programmed and listens.
    pub(crate) async fn start() -> Result<Self> {
        // A free port, which Sesame binds shortly afterwards.
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let sesame =
            env::current_exe()?.with_file_name(format!("sesame{}", env::consts::EXE_SUFFIX));
        let mut child = Command::new(&sesame)
            .args([
                "local",
                "examples/quickstart",
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
                bail!("sesame exited ({status}) before the Gateway was programmed; see above");
            }
            if let Ok(response) = send(admin, &Request::get("admin", "/status")).await
                && let Some(address) = programmed(&response.json())
                && listens(address).await
            {
                return Ok(Self { child, address });
            }
            if Instant::now() > deadline {
                child.kill().await?;
                bail!(
                    "Gateway web did not listen within {} s; see above",
                    START.as_secs()
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The Gateway's address.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
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
async fn listens(address: IpAddr) -> bool {
    TcpStream::connect((address, 8080)).await.is_ok()
        && TcpStream::connect((address, 8443)).await.is_ok()
}

/// The address of the Gateway `web`, once it is programmed.
fn programmed(statuses: &serde_json::Value) -> Option<IpAddr> {
    let gateway = statuses
        .as_array()?
        .iter()
        .find(|entry| entry["kind"] == "Gateway" && entry["metadata"]["name"] == "web")?;
    let status = &gateway["status"];
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
