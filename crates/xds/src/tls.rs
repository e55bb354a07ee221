//! Discovery over mutual TLS: who may connect, and as which fleet.
//!
//! In: certificates and a listener. Out: connections whose other end has proved which fleet it is of, and
//! a record of those that were refused. It must not know where certificates come from (but for the plain
//! folder of [`files`]), nor what is served.
//!
//! Both ends show a certificate of the same authorities. Envoy checks our name; we check that Envoy's
//! certificate names a fleet by a URI ([`fleet_uri`]), and [`authorize`] compares that with the fleet
//! which the client says it is of (`node.cluster`): whoever has one fleet's key sees nothing of another.
//!
//! - `identity`: what we show and whom we trust, replaceable while connections are open.
//! - `verify`: what a client's certificate has to be like.
//! - `accept`: handshakes, bounded in time and number.
//! - `connection`: a connection, which ends when the certificate that opened it expires.
//! - `refusal`: who was turned away, and why.

mod accept;
mod connection;
pub mod files;
mod identity;
mod refusal;
mod verify;

use std::sync::Arc;

use tokio::net::TcpListener;

pub use accept::{HANDSHAKE_TIME, HANDSHAKES, incoming};
pub use connection::{Connection, Peer};
pub use identity::{Identity, IdentityError, Pem};
pub use refusal::{Reason, Refusal, Refusals};
pub use verify::fleet_uri;

use crate::config::Authorize;
use crate::resource::FleetId;
use crate::server::{Registry, ServeError};

/// Lets a stream be of the fleet that its certificate names, and of no other. A connection without a
/// certificate, a Unix socket for instance, may be of none.
///
/// What is refused is told by the identity's [`Refusals`].
pub fn authorize(identity: &Identity) -> Authorize {
    let refusals = identity.refusals().clone();
    Arc::new(move |extensions, claimed: &FleetId| {
        let Some(peer) = extensions.get::<Peer>() else {
            return Err("this client has not shown a certificate".to_owned());
        };
        if peer.fleet == *claimed {
            return Ok(());
        }
        let message = format!(
            "the certificate is of the fleet {}, node.cluster says {claimed}: an Envoy must be given the \
             certificate of its own fleet",
            peer.fleet
        );
        refusals.tell(Refusal {
            peer: peer.address,
            reason: Reason::WrongFleet,
            fleet: Some(peer.fleet.clone()),
            message: message.clone(),
        });
        Err(message)
    })
}

impl Registry {
    /// Serves over mutual TLS until `shutdown` completes, then ends all streams. The registry's
    /// [`crate::Config::authorize`] should be [`authorize`] of the same identity.
    ///
    /// # Errors
    ///
    /// Serving fails; a connection that fails, or is refused, is not a failure of the server.
    pub async fn serve_tls(
        &self,
        listener: TcpListener,
        identity: &Identity,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.serve_incoming(incoming(listener, identity.clone()), shutdown)
            .await
    }
}
