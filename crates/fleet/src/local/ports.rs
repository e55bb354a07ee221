//! Whether a port can be listened on, asked before Envoy is: Envoy shares ports with others of the same user
//! (`SO_REUSEPORT`), and would take half of somebody's connections without a word.
//!
//! In: an address and a port. Out: nothing, or what is in the way and what to do about it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Why a port can't be listened on. The messages are for people and say what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortProblem {
    /// Another program listens there.
    #[error("{0} is in use by another program: stop it, or move all ports with --port-offset N")]
    InUse(SocketAddr),
    /// The machine doesn't have the address.
    #[error("{} is not an address of this machine{}", .0.ip(), how_to_add(.0.ip()))]
    NotLocal(SocketAddr),
    /// The port is for privileged users.
    #[error(
        "port {} needs privileges that this user hasn't: move all ports with --port-offset N, for example \
         --port-offset 8000",
        .0.port()
    )]
    Denied(SocketAddr),
    /// Something else.
    #[error("{address} can't be listened on: {reason}")]
    Other {
        /// What was tried.
        address: SocketAddr,
        /// As the operating system says it.
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

/// Listens on a TCP port for a moment. Port 0 is any free port, and always well.
///
/// Connections of an ended program that still wait for their last packets are no problem (`SO_REUSEADDR`).
///
/// # Errors
/// What is in the way.
pub fn probe(ip: IpAddr, port: u16) -> Result<(), PortProblem> {
    let address = SocketAddr::new(ip, port);
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) => Err(problem(address, &error)),
    }
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

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_port_is_free_after_its_listener_and_not_before() {
        let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let problem = probe(LOCALHOST, address.port()).unwrap_err();
        assert_eq!(problem, PortProblem::InUse(address));
        assert!(problem.to_string().contains("--port-offset"));
        drop(listener);
        assert_eq!(probe(LOCALHOST, address.port()), Ok(()));
    }

    #[test]
    fn an_address_of_somebody_else_is_not_local() {
        // Reserved for documentation (RFC 5737): no machine has it.
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let problem = probe(elsewhere, 0).unwrap_err();
        assert_eq!(
            problem,
            PortProblem::NotLocal(SocketAddr::new(elsewhere, 0))
        );
        assert!(problem.to_string().starts_with("192.0.2.1 is not"));
    }

    #[test]
    fn a_privileged_port_says_what_to_do() {
        let address = SocketAddr::new(LOCALHOST, 80);
        let denied = problem(address, &ErrorKind::PermissionDenied.into());
        assert_eq!(denied, PortProblem::Denied(address));
        assert!(denied.to_string().starts_with("port 80 needs privileges"));
    }
}
