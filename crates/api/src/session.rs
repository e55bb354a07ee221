//! Session persistence (experimental, GEP-1619), shared by HTTPRoute, GRPCRoute, XBackend and XBackendTrafficPolicy.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::open_enum::open_enum;

/// Session persistence: all requests of a session go to the same endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPersistence {
    /// The maximum lifetime of a session; required with a permanent cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absolute_timeout: Option<Duration>,
    /// Whether a cookie or a header carries the session; a cookie by default.
    #[serde(rename = "type", default)]
    pub type_: SessionPersistenceType,
    /// The cookie; required with type Cookie, not allowed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<SessionCookie>,
    /// The header; required with type Header, not allowed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<SessionHeader>,
}

open_enum! {
    /// The type of session persistence.
    #[derive(Default)]
    pub enum SessionPersistenceType {
        /// A cookie.
        #[default]
        Cookie = "Cookie",
        /// A header.
        Header = "Header",
    }
}

/// The cookie that carries a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionCookie {
    /// The name; chosen by the implementation if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The path; `/` by default.
    #[serde(default = "SessionCookie::root")]
    pub path: Arc<str>,
    /// The cookie's lifetime; by default, until the client's session ends.
    #[serde(default)]
    pub lifetime_type: CookieLifetime,
}

impl SessionCookie {
    fn root() -> Arc<str> {
        "/".into()
    }
}

open_enum! {
    /// The lifetime of a cookie.
    #[derive(Default)]
    pub enum CookieLifetime {
        /// Until the client's session ends.
        #[default]
        Session = "Session",
        /// Until the absolute timeout.
        Permanent = "Permanent",
    }
}

/// The header that carries a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionHeader {
    /// The name.
    pub name: Arc<str>,
}
