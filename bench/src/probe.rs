//! A client that notices a change at once: HTTP/1.1 over one connection that stays open, and as little else as possible.
//!
//! In: an address and hosts. Out: answers. It must not know what should be answered.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// An answer that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// More than any answer here has.
const LONGEST: usize = 1 << 20;

/// A connection.
#[derive(Debug)]
pub(crate) struct Probe {
    address: SocketAddr,
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    body: String,
}

impl Answer {
    /// The value of a header, by its name in lower case (as Envoy writes it).
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == name).then(|| value.trim())
        })
    }

    pub(crate) fn body(&self) -> &str {
        &self.body
    }

    /// The backend that answered, as it calls itself.
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

    /// Asks for `/` of a host. After an error, and where Envoy says that it will close, the next request has a new
    /// connection.
    pub(crate) fn ask(&mut self, host: &str) -> Result<Answer> {
        self.ask_for(host, "/")
    }

    /// The same for another path.
    pub(crate) fn ask_for(&mut self, host: &str, path: &str) -> Result<Answer> {
        let answer = self.try_ask(host, path);
        let over = |answer: &Answer| answer.header("connection") == Some("close");
        if answer.as_ref().map_or(true, over) {
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
            .context("an answer without a status")?;
        let mut answer = Answer {
            status,
            head: text,
            body: String::new(),
        };
        let length: usize = answer
            .header("content-length")
            .context("an answer without a length")?
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
            bail!("an answer without end");
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
