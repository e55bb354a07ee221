//! An API server with nothing behind it but etcd, for tests of what talks to one.
//!
//! In: the programs that `cargo xtask cluster build` makes, found by `SESAME_CLUSTER_BIN` or in the cache folder. Out: a
//! running server on a loopback address, and clients of any user.
//!
//! No controller runs: nothing is collected as garbage, namespaces that are deleted stay, Deployments get no pods and Services
//! no endpoints. Users have the rights that RBAC gives them; admission asks for no service accounts.

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

/// A server that isn't ready by then has failed. A busy machine needs long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between looks at something that is awaited.
const PAUSE: Duration = Duration::from_millis(50);

/// Ports are chosen anew that often, if someone else takes one between choice and use.
const ATTEMPTS: usize = 3;

/// A running API server. Dropping it, or ending the test's process in whatever way, takes everything away.
#[derive(Debug)]
pub struct ApiServer {
    folder: PathBuf,
    authority: Authority,
    ports: Ports,
    processes: Mutex<Processes>,
}

impl ApiServer {
    /// The one that all tests of a process share, started by the first that asks. Tests keep out of each other's way by
    /// namespaces of their own, and start one of their own if they stop it or look at what isn't in a namespace.
    ///
    /// # Errors
    /// See [`ApiServer::start`].
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<ApiServer> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    /// Starts one, and waits until it is ready.
    ///
    /// # Errors
    /// If the programs are missing (the message says how to get them), or it doesn't become ready.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts one with more flags, such as `--watch-cache=false`, with which a watch goes on from no version that
    /// [`ApiServer::compact`] has thrown away.
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
        // Its keeper removes it.
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

    /// A client with all rights.
    ///
    /// # Errors
    /// If the machine has no randomness to make a key of.
    pub async fn admin(&self) -> Result<Client> {
        let text = self.kubeconfig(None)?;
        Ok(Client::try_from(config(&text).await?)?)
    }

    /// A client that has the rights of this user in these groups (and in `system:authenticated`), and no others.
    ///
    /// # Errors
    /// See [`ApiServer::admin`].
    pub async fn client(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let text = self.kubeconfig(Some((user, groups)))?;
        Ok(Client::try_from(config(&text).await?)?)
    }

    /// A client with the rights of a service account.
    ///
    /// # Errors
    /// See [`ApiServer::admin`].
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Client> {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let group = format!("system:serviceaccounts:{namespace}");
        self.client(&user, &["system:serviceaccounts", &group])
            .await
    }

    /// The text of a kubeconfig file with all rights, or with those of a user in groups. Such a user is impersonated: a
    /// certificate of its own would have the same rights, and be one more thing to make.
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
        // JSON is YAML, too.
        Ok(kubeconfig.to_string())
    }

    /// Ends the server as a crash does: connections break, nobody answers. What it holds stays.
    ///
    /// # Errors
    /// If the process can't be ended.
    pub async fn stop(&self) -> Result<()> {
        self.processes.lock().await.stop_api_server()
    }

    /// Starts it again after [`ApiServer::stop`], on the same port with the same content, and waits until it is ready. It
    /// remembers no changes from before: a watch that asks for them is told that they are gone (410).
    ///
    /// # Errors
    /// If it doesn't become ready.
    pub async fn resume(&self) -> Result<()> {
        self.processes.lock().await.start_api_server()?;
        self.ready().await
    }

    /// Makes etcd forget all changes but the last. See [`ApiServer::start_with`] for who notices.
    ///
    /// # Errors
    /// If etcd doesn't do it.
    pub async fn compact(&self) -> Result<()> {
        // etcd wants keys in base64; any will do, since the answer's header has the revision.
        let answer = self.etcd("/v3/kv/range", &json!({"key": "AA=="})).await?;
        let revision = &answer["header"]["revision"];
        let body = json!({"revision": revision, "physical": true});
        self.etcd("/v3/kv/compaction", &body).await?;
        Ok(())
    }

    /// Installs the Gateway API's definitions, and waits until their kinds are served.
    ///
    /// # Errors
    /// If the definitions aren't found (the message says how to get them), or the server refuses them.
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
            bail!("etcd says {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(serde_json::from_slice(&body)?)
    }

    /// Waits until it answers, and has made what every client expects of it.
    async fn ready(&self) -> Result<()> {
        let client = self.admin().await?;
        let until = Instant::now() + PATIENCE;
        for path in ["/readyz", "/api/v1/namespaces/default"] {
            loop {
                let request = Request::get(path).body(Vec::new())?;
                let answer = timeout(PATIENCE, client.request_text(request)).await;
                if matches!(answer, Ok(Ok(_))) {
                    break;
                }
                let mut processes = self.processes.lock().await;
                processes.check()?;
                if Instant::now() > until {
                    bail!(
                        "the API server isn't ready after {PATIENCE:?} ({path}: {answer:?}); {}",
                        processes.last_words()
                    );
                }
                drop(processes);
                sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// The folder of its files: logs are there, as long as it runs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

async fn config(kubeconfig: &str) -> Result<Config> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let options = KubeConfigOptions::default();
    Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
}

/// How programs say that a port is someone else's.
const TAKEN: &str = "address already in use";

/// What the server reads when it starts.
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
