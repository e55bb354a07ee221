//! The requests that a backend has received.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::Version;
use http::request::Parts;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The maximum number of recorded requests.
const MAX_RECORDED: usize = 1000;

/// A request as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Such as `GET`.
    pub method: String,
    /// With its query, unchanged.
    pub path: String,
    /// From `Host` or `:authority`; empty if neither is present.
    pub host: String,
    /// Values in order, by lower-case name. Invalid UTF-8 is replaced.
    pub headers: BTreeMap<String, Vec<String>>,
    /// `HTTP/1.1` or `HTTP/2`.
    pub protocol: &'static str,
    /// The parameters of a TLS connection.
    pub tls: Option<Tls>,
    /// The first 64 KiB. Invalid UTF-8 is replaced.
    pub body: String,
    /// The body's length in bytes.
    pub body_length: u64,
}

/// The parameters of a TLS connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The server name (SNI).
    pub sni: Option<String>,
    /// The negotiated protocol.
    pub alpn: Option<String>,
    /// The client's certificate, as base64-encoded DER.
    pub client: Option<String>,
}

impl Received {
    pub(super) fn new(head: &Parts, tls: Option<&Tls>, body: &[u8], body_length: u64) -> Self {
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in &head.headers {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            headers
                .entry(name.as_str().to_owned())
                .or_default()
                .push(value);
        }
        let authority = head.uri.authority().map(|authority| authority.to_string());
        let host = authority.or_else(|| headers.get("host")?.first().cloned());
        let path = head.uri.path_and_query();
        Self {
            method: head.method.to_string(),
            path: path.map_or("", |path| path.as_str()).to_owned(),
            host: host.unwrap_or_default(),
            headers,
            protocol: match head.version {
                Version::HTTP_2 => "HTTP/2",
                Version::HTTP_10 => "HTTP/1.0",
                _ => "HTTP/1.1",
            },
            tls: tls.cloned(),
            body: String::from_utf8_lossy(body).into_owned(),
            body_length,
        }
    }

    /// The first value of a header, given its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.first().map(String::as_str)
    }

    /// The response from the backend `name`.
    pub(super) fn to_json(&self, name: &str) -> Value {
        let mut json = json!({
            "backend": name,
            "method": self.method,
            "path": self.path,
            "host": self.host,
            "headers": self.headers,
            "protocol": self.protocol,
        });
        if let Some(tls) = &self.tls {
            json["tls"] = json!({ "sni": tls.sni, "alpn": tls.alpn, "client": tls.client });
        }
        if self.body_length > 0 {
            json["body"] = json!(self.body);
            json["body_length"] = json!(self.body_length);
        }
        json
    }
}

/// The latest requests, and a notification of new ones.
#[derive(Debug, Default)]
pub(super) struct Records {
    latest: Mutex<VecDeque<Received>>,
    /// The number of requests so far.
    count: watch::Sender<u64>,
}

impl Records {
    pub(super) fn push(&self, received: Received) {
        {
            let mut latest = self.lock();
            if latest.len() == MAX_RECORDED {
                latest.pop_front();
            }
            latest.push_back(received);
        }
        self.count.send_modify(|count| *count += 1);
    }

    pub(super) fn latest(&self) -> Vec<Received> {
        self.lock().iter().cloned().collect()
    }

    pub(super) fn count(&self) -> u64 {
        *self.count.borrow()
    }

    pub(super) async fn wait_for(&self, enough: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let mut count = self.count.subscribe();
        loop {
            count.mark_unchanged();
            let latest = self.latest();
            if enough(&latest) {
                return latest;
            }
            // Can't fail: `self` holds the sender.
            let _ = count.changed().await;
        }
    }

    /// Ignores poisoning: a panic leaves the queue consistent.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Received>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
