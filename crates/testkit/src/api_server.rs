//! A real API server with etcd, without controllers.
//!
//! `cargo xtask cluster build` builds the programs. They are found through `SESAME_CLUSTER_BIN`, or in the cache
//! directory.
//!
//! Without controllers, garbage isn't collected, deleted namespaces stay, Deployments don't get pods, and Services
//! don't get endpoints. RBAC applies to users; admission doesn't require service accounts.

mod definitions;
mod places;
mod processes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{sleep, timeout};

pub use self::definitions::Channel;
use self::processes::{Ports, Processes};
use crate::certs::{Authority, Identity};

/// The startup timeout, generous for busy machines.
const PATIENCE: Duration = Duration::from_secs(120);

/// The polling interval.
const PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of attempts, each with new ports, in case another process takes a port first.
const ATTEMPTS: usize = 3;

/// A running API server. It stops, and its files are removed, on drop or when the test process ends for any reason.
#[derive(Debug)]
pub struct ApiServer {
    folder: PathBuf,
    authority: Authority,
    ports: Ports,
    processes: Mutex<Processes>,
}

impl ApiServer {
    /// The server shared by all tests in a process, started on first use. Tests use separate namespaces, or start their
    /// own server if they need to stop it or to use cluster-scoped objects.
    ///
    /// # Errors
    /// See [`ApiServer::start`].
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<ApiServer> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    /// Starts a server, and waits until it is ready.
    ///
    /// # Errors
    /// If the programs are missing (the message says how to get them), or the server doesn't become ready.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts a server with additional flags. For example, with `--watch-cache=false`, watches can't resume from
    /// versions that [`ApiServer::compact`] has removed.
    ///
    /// # Errors
    /// See [`ApiServer::start`].
    pub async fn start_with(flags: &[&str]) -> Result<Self> {
        let programs = places::programs()?;
        let mut attempt = 1;
        loop {
            match Self::attempt(&programs, flags).await {
                Err(error) if attempt < ATTEMPTS && format!("{error:#}").contains(TAKEN) => {
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    async fn attempt(programs: &Path, flags: &[&str]) -> Result<Self> {
        // The keeper removes the folder.
        let folder = tempfile::Builder::new()
            .prefix("sesame-api-server-")
            .tempdir()?
            .keep();
        let authority = Authority::new()?;
        let ports = Ports::free()?;
        write_files(&folder, &authority)?;
        let mut processes = Processes::new(programs, &folder, ports, flags)?;
        processes.start_etcd()?;
        processes.start_api_server()?;
        let server = Self {
            folder,
            authority,
            ports,
            processes: Mutex::new(processes),
        };
        server.ready().await?;
        Ok(server)
    }

    /// A client with all permissions.
    ///
    /// # Errors
    /// If a key can't be generated.
    pub async fn admin(&self) -> Result<Client> {
        let text = self.kubeconfig(None)?;
        Ok(Client::try_from(config(&text).await?)?)
    }

    /// A client with the permissions of this user in these groups (and in `system:authenticated`).
    ///
    /// # Errors
    /// See [`ApiServer::admin`].
    pub async fn client(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let text = self.kubeconfig(Some((user, groups)))?;
        Ok(Client::try_from(config(&text).await?)?)
    }

    /// A client with the permissions of a service account.
    ///
    /// # Errors
    /// See [`ApiServer::admin`].
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Client> {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let group = format!("system:serviceaccounts:{namespace}");
        self.client(&user, &["system:serviceaccounts", &group])
            .await
    }

    /// A kubeconfig file with all permissions, or those of an impersonated user with groups.
    ///
    /// # Errors
    /// See [`ApiServer::admin`].
    pub fn kubeconfig(&self, user: Option<(&str, &[&str])>) -> Result<String> {
        let admin = self.authority.issue_user("admin", "system:masters")?;
        let encoded = |pem: &str| BASE64_STANDARD.encode(pem);
        let mut who = json!({
            "client-certificate-data": encoded(&admin.chain),
            "client-key-data": encoded(&admin.private_key),
        });
        if let Some((user, groups)) = user {
            who["as"] = json!(user);
            who["as-groups"] = json!(groups);
        }
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.ports.api_server),
                "certificate-authority-data": encoded(&self.authority.pem()),
            }}],
            "users": [{"name": "test", "user": who}],
        });
        // JSON is YAML.
        Ok(kubeconfig.to_string())
    }

    /// Kills the server but keeps its data.
    ///
    /// # Errors
    /// If the process can't be killed.
    pub async fn stop(&self) -> Result<()> {
        self.processes.lock().await.stop_api_server()
    }

    /// Restarts the server after [`ApiServer::stop`], on the same port with the same data, and waits until it is ready.
    /// Watches can't resume from earlier versions (410 Gone).
    ///
    /// # Errors
    /// If the server doesn't become ready.
    pub async fn resume(&self) -> Result<()> {
        self.processes.lock().await.start_api_server()?;
        self.ready().await
    }

    /// Compacts etcd to the latest revision. See [`ApiServer::start_with`] for the effect.
    ///
    /// # Errors
    /// If etcd fails.
    pub async fn compact(&self) -> Result<()> {
        // Keys are base64. Any key will do, since the response header has the revision.
        let response = self.etcd("/v3/kv/range", &json!({"key": "AA=="})).await?;
        let revision = &response["header"]["revision"];
        let body = json!({"revision": revision, "physical": true});
        self.etcd("/v3/kv/compaction", &body).await?;
        Ok(())
    }

    /// Installs the Gateway API CRDs and waits until they are served.
    ///
    /// # Errors
    /// If the CRDs are missing (the message says how to get them), or the server rejects them.
    pub async fn install_definitions(&self, channel: Channel) -> Result<()> {
        definitions::install(&self.admin().await?, channel).await
    }

    async fn etcd(&self, path: &str, body: &Value) -> Result<Value> {
        use http_body_util::{BodyExt as _, Full};
        use hyper_util::client::legacy::Client;
        use hyper_util::rt::TokioExecutor;

        let client = Client::builder(TokioExecutor::new()).build_http();
        let uri = format!("http://127.0.0.1:{}{path}", self.ports.etcd);
        let body = Full::new(hyper::body::Bytes::from(body.to_string()));
        let response = client.request(Request::post(uri).body(body)?).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            bail!("etcd returned {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(serde_json::from_slice(&body)?)
    }

    /// Waits until the server is ready and has created its default objects.
    async fn ready(&self) -> Result<()> {
        let client = self.admin().await?;
        let until = Instant::now() + PATIENCE;
        for path in ["/readyz", "/api/v1/namespaces/default"] {
            loop {
                let request = Request::get(path).body(Vec::new())?;
                let response = timeout(PATIENCE, client.request_text(request)).await;
                if matches!(response, Ok(Ok(_))) {
                    break;
                }
                let mut processes = self.processes.lock().await;
                processes.check()?;
                if Instant::now() > until {
                    bail!(
                        "the API server isn't ready after {PATIENCE:?} ({path}: {response:?}); {}",
                        processes.log_tails()
                    );
                }
                drop(processes);
                sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// The directory of the server's files, including logs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

async fn config(kubeconfig: &str) -> Result<Config> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let options = KubeConfigOptions::default();
    Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
}

/// Part of the error messages for a port in use.
const TAKEN: &str = "address already in use";

/// Writes the server's configuration files.
fn write_files(folder: &Path, authority: &Authority) -> Result<()> {
    let write = |name: &str, text: &str| {
        fs::write(folder.join(name), text).with_context(|| format!("can't write {name}"))
    };
    let Identity { chain, private_key } = authority.issue(&["127.0.0.1", "localhost"])?;
    write("ca.crt", &authority.pem())?;
    write("server.crt", &chain)?;
    write("server.key", &private_key)?;
    let tokens = rcgen::KeyPair::generate()?;
    write("tokens.key", &tokens.serialize_pem())?;
    write("tokens.pub", &tokens.public_key_pem())
}

#[cfg(test)]
mod tests;
