//! Session persistence of a rule (GEP-1619).

use std::sync::Arc;

use sesame_api::{CookieLifetime, NamespacedName, SessionPersistence, SessionPersistenceType};
use sesame_model::Session;

use crate::problem::FieldError;
use crate::shared::headers::check_name;

/// Reads the session persistence of the rule at `index` of a route (GEP-1619).
///
/// # Errors
/// If fields contradict each other or are unsupported.
pub(super) fn read(
    field: &str,
    route: &NamespacedName,
    index: usize,
    persistence: Option<&SessionPersistence>,
) -> Result<Option<Arc<Session>>, FieldError> {
    let Some(persistence) = persistence else {
        return Ok(None);
    };
    let lifetime = persistence
        .absolute_timeout
        .as_ref()
        .filter(|timeout| !timeout.is_zero())
        .map(sesame_api::Duration::as_std);
    let session = match &persistence.type_ {
        SessionPersistenceType::Cookie => {
            let cookie = persistence.cookie.as_ref();
            let name = match cookie.and_then(|cookie| cookie.name.as_deref()) {
                Some(name) => name.to_owned(),
                // Rules of the same host must not share a cookie.
                None => format!("sesame-session-{}-{}-{index}", route.namespace, route.name),
            };
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
    Ok(Some(Arc::new(session)))
}

/// The error for a timeout that would not be enforced.
fn permanent_only(field: &str) -> FieldError {
    FieldError::new(
        format!("{field}.absoluteTimeout"),
        "is supported only for cookies with lifetimeType Permanent; set that lifetimeType, or remove the timeout",
    )
}
