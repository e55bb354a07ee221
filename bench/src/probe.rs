//! A minimal HTTP/1.1 client with one keep-alive connection, for precise timing.
//!
//! In: an address and hosts. Out: responses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Time limit for a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Size limit for a response.
const LONGEST: usize = 1 << 20;

/// A client.
#[derive(Debug)]
pub(crate) struct Probe {
    address: SocketAddr,
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    body: String,
}

impl Response {
    /// The value of a header. The name must be in lower case, as Envoy writes it.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == name).then(|| value.trim())
        })
    }

    pub(crate) fn body(&self) -> &str {
        &self.body
    }

    /// The name of the backend that responded.
    pub(crate) fn backend(&self) -> Option<String> {
        let value: serde_json::Value = serde_json::from_str(&self.body).ok()?;
        Some(value.get("backend")?.as_str()?.to_owned())
    }
}

impl Probe {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            address,
            stream: open(address)?,
            buffer: Vec::new(),
        })
    }

    /// Requests `/` on a host. Reconnects after an error and after `connection: close`.
    pub(crate) fn send(&mut self, host: &str) -> Result<Response> {
        self.get_path(host, "/")
    }

    /// Requests a path on a host.
    pub(crate) fn get_path(&mut self, host: &str, path: &str) -> Result<Response> {
        let response = self.try_send(host, path);
        let closes = |response: &Response| response.header("connection") == Some("close");
        if response.as_ref().map_or(true, closes) {
            self.stream = open(self.address)?;
        }
        response
    }

    fn try_send(&mut self, host: &str, path: &str) -> Result<Response> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        self.buffer.clear();
        let head = loop {
            let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            match end {
                Some(end) => break end + 4,
                None => self.read()?,
            }
        };
        let text = String::from_utf8_lossy(&self.buffer[..head]).into_owned();
        let status = text
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .context("no status in the response")?;
        let mut response = Response {
            status,
            head: text,
            body: String::new(),
        };
        let length: usize = response
            .header("content-length")
            .context("no content-length in the response")?
            .parse()?;
        while self.buffer.len() < head + length {
            self.read()?;
        }
        response.body = String::from_utf8_lossy(&self.buffer[head..]).into_owned();
        Ok(response)
    }

    fn read(&mut self) -> Result<()> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk)? {
            0 => bail!("the connection was closed"),
            read => self.buffer.extend_from_slice(&chunk[..read]),
        }
        if self.buffer.len() > LONGEST {
            bail!("the response is too long");
        }
        Ok(())
    }
}

fn open(address: SocketAddr) -> Result<TcpStream> {
    let stream =
        TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}
