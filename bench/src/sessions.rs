//! `sessions`: TCP connections and UDP sessions that stay open while the configuration changes.
//!
//! `sesame local` serves a TCPRoute and a UDPRoute. Each round makes two changes that must not affect them: it adds or
//! removes a route with its own listener, and an endpoint of the same Services. Some connections and sessions are used
//! after each change, and all of them at the end.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sesame_testkit::many::{self, GATEWAY, NAMESPACE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};

use crate::Settings;
use crate::echo::Echo;
use crate::local::{self, ADDRESS, Local};
use crate::machine;
use crate::report::{Figure, Unit};
use crate::rig;

/// The name of the TCP server.
const SERVER: &str = "echo";
const TCP: u16 = 9000;
const UDP: u16 = 5300;
/// The port of the route that is added and removed.
const OTHER: u16 = 9001;
/// Time for a change to take effect.
const REST: Duration = Duration::from_millis(50);
/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of attempts to exchange a datagram, which may be lost.
const ATTEMPTS: u32 = 5;
/// Number of connections and sessions that are used after each change.
const SAMPLE: usize = 100;
/// Open files in this process per TCP connection and UDP session: two for the client, and one for the TCP server.
/// Envoy's process needs as many.
const FILES: u64 = 3;
/// Open files for other purposes.
const SPARE: u64 = 1_000;

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let count = allowed(settings.sessions)?;
    let echo = Echo::start(SERVER)?;
    let spare = Echo::start("spare")?;
    eprintln!("sessions: {count} TCP connections and UDP sessions");
    let ground = ground();
    let endpoints = [endpoints(&[&echo]), endpoints(&[&echo, &spare])];
    let local = Local::start(
        settings,
        [
            ("gateway.yaml".to_owned(), &ground[..]),
            ("endpoints.yaml".to_owned(), &endpoints[0][..]),
        ],
    )?;
    let runtime = rig::runtime("clients")?;
    let (lost, changes) = runtime.block_on(async {
        let mut clients = Clients::open(count).await?;
        let mut changes = 0;
        for round in 0..settings.rounds.div_ceil(2) {
            match round % 2 {
                0 => local.write("other.yaml", &other())?,
                _ => local.remove("other.yaml")?,
            }
            sleep(REST).await;
            clients.use_some(round).await;
            local.write("endpoints.yaml", &endpoints[(round + 1) % 2])?;
            sleep(REST).await;
            clients.use_some(round + 1).await;
            changes += 2;
        }
        let all = 0..count;
        clients.use_these(all).await;
        anyhow::Ok((clients.lost(), changes))
    })?;
    let memory = local.memory_of_envoy()?.now;
    local.end()?;
    let note = format!("over {changes} changes");
    let [tcp, udp] = lost;
    let lost = |what: &str, lost: usize| {
        let name = format!("{count} {what}: lost");
        Figure::new(name, Unit::Count, lost as f64)
            .exactly(0.0)
            .note(note.clone())
    };
    Ok(vec![
        lost("TCP connections", tcp),
        lost("UDP sessions", udp),
        Figure::new("memory of Envoy with all open", Unit::Mebibytes, memory),
    ])
}

/// Raises the limit of open files, which Envoy inherits, to its maximum; returns the number of TCP connections, each
/// with a UDP session, that it allows.
fn allowed(count: usize) -> Result<usize> {
    let hard = machine::raise_file_limit()?;
    let most = usize::try_from(hard.saturating_sub(SPARE) / FILES)?;
    if most < count {
        eprintln!(
            "sessions: the limit of {hard} open files allows {most} sessions instead of {count}"
        );
    }
    Ok(count.min(most))
}

/// The Gateway, the two routes and their Services.
fn ground() -> Vec<Value> {
    let listener = |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "port": port});
    let service = |name: &str, protocol: &str| {
        let mut service = many::service(name);
        service["spec"]["ports"][0]["protocol"] = protocol.into();
        service
    };
    vec![
        local::gateway(&[listener("tcp", "TCP", TCP), listener("udp", "UDP", UDP)]),
        service("tcp", "TCP"),
        service("udp", "UDP"),
        route(
            "TCPRoute",
            "tcp",
            json!({"name": GATEWAY, "sectionName": "tcp"}),
        ),
        route(
            "UDPRoute",
            "udp",
            json!({"name": GATEWAY, "sectionName": "udp"}),
        ),
    ]
}

fn route(kind: &str, service: &str, parent: Value) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": kind,
        "metadata": {"namespace": NAMESPACE, "name": format!("{service}-{parent}", parent = parent["name"].as_str().unwrap_or_default())},
        "spec": {
            "parentRefs": [parent],
            "rules": [{"backendRefs": [{"name": service, "port": many::SERVICE_PORT}]}],
        },
    })
}

/// A ListenerSet with its own listener, and a route for it.
fn other() -> [Value; 2] {
    [
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "ListenerSet",
            "metadata": {"namespace": NAMESPACE, "name": "other"},
            "spec": {
                "parentRef": {"name": GATEWAY},
                "listeners": [{"name": "other", "protocol": "TCP", "port": OTHER}],
            },
        }),
        route(
            "TCPRoute",
            "tcp",
            json!({"kind": "ListenerSet", "name": "other"}),
        ),
    ]
}

fn endpoints(servers: &[&Echo]) -> Vec<Value> {
    let slices = servers.iter().enumerate().flat_map(|(number, server)| {
        [("tcp", "TCP", server.tcp), ("udp", "UDP", server.udp)].map(|(service, protocol, at)| {
            let mut slice = many::slice(service, at);
            slice["metadata"]["name"] = format!("{service}-{number}").into();
            slice["ports"][0]["protocol"] = protocol.into();
            slice
        })
    });
    slices.collect()
}

/// Open connections and sessions; `None` if lost.
struct Clients {
    tcp: Vec<Option<TcpStream>>,
    udp: Vec<Option<Session>>,
}

/// A client's socket, and the address that the server first saw.
struct Session {
    socket: UdpSocket,
    seen: Vec<u8>,
}

impl Clients {
    async fn open(count: usize) -> Result<Self> {
        let mut clients = Self {
            tcp: Vec::new(),
            udp: Vec::new(),
        };
        for _ in 0..count {
            let mut stream = TcpStream::connect(SocketAddr::new(ADDRESS, TCP)).await?;
            stream.set_nodelay(true)?;
            let mut name = [0; SERVER.len()];
            timeout(PATIENCE, stream.read_exact(&mut name)).await??;
            clients.tcp.push(Some(stream));

            let socket = UdpSocket::bind(SocketAddr::new(ADDRESS, 0)).await?;
            socket.connect(SocketAddr::new(ADDRESS, UDP)).await?;
            let seen = answer(&socket).await.context("no answer over UDP")?;
            clients.udp.push(Some(Session { socket, seen }));
        }
        Ok(clients)
    }

    /// Uses some connections and sessions, different ones in each round.
    async fn use_some(&mut self, round: usize) {
        let count = self.tcp.len();
        let step = count.div_ceil(SAMPLE);
        self.use_these((round % step..count).step_by(step)).await;
    }

    async fn use_these(&mut self, indexes: impl Iterator<Item = usize>) {
        for index in indexes {
            if let Some(stream) = &mut self.tcp[index]
                && let Err(error) = echoes(stream).await
            {
                eprintln!("TCP connection {index}: {error:#}");
                self.tcp[index] = None;
            }
            if let Some(Session { socket, seen }) = &self.udp[index]
                && answer(socket).await.as_ref() != Some(seen)
            {
                eprintln!("UDP session {index} was replaced");
                self.udp[index] = None;
            }
        }
    }

    /// The number of lost connections, and of lost sessions.
    fn lost(&self) -> [usize; 2] {
        [
            self.tcp.iter().filter(|client| client.is_none()).count(),
            self.udp.iter().filter(|client| client.is_none()).count(),
        ]
    }
}

async fn echoes(stream: &mut TcpStream) -> Result<()> {
    let mut byte = [0];
    stream.write_all(b"x").await?;
    timeout(PATIENCE, stream.read_exact(&mut byte)).await??;
    match byte {
        [b'x'] => Ok(()),
        _ => bail!("not an echo"),
    }
}

/// Sends datagrams until one is answered, and returns the answer; `None` after [`ATTEMPTS`] attempts.
async fn answer(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut buffer = [0; 64];
    for _ in 0..ATTEMPTS {
        socket.send(b"x").await.ok()?;
        if let Ok(length) = timeout(PATIENCE / ATTEMPTS, socket.recv(&mut buffer)).await {
            return Some(buffer[..length.ok()?].to_vec());
        }
    }
    None
}
