//! Discovery over mutual TLS.
//!
//! Server and clients have certificates from the same CAs. Envoy verifies the server's name. A client certificate names
//! its fleet in a URI ([`sesame_model::FleetId::uri`]); [`authorize`] compares it with the fleet that the client claims
//! (`node.cluster`), so one fleet's key doesn't give access to another fleet.
//!
//! - `identity`: the server's certificate and CA bundle, replaceable at runtime. [`files`] reads them from a directory.
//! - `verify`: verification of client certificates.
//! - `accept`: handshakes, limited in time and number, and connections, limited in number.
//! - `connection`: a connection, which ends when the client's certificate expires.
//! - `refusal`: refused connections and streams.

mod accept;
mod connection;
pub mod files;
mod identity;
mod refusal;
mod verify;

use std::sync::Arc;

use tokio::net::TcpListener;

pub use accept::{HANDSHAKE_TIMEOUT, MAX_HANDSHAKES, incoming};
pub use connection::{Connection, Peer};
pub use identity::{Identity, IdentityError, Pem};
pub use refusal::{Refusal, RefusalReason, Refusals};

use crate::config::Authorize;
use crate::resource::FleetId;
use crate::server::{Registry, ServeError};

/// Allows a stream to join only the fleet that its client certificate names. Connections without TLS are refused.
///
/// Refusals are recorded in the identity's [`Refusals`].
pub fn authorize(identity: &Identity) -> Authorize {
    let refusals = identity.refusals().clone();
    Arc::new(move |extensions, claimed: &FleetId| {
        let Some(peer) = extensions.get::<Peer>() else {
            return Err("the client has no certificate".to_owned());
        };
        if peer.fleet == *claimed {
            return Ok(());
        }
        let message = format!(
            "the certificate names the fleet {}, but node.cluster is {claimed}: use the certificate of the Envoy's own fleet",
            peer.fleet
        );
        refusals.record(Refusal {
            peer: peer.address,
            reason: RefusalReason::WrongFleet,
            fleet: Some(peer.fleet.clone()),
            message: message.clone(),
        });
        Err(message)
    })
}

impl Registry {
    /// Serves over mutual TLS until `shutdown` completes, then ends all streams. Set [`crate::ServerConfig::authorize`]
    /// to [`authorize`] with the same identity.
    ///
    /// # Errors
    ///
    /// Returns an error if the server fails. A failed or refused connection is not an error.
    pub async fn serve_tls(
        &self,
        listener: TcpListener,
        identity: &Identity,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let connections = self.limits().fleet_streams;
        let incoming = incoming(listener, identity.clone(), connections);
        self.serve_incoming(incoming, shutdown).await
    }
}
