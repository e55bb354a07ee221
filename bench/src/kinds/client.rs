//! A client for each kind of route.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use sesame_testkit::client::{Connect, Connection, Request, client_hello};
use sesame_testkit::many;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::{BACKEND, Kind, PACE, PATIENCE, site};
use crate::objects;

/// A client. HTTP requests and gRPC calls share one connection; every other request has its own.
pub(super) struct Client {
    kind: Kind,
    kept: Option<Connection>,
    runtime: Runtime,
}

impl Client {
    pub(super) fn new(kind: Kind) -> Result<Self> {
        Ok(Self {
            kind,
            kept: None,
            runtime: Builder::new_current_thread().enable_all().build()?,
        })
    }

    /// Waits until the route `index` serves, or no longer serves.
    pub(super) fn until(&mut self, index: usize, serves: bool) -> Result<()> {
        let since = Instant::now();
        let wanted = serves.then_some(BACKEND);
        loop {
            let found = self.ask(index);
            if matches!(&found, Ok(found) if found.as_deref() == wanted) {
                return Ok(());
            }
            ensure!(
                since.elapsed() < PATIENCE,
                "{} {index}: expected {wanted:?}, got {found:?}",
                self.kind.name()
            );
            thread::sleep(PACE);
        }
    }

    /// Sends a request to the route `index`. Returns the name of the backend; `None` if Envoy doesn't have the route.
    pub(super) fn ask(&mut self, index: usize) -> Result<Option<String>> {
        let address = site::address(self.kind, index);
        let path = format!("/{}/Get", site::CALLED);
        match self.kind {
            Kind::Child => {
                let path = format!("{}{path}", objects::prefix(index));
                self.send(address, &Request::get(objects::ROOT_HOST, &path))
            }
            Kind::Http | Kind::Proxy | Kind::Ingress => {
                self.send(address, &Request::get(&many::host(index), &path))
            }
            Kind::Grpc => {
                let call = Request::get(&many::host(index), &path).method("POST");
                self.send(address, &call.header("content-type", "application/grpc"))
            }
            Kind::Tls => {
                let hello = client_hello(&many::host(index))?;
                self.runtime.block_on(greeting(address, &hello))
            }
            Kind::Tcp => self.runtime.block_on(greeting(address, &[])),
        }
    }

    fn send(&mut self, address: SocketAddr, request: &Request) -> Result<Option<String>> {
        let response = self.runtime.block_on(async {
            let mut connection = match self.kept.take() {
                Some(connection) => connection,
                None if self.kind == Kind::Grpc => Connect::plain().h2().open(address).await?,
                None => Connect::plain().open(address).await?,
            };
            let response = connection.send(request).await?;
            self.kept = Some(connection);
            anyhow::Ok(response)
        })?;
        let served = response.status == 200 && !response.headers.contains_key("grpc-status");
        Ok(served.then(|| response.backend()))
    }
}

/// What a server writes to a new connection; `None` if it is closed.
async fn greeting(address: SocketAddr, hello: &[u8]) -> Result<Option<String>> {
    let mut stream = TcpStream::connect(address).await?;
    let mut buffer = [0; BACKEND.len()];
    let mut converse = async || -> std::io::Result<usize> {
        stream.write_all(hello).await?;
        stream.read(&mut buffer).await
    };
    match timeout(PATIENCE, converse()).await? {
        Ok(0) => Ok(None),
        Ok(length) => Ok(Some(
            String::from_utf8_lossy(&buffer[..length]).into_owned(),
        )),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(error.into()),
    }
}
