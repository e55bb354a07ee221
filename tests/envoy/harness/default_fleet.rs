//! A Sesame process whose default fleet uses its own ports.

use std::net::{IpAddr, SocketAddr, TcpListener};

use anyhow::Context;
use sesame_testkit::client::{Connect, Request, Response};

use super::{Folder, Names, Sesame, eventually, listening, new_ip};

/// Sesame and its default fleet.
pub(crate) struct DefaultFleet {
    pub(crate) sesame: Sesame,
    /// The address for requests without TLS.
    pub(crate) http: SocketAddr,
    /// The address for requests with TLS.
    pub(crate) https: SocketAddr,
}

impl DefaultFleet {
    /// Starts Sesame with these objects and waits until the object of this kind named `web` has an address.
    pub(crate) async fn serving(kind: &str, objects: &str) -> Self {
        Self::start(kind, objects, &[]).await
    }

    /// [`serving`](Self::serving) with an Envoy that resolves these names.
    pub(crate) async fn resolving(names: &Names, kind: &str, objects: &str) -> Self {
        Self::start(kind, objects, &["--envoy", &names.envoy()]).await
    }

    /// Sends a request without TLS.
    pub(crate) async fn send(&self, request: &Request) -> Response {
        let response = Connect::plain().send(self.http, request).await;
        response.expect("a response")
    }

    /// [`serving`](Self::serving) with additional arguments for `sesame local`.
    pub(crate) async fn start(kind: &str, objects: &str, arguments: &[&str]) -> Self {
        let offset = free_offset();
        let folder = Folder::new(&[("all.yaml", objects.to_owned())]);
        let offset_argument = offset.to_string();
        let arguments = [arguments, &["--port-offset", &offset_argument]].concat();
        let sesame = Sesame::start(new_ip(), folder, &arguments).await;
        let ip: IpAddr = eventually("the object has an address", async || {
            let status = sesame.status(kind, "web").await?;
            let ip = status["loadBalancer"]["ingress"][0]["ip"].as_str();
            Ok(ip.with_context(|| status.to_string())?.parse()?)
        })
        .await;
        let at = |port: u16| SocketAddr::new(ip, port + offset);
        let (http, https) = (at(80), at(443));
        listening(http).await;
        Self {
            sesame,
            http,
            https,
        }
    }
}

/// A port offset for which the HTTP and HTTPS ports are free.
fn free_offset() -> u16 {
    loop {
        let any = TcpListener::bind((IpAddr::from([127, 0, 0, 1]), 0)).expect("a free port");
        let port = any.local_addr().expect("an address").port();
        let other = port.checked_add(443 - 80);
        let free = |port| TcpListener::bind((IpAddr::from([127, 0, 0, 1]), port)).is_ok();
        if port > 80 && other.is_some_and(free) {
            return port - 80;
        }
    }
}
