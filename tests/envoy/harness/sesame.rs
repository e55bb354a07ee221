//! `sesame local` as a child process, with its statuses and events. The process and its Envoys are stopped when the
//! test ends, even if it fails.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sesame_testkit::client::{Connect, Connection, Request, Response, send};

use super::{
    Folder, HTTP, binary, children, eventually, gateway, listening, new_ip, process, route,
};

/// The port of Sesame's admin server.
const ADMIN: u16 = 9900;

/// A Sesame process that runs until dropped.
pub(crate) struct Sesame {
    child: Mutex<Child>,
    pid: u32,
    folder: Folder,
    admin: SocketAddr,
    /// Default address for its Gateways.
    pub(crate) ip: IpAddr,
    output: Arc<Mutex<Output>>,
}

/// The output so far.
#[derive(Default)]
struct Output {
    events: Vec<Value>,
    /// Lines on standard output that are not events.
    stray_lines: Vec<String>,
    log: Vec<String>,
}

/// Status and reason of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Sesame {
    /// Starts Sesame with the files that `files` returns for its address; waits until it responds and every Gateway is
    /// programmed.
    pub(crate) async fn serving(files: impl FnOnce(IpAddr) -> Vec<(&'static str, String)>) -> Self {
        let ip = new_ip();
        let sesame = Self::start(ip, Folder::new(&files(ip)), &[]).await;
        sesame.programmed().await;
        sesame
    }

    /// Starts Sesame with a Gateway `web` that has these listeners, plus these objects, all in the file `all.yaml`.
    pub(crate) async fn with_gateway(listeners: &[impl AsRef<str>], objects: &str) -> Self {
        Self::serving(|ip| vec![("all.yaml", gateway("web", ip, listeners) + objects)]).await
    }

    /// Starts Sesame with a plain Gateway, these objects, and the HTTPRoute `a` with these rules for a.example.com;
    /// waits until the Gateway listens.
    pub(crate) async fn with_rules(objects: &str, rules: &[impl AsRef<str>]) -> Self {
        let route = route("a", &["web"], &["a.example.com"], rules);
        let sesame = Self::with_gateway(&[HTTP], &(objects.to_owned() + &route)).await;
        listening(sesame.at(8080)).await;
        sesame
    }

    /// Starts Sesame with additional arguments and waits until it responds.
    pub(crate) async fn start(ip: IpAddr, folder: Folder, arguments: &[&str]) -> Self {
        let path = folder.path();
        let path = path.to_str().expect("a readable path");
        let arguments = [&[path], arguments].concat();
        let sesame = Self::spawn(ip, folder, &arguments, "");
        sesame.answering().await;
        sesame
    }

    /// Starts `local` with exactly these arguments and this standard input.
    pub(crate) fn spawn(ip: IpAddr, folder: Folder, arguments: &[&str], stdin: &str) -> Self {
        let admin = SocketAddr::new(ip, ADMIN);
        let mut command = Command::new(binary::sesame());
        command
            .arg("local")
            .args(arguments)
            .args(["-o", "json", "--concurrency", "1"])
            .args(["--admin", &admin.to_string()]);
        if !arguments.contains(&"--envoy") {
            command.arg("--envoy").arg(binary::envoy());
        }
        let mut child = command
            // Folder for sockets and other files, to check that they are removed.
            .env("TMPDIR", folder.scratch())
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Sesame can be started");
        let mut input = child.stdin.take().expect("standard input is piped");
        // Errors are ignored: the test notices if Sesame exits before reading all of its input.
        let _ = input.write_all(stdin.as_bytes());
        drop(input);
        let output = Arc::new(Mutex::new(Output::default()));
        let stdout = child.stdout.take().expect("standard output is piped");
        listen(&output, stdout, |output, line| {
            match serde_json::from_str(&line) {
                Ok(event) => output.events.push(event),
                Err(_) => output.stray_lines.push(line),
            }
        });
        let log = child.stderr.take().expect("standard error is piped");
        listen(&output, log, |output, line| output.log.push(line));
        Self {
            pid: child.id(),
            child: Mutex::new(child),
            folder,
            admin,
            ip,
            output,
        }
    }

    /// Its PID.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Its object files.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Its address and this port.
    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    /// Opens a plain connection to the Gateway on port 8080.
    pub(crate) async fn open(&self) -> Connection {
        let opened = Connect::plain().open(self.at(8080)).await;
        opened.expect("the gateway listens")
    }

    /// Sends a plain request to the Gateway on port 8080.
    pub(crate) async fn send(&self, request: &Request) -> Response {
        let response = Connect::plain().send(self.at(8080), request).await;
        response.expect("a response")
    }

    /// [`send`](Self::send), asserting a 200.
    pub(crate) async fn ask_well(&self, request: &Request) -> Response {
        let response = self.send(request).await;
        assert_eq!(response.status, 200, "{response:?}");
        response
    }

    /// Waits until its admin server responds.
    pub(crate) async fn answering(&self) {
        eventually("Sesame responds", async || {
            if let Some(status) = lock(&self.child).try_wait()? {
                panic!("Sesame exited: {status}");
            }
            self.page("/status").await.map(drop)
        })
        .await;
    }

    /// Waits until every Gateway is programmed.
    pub(crate) async fn programmed(&self) {
        eventually("all Gateways are programmed", async || {
            let statuses = self.page("/status").await?;
            let gateways = statuses.as_array().context("/status is a list")?;
            let mut gateways = gateways.iter().filter(|entry| entry["kind"] == "Gateway");
            let first = gateways.next().context("there is no Gateway")?;
            for gateway in std::iter::once(first).chain(gateways) {
                let programmed = condition(&gateway["status"]["conditions"], "Programmed")?;
                ensure!(
                    programmed.status == "True",
                    "{}: {programmed:?}",
                    gateway["metadata"]["name"]
                );
            }
            Ok(())
        })
        .await;
    }

    /// Fetches a page from its admin server, as JSON.
    pub(crate) async fn page(&self, path: &str) -> Result<Value> {
        let response = send(self.admin, &Request::get("localhost", path)).await?;
        ensure!(
            response.status == 200,
            "{path} responds with {}",
            response.status
        );
        Ok(serde_json::from_slice(&response.body)?)
    }

    /// The status of an object in namespace `default`.
    pub(crate) async fn status(&self, kind: &str, name: &str) -> Result<Value> {
        let statuses = self.page("/status").await?;
        let found = statuses
            .as_array()
            .context("/status is a list")?
            .iter()
            .find(|entry| entry["kind"] == kind && entry["metadata"]["name"] == name);
        let found = found.with_context(|| format!("no {kind} {name}: {statuses}"))?;
        Ok(found["status"].clone())
    }

    /// A condition of a Gateway.
    pub(crate) async fn of_gateway(&self, name: &str, type_: &str) -> Result<Condition> {
        condition(&self.status("Gateway", name).await?["conditions"], type_)
    }

    /// A condition of a Gateway's listener.
    pub(crate) async fn of_listener(
        &self,
        gateway: &str,
        listener: &str,
        type_: &str,
    ) -> Result<Condition> {
        condition(
            &self.listener(gateway, listener).await?["conditions"],
            type_,
        )
    }

    /// The status of a Gateway's listener.
    pub(crate) async fn listener(&self, gateway: &str, listener: &str) -> Result<Value> {
        let status = self.status("Gateway", gateway).await?;
        let listeners = status["listeners"].as_array().context("no listeners")?;
        let found = listeners.iter().find(|entry| entry["name"] == listener);
        Ok(found
            .with_context(|| format!("no listener {listener}: {status}"))?
            .clone())
    }

    /// A condition of an HTTPRoute for its first parent.
    pub(crate) async fn of_route(&self, name: &str, type_: &str) -> Result<Condition> {
        let status = self.status("HTTPRoute", name).await?;
        condition(&status["parents"][0]["conditions"], type_)
    }

    /// Asserts status and reason of an HTTPRoute's condition for its first parent.
    pub(crate) async fn assert_route(&self, name: &str, type_: &str, expected: (&str, &str)) {
        let found = self.of_route(name, type_).await.expect("a condition");
        let actual = (found.status.as_str(), found.reason.as_str());
        assert_eq!(actual, expected, "{found:?}");
    }

    /// Waits for an event that `wanted` accepts, skipping the first `from` events.
    pub(crate) async fn event(
        &self,
        what: &str,
        from: usize,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(what, async || {
            let output = self.output();
            let events = output.events.get(from..).unwrap_or_default();
            events
                .iter()
                .find(|event| wanted(event))
                .cloned()
                .with_context(|| format!("not among these events: {events:?}"))
        })
        .await
    }

    /// Waits for a change to an object, such as `Secret/default/s`, skipping the first `from` events.
    pub(crate) async fn changed(&self, object: &str, from: usize) -> Value {
        let changed = json!({"object": object, "change": "changed"});
        self.event(&format!("a change of {object}"), from, |event| {
            let objects = event["objects"].as_array();
            event["type"] == "change" && objects.is_some_and(|all| all.contains(&changed))
        })
        .await
    }

    /// The number of events so far.
    pub(crate) fn events(&self) -> usize {
        self.output().events.len()
    }

    /// Its standard error output so far.
    pub(crate) fn log(&self) -> String {
        self.output().log.join("\n")
    }

    /// PIDs and command lines of its Envoys.
    pub(crate) fn envoys(&self) -> Vec<(u32, String)> {
        let name = binary::envoy().to_string_lossy();
        let mut found = children(self.pid());
        found.retain(|(_, line)| line.starts_with(&*name));
        found
    }

    /// Sends a signal, if given, and waits for the exit.
    pub(crate) async fn end(&self, signal: Option<Signal>) -> ExitStatus {
        if let Some(signal) = signal {
            process::send_signal(self.pid(), signal);
        }
        eventually("Sesame exits", async || {
            match lock(&self.child).try_wait()? {
                Some(status) => Ok(status),
                None => bail!("it is still running"),
            }
        })
        .await
    }

    /// Lines on standard output that are not events.
    pub(crate) fn stray_lines(&self) -> Vec<String> {
        self.output().stray_lines.clone()
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        lock(&self.output)
    }
}

/// Waits until a condition has this status and reason, and returns its message.
pub(crate) async fn turns(
    what: &str,
    status: &str,
    reason: &str,
    mut get: impl AsyncFnMut() -> Result<Condition>,
) -> String {
    eventually(&format!("{what} is {status}, {reason}"), async || {
        let found = get().await?;
        ensure!(
            (found.status.as_str(), found.reason.as_str()) == (status, reason),
            "{found:?}"
        );
        Ok(found.message)
    })
    .await
}

impl Drop for Sesame {
    fn drop(&mut self) {
        let envoys = self.envoys();
        // Fails only if it has already exited.
        let _ = lock(&self.child).kill();
        let _ = lock(&self.child).wait();
        let start = Instant::now();
        while envoys.iter().any(|(pid, _)| process::is_running(*pid))
            && start.elapsed() < Duration::from_secs(5)
        {
            thread::sleep(Duration::from_millis(5));
        }
        if thread::panicking() {
            let output = self.output();
            eprintln!("--- the last events");
            for event in output.events.iter().rev().take(20).rev() {
                eprintln!("{event}");
            }
            eprintln!("--- the end of the log");
            for line in output.log.iter().rev().take(40).rev() {
                eprintln!("{line}");
            }
        }
    }
}

fn listen(
    output: &Arc<Mutex<Output>>,
    stream: impl std::io::Read + Send + 'static,
    mut take: impl FnMut(&mut Output, String) + Send + 'static,
) {
    let output = Arc::clone(output);
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            take(&mut lock(&output), line);
        }
    });
}

/// Ignores poisoning: a panic leaves the data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn condition(conditions: &Value, type_: &str) -> Result<Condition> {
    let all = conditions.as_array().context("there are no conditions")?;
    let found = all.iter().find(|entry| entry["type"] == type_);
    let found = found.with_context(|| format!("no condition {type_}: {conditions}"))?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Ok(Condition {
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
    })
}
