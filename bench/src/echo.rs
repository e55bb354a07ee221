//! TCP and UDP servers that act as backends.
//!
//! The TCP server writes its name to a new connection, then echoes. The UDP server responds with the client's address,
//! which identifies a session of the proxy in between.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::Runtime;

use crate::local::ADDRESS;
use crate::rig;

/// A TCP and a UDP server, which run until dropped.
pub(crate) struct Echo {
    pub(crate) tcp: SocketAddr,
    pub(crate) udp: SocketAddr,
    _runtime: Runtime,
}

impl Echo {
    pub(crate) fn start(name: &'static str) -> Result<Self> {
        let runtime = rig::runtime(name)?;
        let any_port = SocketAddr::new(ADDRESS, 0);
        let listener = runtime.block_on(TcpListener::bind(any_port))?;
        let socket = runtime.block_on(UdpSocket::bind(any_port))?;
        let echo = Self {
            tcp: listener.local_addr()?,
            udp: socket.local_addr()?,
            _runtime: runtime,
        };
        echo._runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_connection(stream, name));
            }
        });
        echo._runtime.spawn(async move {
            let mut buffer = [0; 64];
            while let Ok((_, client)) = socket.recv_from(&mut buffer).await {
                // The client resends lost datagrams.
                let _ = socket.send_to(client.to_string().as_bytes(), client).await;
            }
        });
        Ok(echo)
    }
}

async fn serve_connection(mut stream: TcpStream, name: &str) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.write_all(name.as_bytes()).await?;
    let (mut reader, mut writer) = stream.split();
    tokio::io::copy(&mut reader, &mut writer).await?;
    Ok(())
}
