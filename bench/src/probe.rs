//! A minimal HTTP/1.1 client with one keep-alive connection, for precise timing.
//!
//! In: an address and hosts. Out: answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Time limit of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Size limit of an answer.
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
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    body: String,
}

impl Answer {
    /// The value of a header; the name is in lower case, as Envoy writes it.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == name).then(|| value.trim())
        })
    }

    pub(crate) fn body(&self) -> &str {
        &self.body
    }

    /// The name of the backend that answered.
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

    /// Requests `/` of a host. Reconnects after an error and after `connection: close`.
    pub(crate) fn ask(&mut self, host: &str) -> Result<Answer> {
        self.ask_for(host, "/")
    }

    /// Requests a path of a host.
    pub(crate) fn ask_for(&mut self, host: &str, path: &str) -> Result<Answer> {
        let answer = self.try_ask(host, path);
        let closes = |answer: &Answer| answer.header("connection") == Some("close");
        if answer.as_ref().map_or(true, closes) {
            self.stream = open(self.address)?;
        }
        answer
    }

    fn try_ask(&mut self, host: &str, path: &str) -> Result<Answer> {
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
            .context("no status in the answer")?;
        let mut answer = Answer {
            status,
            head: text,
            body: String::new(),
        };
        let length: usize = answer
            .header("content-length")
            .context("no content-length in the answer")?
            .parse()?;
        while self.buffer.len() < head + length {
            self.read()?;
        }
        answer.body = String::from_utf8_lossy(&self.buffer[head..]).into_owned();
        Ok(answer)
    }

    fn read(&mut self) -> Result<()> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk)? {
            0 => bail!("the connection was closed"),
            read => self.buffer.extend_from_slice(&chunk[..read]),
        }
        if self.buffer.len() > LONGEST {
            bail!("the answer is too long");
        }
        Ok(())
    }
}

fn open(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}
