//! Session persistence.

use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3 as pb;
use envoy_types::pb::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use envoy_types::pb::envoy::extensions::http::stateful_session::header::v3::HeaderBasedSessionState;
use envoy_types::pb::envoy::r#type::http::v3::Cookie;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_model::Session;

use crate::wire;

/// Configuration of the session filter for a route or one of its targets. If a client's endpoint is gone, Envoy chooses
/// another.
pub(super) fn session(session: &Session) -> Any {
    let state = match session {
        Session::Cookie {
            name,
            path,
            lifetime,
        } => wire::extension(
            "envoy.http.stateful_session.cookie",
            CookieBasedSessionState {
                cookie: Some(Cookie {
                    name: name.clone(),
                    path: path.clone(),
                    ttl: lifetime.map(wire::duration),
                    ..Default::default()
                }),
            },
        ),
        Session::Header { name } => wire::extension(
            "envoy.http.stateful_session.header",
            HeaderBasedSessionState { name: name.clone() },
        ),
    };
    pack_any(pb::StatefulSessionPerRoute {
        r#override: Some(pb::stateful_session_per_route::Override::StatefulSession(
            pb::StatefulSession {
                session_state: Some(state),
                ..Default::default()
            },
        )),
    })
}
