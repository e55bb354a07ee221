//! Session persistence for rules, policies and XBackends (GEP-1619).

use std::sync::Arc;

use sesame_api::{CookieLifetime, SessionPersistence, SessionPersistenceType};
use sesame_model::Session;

use crate::problem::FieldError;
use crate::shared::headers::check_name;

/// Reads session persistence. `unnamed` returns the name of a cookie whose name isn't set.
///
/// # Errors
/// If fields contradict each other or are unsupported.
pub(crate) fn read(
    field: &str,
    persistence: &SessionPersistence,
    unnamed: impl FnOnce() -> String,
) -> Result<Arc<Session>, FieldError> {
    let lifetime = persistence
        .absolute_timeout
        .as_ref()
        .filter(|timeout| !timeout.is_zero())
        .map(sesame_api::Duration::as_std);
    let session = match &persistence.type_ {
        SessionPersistenceType::Cookie => {
            let cookie = persistence.cookie.as_ref();
            let name = cookie.and_then(|cookie| cookie.name.as_deref());
            let name = name.map_or_else(unnamed, str::to_owned);
            let permanent =
                cookie.is_some_and(|cookie| cookie.lifetime_type == CookieLifetime::Permanent);
            match lifetime {
                None if permanent => {
                    return Err(FieldError::new(
                        format!("{field}.absoluteTimeout"),
                        "is required with a permanent cookie",
                    ));
                }
                Some(_) if !permanent => return Err(permanent_only(field)),
                _ => {}
            }
            let path = cookie.map_or("/", |cookie| &*cookie.path);
            if path.contains(|c: char| c.is_ascii_control() || c == ';') {
                return Err(FieldError::new(
                    format!("{field}.cookie.path"),
                    "a cookie path cannot contain control characters or semicolons; remove them",
                ));
            }
            Session::Cookie {
                name,
                path: path.to_owned(),
                lifetime,
            }
        }
        SessionPersistenceType::Header => {
            let Some(header) = &persistence.header else {
                return Err(FieldError::new(
                    format!("{field}.header"),
                    "is required with type Header",
                ));
            };
            if lifetime.is_some() {
                return Err(permanent_only(field));
            }
            check_name(format!("{field}.header.name"), &header.name)?;
            Session::Header {
                name: header.name.to_string(),
            }
        }
        SessionPersistenceType::Other(other) => {
            return Err(FieldError::new(
                format!("{field}.type"),
                format!("unknown type {other:?}; use Cookie or Header"),
            ));
        }
    };
    Ok(Arc::new(session))
}

/// The name of an XBackend's session cookie, if its settings don't name one. It differs from the cookie names of rules
/// and Services, which begin with `sesame-session`.
pub(crate) fn xbackend_cookie(namespace: &str, name: &str) -> String {
    format!("sesame-xbackend.{namespace}.{name}")
}

/// The error for a timeout that would not be enforced.
fn permanent_only(field: &str) -> FieldError {
    FieldError::new(
        format!("{field}.absoluteTimeout"),
        "is supported only for cookies with lifetimeType Permanent; set that lifetimeType, or remove the timeout",
    )
}
