//! A WebSocket echo (RFC 6455).

use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::request::Parts;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::Shared;

/// Maximum size of a message, in bytes.
const MAX_MESSAGE: usize = 1 << 20;

pub(super) fn accept(head: &Parts, upgrade: OnUpgrade, shared: &Shared) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    let wanted = head
        .headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let key = head.headers.get(SEC_WEBSOCKET_KEY);
    let accepted = key
        .filter(|_| wanted)
        .and_then(|key| derive_accept_key(key.as_bytes()).parse().ok());
    let websocket = http::HeaderValue::from_static("websocket");
    response.headers_mut().insert(UPGRADE, websocket);
    let Some(accepted) = accepted else {
        *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
        return response;
    };
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let upgrade_too = http::HeaderValue::from_static("upgrade");
    response.headers_mut().insert(CONNECTION, upgrade_too);
    response
        .headers_mut()
        .insert(SEC_WEBSOCKET_ACCEPT, accepted);
    let mut websockets = shared.websockets();
    while websockets.try_join_next().is_some() {}
    websockets.spawn(async {
        if let Ok(stream) = upgrade.await {
            echo(stream).await;
        }
    });
    response
}

async fn echo(stream: Upgraded) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let stream = TokioIo::new(stream);
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    // The library answers pings and the closing handshake.
    while let Some(Ok(message)) = socket.next().await {
        let is_data = message.is_text() || message.is_binary();
        if is_data && socket.send(message).await.is_err() {
            return;
        }
    }
}
