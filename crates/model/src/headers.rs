/// Headers that frame a message or apply to a single connection (RFC 9110, 7.6.1; RFC 9112, 6; RFC 9113, 8.2.2).
/// Neither configuration nor an authorization service may change them: a backend could read one request's body as
/// another request (request smuggling).
pub const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Prefixes of headers that control the gateway itself. `cdn-loop` counts the Envoys that a request has passed (RFC 8586).
pub const INTERNAL: [&str; 3] = ["cdn-loop", "x-envoy-", "x-sesame-"];
