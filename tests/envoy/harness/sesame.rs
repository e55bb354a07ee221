//! `sesame local` as a child process.
//!
//! In: a folder. Out: statuses and events, as anybody can read them. Whatever becomes of the test, the process and its
//! Envoys end with it.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use sesame_testkit::client::{Answer, Ask, Connect, Connection, ask};

use super::{
    Folder, HTTP, binary, children, eventually, gateway, listening, new_ip, process, route,
};

/// The port of Sesame's own pages.
const ADMIN: u16 = 9900;

/// Running until it is dropped.
pub(crate) struct Sesame {
    child: Mutex<Child>,
    pid: u32,
    folder: Folder,
    admin: SocketAddr,
    /// The address that its Gateways are to have, unless the test gives them others.
    pub(crate) ip: IpAddr,
    said: Arc<Mutex<Said>>,
}

/// What it said so far.
#[derive(Default)]
struct Said {
    events: Vec<Value>,
    /// Lines on standard output that are no events.
    nonsense: Vec<String>,
    log: Vec<String>,
}

/// Status and reason of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    /// One word.
    pub(crate) reason: String,
    /// For people.
    pub(crate) message: String,
}

impl Sesame {
    /// Starts it on files that are made for an address, and waits until it answers and every Gateway is programmed.
    pub(crate) async fn serving(files: impl FnOnce(IpAddr) -> Vec<(&'static str, String)>) -> Self {
        let ip = new_ip();
        let sesame = Self::start(ip, Folder::new(&files(ip)), &[]).await;
        sesame.programmed().await;
        sesame
    }

    /// Starts it on the Gateway `web` with these listeners, and on these objects; all of it in the file `all.yaml`.
    pub(crate) async fn with_gateway(listeners: &[impl AsRef<str>], objects: &str) -> Self {
        Self::serving(|ip| vec![("all.yaml", gateway("web", ip, listeners) + objects)]).await
    }

    /// Starts it on a plain Gateway, these objects, and the HTTPRoute `a` with these rules for a.example.com, and waits until
    /// the Gateway listens.
    pub(crate) async fn with_rules(objects: &str, rules: &[impl AsRef<str>]) -> Self {
        let route = route("a", &["web"], &["a.example.com"], rules);
        let sesame = Self::with_gateway(&[HTTP], &(objects.to_owned() + &route)).await;
        listening(sesame.at(8080)).await;
        sesame
    }

    /// Starts it with more arguments, and waits until it answers.
    pub(crate) async fn start(ip: IpAddr, folder: Folder, arguments: &[&str]) -> Self {
        let path = folder.path();
        let path = path.to_str().expect("a readable path");
        let arguments = [&[path], arguments].concat();
        let sesame = Self::spawn(ip, folder, &arguments, "");
        sesame.answering().await;
        sesame
    }

    /// Starts it with exactly these arguments behind `local`, and this on its standard input.
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
            // Where it puts sockets and the like, to see whether it cleans up.
            .env("TMPDIR", folder.scratch())
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Sesame can be started");
        let mut input = child.stdin.take().expect("standard input is piped");
        // If it ends before it has read all, the test will see that.
        let _ = input.write_all(stdin.as_bytes());
        drop(input);
        let said = Arc::new(Mutex::new(Said::default()));
        let output = child.stdout.take().expect("standard output is piped");
        listen(&said, output, |said, line| {
            match serde_json::from_str(&line) {
                Ok(event) => said.events.push(event),
                Err(_) => said.nonsense.push(line),
            }
        });
        let log = child.stderr.take().expect("standard error is piped");
        listen(&said, log, |said, line| said.log.push(line));
        Self {
            pid: child.id(),
            child: Mutex::new(child),
            folder,
            admin,
            ip,
            said,
        }
    }

    /// Its id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Its objects.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// A port of its address.
    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    /// A plain connection to the Gateway on port 8080.
    pub(crate) async fn open(&self) -> Connection {
        let opened = Connect::plain().open(self.at(8080)).await;
        opened.expect("the gateway listens")
    }

    /// What the Gateway on port 8080 answers to a plain request.
    pub(crate) async fn ask(&self, ask: &Ask) -> Answer {
        let answer = Connect::plain().ask(self.at(8080), ask).await;
        answer.expect("an answer")
    }

    /// The same where that must be a 200.
    pub(crate) async fn ask_well(&self, ask: &Ask) -> Answer {
        let answer = self.ask(ask).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    }

    /// Waits until its own pages are there.
    pub(crate) async fn answering(&self) {
        eventually("Sesame answers", async || {
            if let Some(status) = lock(&self.child).try_wait()? {
                panic!("Sesame has ended: {status}");
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
                    gateway["name"]
                );
            }
            Ok(())
        })
        .await;
    }

    /// One of its pages as JSON.
    pub(crate) async fn page(&self, path: &str) -> Result<Value> {
        let answer = ask(self.admin, &Ask::get("admin", path)).await?;
        ensure!(answer.status == 200, "{path} answers {}", answer.status);
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// The status of an object in namespace `default`.
    pub(crate) async fn status(&self, kind: &str, name: &str) -> Result<Value> {
        let statuses = self.page("/status").await?;
        let found = statuses
            .as_array()
            .context("/status is a list")?
            .iter()
            .find(|entry| entry["kind"] == kind && entry["name"] == name);
        let found = found.with_context(|| format!("there is no {kind} {name}: {statuses}"))?;
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

    /// A condition of an HTTPRoute at its first parent.
    pub(crate) async fn of_route(&self, name: &str, type_: &str) -> Result<Condition> {
        let status = self.status("HTTPRoute", name).await?;
        condition(&status["parents"][0]["conditions"], type_)
    }

    /// Asserts status and reason of a condition of an HTTPRoute at its first parent.
    pub(crate) async fn assert_route(&self, name: &str, type_: &str, expected: (&str, &str)) {
        let found = self.of_route(name, type_).await.expect("a condition");
        let said = (found.status.as_str(), found.reason.as_str());
        assert_eq!(said, expected, "{found:?}");
    }

    /// Waits for an event that `wanted` likes among those behind the first `from`.
    pub(crate) async fn event(
        &self,
        what: &str,
        from: usize,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(what, async || {
            let said = self.said();
            let events = said.events.get(from..).unwrap_or_default();
            events
                .iter()
                .find(|event| wanted(event))
                .cloned()
                .with_context(|| format!("not among these events: {events:?}"))
        })
        .await
    }

    /// How many events there were so far.
    pub(crate) fn events(&self) -> usize {
        self.said().events.len()
    }

    /// What it wrote to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.said().log.join("\n")
    }

    /// Its Envoys: their ids and command lines.
    pub(crate) fn envoys(&self) -> Vec<(u32, String)> {
        let name = binary::envoy().to_string_lossy();
        let mut found = children(self.pid());
        found.retain(|(_, line)| line.starts_with(&*name));
        found
    }

    /// Waits for its end, after a signal if one is given.
    pub(crate) async fn end(&self, signal: Option<Signal>) -> ExitStatus {
        if let Some(signal) = signal {
            process::send(self.pid(), signal);
        }
        eventually("Sesame ends", async || {
            match lock(&self.child).try_wait()? {
                Some(status) => Ok(status),
                None => bail!("it is still there"),
            }
        })
        .await
    }

    /// Lines on standard output that were no events.
    pub(crate) fn nonsense(&self) -> Vec<String> {
        self.said().nonsense.clone()
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        lock(&self.said)
    }
}

impl Drop for Sesame {
    fn drop(&mut self) {
        let envoys = self.envoys();
        // Fails only if it has ended, and that is what is wanted.
        let _ = lock(&self.child).kill();
        let _ = lock(&self.child).wait();
        let start = Instant::now();
        while envoys.iter().any(|(pid, _)| process::is_running(*pid))
            && start.elapsed() < Duration::from_secs(5)
        {
            thread::sleep(Duration::from_millis(5));
        }
        if thread::panicking() {
            let said = self.said();
            eprintln!("--- the last events");
            for event in said.events.iter().rev().take(20).rev() {
                eprintln!("{event}");
            }
            eprintln!("--- the end of the log");
            for line in said.log.iter().rev().take(40).rev() {
                eprintln!("{line}");
            }
        }
    }
}

fn listen(
    said: &Arc<Mutex<Said>>,
    stream: impl std::io::Read + Send + 'static,
    mut take: impl FnMut(&mut Said, String) + Send + 'static,
) {
    let said = Arc::clone(said);
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            take(&mut lock(&said), line);
        }
    });
}

/// A panic under a lock leaves what is behind it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn condition(conditions: &Value, type_: &str) -> Result<Condition> {
    let all = conditions.as_array().context("there are no conditions")?;
    let found = all.iter().find(|entry| entry["type"] == type_);
    let found = found.with_context(|| format!("there is no condition {type_}: {conditions}"))?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Ok(Condition {
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
    })
}
