//! Probes ports before Envoy binds them: Envoy sets `SO_REUSEPORT`, so it would silently take some connections from
//! another program of the same user that sets it too.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use sesame_model::{Port, Transport};

/// Why a port can't be bound. The message says how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortProblem {
    /// Another program listens on the port.
    #[error("{0} is in use by another program: stop it, or shift all ports with --port-offset N")]
    InUse(SocketAddr),
    /// The machine doesn't have the address.
    #[error("{} is not a local address{}", .0.ip(), how_to_add(.0.ip()))]
    NotLocal(SocketAddr),
    /// The user may not bind the port.
    #[error(
        "port {} needs privileges that this user does not have: shift all ports with --port-offset N, for example \
         --port-offset 8000",
        .0.port()
    )]
    Denied(SocketAddr),
    /// Another error.
    #[error("cannot listen on {address}: {reason}")]
    Other {
        /// The address and port.
        address: SocketAddr,
        /// The operating system's message.
        reason: String,
    },
}

fn how_to_add(address: IpAddr) -> String {
    if cfg!(target_os = "macos") && address.is_loopback() {
        format!(": add it with `sudo ifconfig lo0 alias {address}`")
    } else {
        String::new()
    }
}

/// Binds a port and releases it at once. Port 0 means any free port, so only the address is checked.
///
/// TCP connections in TIME_WAIT don't count as a conflict (`SO_REUSEADDR`).
///
/// # Errors
/// Why the port can't be bound.
pub fn probe(ip: IpAddr, port: Port) -> Result<(), PortProblem> {
    let address = SocketAddr::new(ip, port.number);
    let bound = match port.transport {
        Transport::Tcp => TcpListener::bind(address).map(drop),
        Transport::Udp => UdpSocket::bind(address).map(drop),
    };
    bound.map_err(|error| problem(address, &error))
}

fn problem(address: SocketAddr, error: &io::Error) -> PortProblem {
    match error.kind() {
        ErrorKind::AddrInUse => PortProblem::InUse(address),
        ErrorKind::AddrNotAvailable => PortProblem::NotLocal(address),
        ErrorKind::PermissionDenied => PortProblem::Denied(address),
        _ => PortProblem::Other {
            address,
            reason: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// An address that nothing else uses: on 127.0.0.1, other tests bind and connect from ephemeral ports at any time.
    const UNSHARED: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 87, 0, 2));

    #[test]
    fn a_port_is_in_use_until_its_listener_is_closed() {
        let listener = TcpListener::bind((UNSHARED, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let problem = probe(UNSHARED, Port::tcp(address.port())).unwrap_err();
        assert_eq!(problem, PortProblem::InUse(address));
        assert!(problem.to_string().contains("--port-offset"));
        drop(listener);
        assert_eq!(probe(UNSHARED, Port::tcp(address.port())), Ok(()));
    }

    #[test]
    fn a_udp_port_conflicts_with_udp_sockets_only() {
        let socket = UdpSocket::bind((UNSHARED, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let udp = Port::udp(address.port());
        assert_eq!(probe(UNSHARED, udp), Err(PortProblem::InUse(address)));
        assert_eq!(probe(UNSHARED, Port::tcp(address.port())), Ok(()));
        drop(socket);
        assert_eq!(probe(UNSHARED, udp), Ok(()));
    }

    #[test]
    fn a_foreign_address_is_not_local() {
        // Reserved for documentation (RFC 5737): no machine has it.
        let foreign = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let problem = probe(foreign, Port::tcp(0)).unwrap_err();
        assert_eq!(problem, PortProblem::NotLocal(SocketAddr::new(foreign, 0)));
        assert!(problem.to_string().starts_with("192.0.2.1 is not"));
    }

    #[test]
    fn a_privileged_port_is_denied() {
        let address = SocketAddr::new(UNSHARED, 80);
        let denied = problem(address, &ErrorKind::PermissionDenied.into());
        assert_eq!(denied, PortProblem::Denied(address));
        assert!(denied.to_string().starts_with("port 80 needs privileges"));
    }
}
