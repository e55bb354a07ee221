//! An HTTP client with full control over address, server name, Host, version and headers.

mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::HandshakeKind;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use self::tls::TlsClient;
pub use self::tls::client_hello;
use crate::certs::Identity;

/// The timeout for a request.
const PATIENCE: Duration = Duration::from_secs(20);

/// The maximum response body, in bytes.
const MAX_BODY: usize = 16 << 20;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    host: String,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Request {
    /// `GET path` with this Host header, which includes any port.
    pub fn get(host: &str, path: &str) -> Self {
        Self {
            method: Method::GET,
            host: host.to_owned(),
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    /// Sets the method.
    ///
    /// # Panics
    /// If the method is invalid, which is a bug in the test.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.method = method.parse().expect("a method");
        self
    }

    /// Adds a header.
    ///
    /// # Panics
    /// If the name or value is invalid, which is a bug in the test.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().expect("a header name");
        let value: HeaderValue = value.parse().expect("a header value");
        self.headers.append(name, value);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Response {
    /// The first value of a header, or an empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// The body as JSON, or null if it isn't JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The name of the [`crate::backend::Backend`] that responded; empty if none did.
    pub fn backend(&self) -> String {
        self.json()["backend"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// Connection settings.
#[derive(Clone, Debug, Default)]
pub struct Connect {
    tls: Option<String>,
    h2: bool,
    only_tls12: bool,
    identity: Option<Identity>,
    /// Created for each connection if absent.
    client: Option<TlsClient>,
}

impl Connect {
    /// Plain HTTP/1.1.
    pub fn plain() -> Self {
        Self::default()
    }

    /// TLS with this server name (SNI; none if empty). Certificates are not verified; see [`Connection::certificate`].
    pub fn tls(server_name: &str) -> Self {
        Self {
            tls: Some(server_name.to_owned()),
            ..Self::default()
        }
    }

    /// Presents this certificate if the server asks for one.
    #[must_use]
    pub fn presenting(self, identity: &Identity) -> Self {
        Self {
            identity: Some(identity.clone()),
            ..self
        }
    }

    /// Offers no newer TLS version than 1.2.
    #[must_use]
    pub fn only_tls12(self) -> Self {
        Self {
            only_tls12: true,
            ..self
        }
    }

    /// Resumes TLS sessions from earlier connections. Later settings have no effect.
    ///
    /// # Errors
    /// If the certificate to present is invalid.
    pub fn resuming(self) -> Result<Self> {
        let client = self.new_client()?;
        Ok(Self {
            client: Some(client),
            ..self
        })
    }

    fn new_client(&self) -> Result<TlsClient> {
        let alpn = if self.h2 { "h2" } else { "http/1.1" };
        let with_sni = self.tls.as_deref() != Some("");
        TlsClient::new(self.identity.as_ref(), alpn, with_sni, self.only_tls12)
    }

    /// Uses HTTP/2: negotiated by ALPN with TLS, otherwise with prior knowledge.
    #[must_use]
    pub fn h2(self) -> Self {
        Self { h2: true, ..self }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// If the connection or the handshake fails.
    pub async fn open(&self, address: SocketAddr) -> Result<Connection> {
        timeout(PATIENCE, self.try_open(address))
            .await
            .context("connecting took too long")?
    }

    async fn try_open(&self, address: SocketAddr) -> Result<Connection> {
        let tcp = TcpStream::connect(address)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        tcp.set_nodelay(true)?;
        let Some(server_name) = &self.tls else {
            return Connection::over(tcp, self.h2, None).await;
        };
        let name = match server_name.as_str() {
            "" => ServerName::from(address.ip()),
            name => ServerName::try_from(name.to_owned())?,
        };
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.new_client()?,
        };
        let tls = TlsConnector::from(Arc::clone(&client.config))
            .connect(name, tcp)
            .await?;
        let session = tls.get_ref().1;
        let certificate = session.peer_certificates().and_then(|chain| chain.first());
        let handshake = Handshake {
            certificate: certificate.map(|certificate| certificate.as_ref().to_vec()),
            asked: client.take_asked(),
            resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        };
        Connection::over(tls, self.h2, Some(handshake)).await
    }

    /// Sends a request on a new connection.
    ///
    /// # Errors
    /// If there is no response.
    pub async fn send(&self, address: SocketAddr, request: &Request) -> Result<Response> {
        self.open(address).await?.send(request).await
    }
}

/// Sends a plain HTTP/1.1 request on a new connection.
///
/// # Errors
/// If there is no response.
pub async fn send(address: SocketAddr, request: &Request) -> Result<Response> {
    Connect::plain().send(address, request).await
}

/// A persistent connection.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    handshake: Option<Handshake>,
}

/// A TLS handshake as seen by the client.
#[derive(Debug)]
struct Handshake {
    certificate: Option<Vec<u8>>,
    asked: bool,
    resumed: bool,
}

#[derive(Debug)]
enum Sender {
    H1(http1::SendRequest<Full<Bytes>>),
    H2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    async fn over(
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        h2: bool,
        handshake: Option<Handshake>,
    ) -> Result<Self> {
        let io = TokioIo::new(io);
        let sender = if h2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            tokio::spawn(connection);
            Sender::H2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await?;
            tokio::spawn(connection);
            Sender::H1(sender)
        };
        Ok(Self { sender, handshake })
    }

    /// The server's certificate (DER); `None` without TLS.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.handshake.as_ref()?.certificate.as_deref()
    }

    /// Whether the server asked for a client certificate.
    pub fn asked(&self) -> bool {
        let handshake = self.handshake.as_ref();
        handshake.is_some_and(|handshake| handshake.asked)
    }

    /// Whether an earlier TLS session was resumed.
    pub fn resumed(&self) -> bool {
        let handshake = self.handshake.as_ref();
        handshake.is_some_and(|handshake| handshake.resumed)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the connection fails, or the response times out or is too long.
    pub async fn send(&mut self, request: &Request) -> Result<Response> {
        timeout(PATIENCE, self.try_send(request))
            .await
            .context("the response took too long")?
    }

    async fn try_send(&mut self, request: &Request) -> Result<Response> {
        let head = http::Request::builder().method(request.method.clone());
        let head = match self.sender {
            Sender::H1(_) => head
                .uri(&request.path)
                .header(http::header::HOST, &request.host),
            Sender::H2(_) => {
                let scheme = match self.handshake {
                    Some(_) => "https",
                    None => "http",
                };
                head.uri(format!("{scheme}://{}{}", request.host, request.path))
                    .version(Version::HTTP_2)
            }
        };
        let mut message = head.body(Full::new(request.body.clone()))?;
        message.headers_mut().extend(request.headers.clone());
        let response = match &mut self.sender {
            Sender::H1(sender) => {
                sender.ready().await?;
                sender.send_request(message).await?
            }
            Sender::H2(sender) => {
                sender.ready().await?;
                sender.send_request(message).await?
            }
        };
        let (head, body) = response.into_parts();
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => bail!("the body is incomplete: {error}"),
        };
        Ok(Response {
            status: head.status,
            headers: head.headers,
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::certs::Identity;

    #[tokio::test]
    async fn requests_work_with_each_kind_of_connection() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let plain = Backend::start("plain", any).await.expect("a backend");
        let identity = Identity::self_signed(&["a.example.com"]).expect("a certificate");
        let tls = Backend::start_tls("tls", any, identity.server_config().expect("a config"))
            .await
            .expect("a backend");
        for (connect, address, backend) in [
            (Connect::plain(), plain.address(), "plain"),
            (Connect::plain().h2(), plain.address(), "plain"),
            (Connect::tls("a.example.com"), tls.address(), "tls"),
            (Connect::tls("a.example.com").h2(), tls.address(), "tls"),
            (Connect::tls(""), tls.address(), "tls"),
        ] {
            let request = Request::get("b.example.com:8080", "/path?query").header("x-test", "1");
            let response = connect.send(address, &request).await.expect("a response");
            assert_eq!(
                (response.status, response.backend()),
                (StatusCode::OK, backend.to_owned()),
                "{connect:?}"
            );
            assert_eq!(response.json()["host"], "b.example.com:8080", "{connect:?}");
            assert_eq!(response.json()["path"], "/path?query", "{connect:?}");
        }
    }
}
