//! GRPCRouteMatch → [`RouteMatch`]: a call is a request for the path `/service/method`.

use sesame_api::{GrpcMethodMatch, GrpcRouteMatch, MatchType};
use sesame_model::{PathMatch, RouteMatch};

use crate::gateway_api::route::matches::{checked, read_headers};
use crate::problem::FieldError;
use crate::shared::precedence::MatchRank;

/// Reads one match. `field` is its path in the object.
///
/// # Errors
/// The first invalid field.
pub(super) fn read(
    field: &str,
    source: &GrpcRouteMatch,
) -> Result<(MatchRank, RouteMatch), FieldError> {
    let call = source.method.as_ref().map(Call::of).unwrap_or_default();
    let headers = read_headers(field, &source.headers)?;
    let rank = MatchRank::of_call(call.service, call.method, headers.len());
    let found = RouteMatch {
        path: call.path(&format!("{field}.method"))?,
        method: None,
        headers,
        query: Vec::new(),
        // HTTPRoutes handle other requests for the same host.
        grpc: true,
        share: None,
    };
    Ok((rank, found))
}

/// A service and a method; empty means any.
#[derive(Default)]
struct Call<'a> {
    type_: MatchType,
    service: &'a str,
    method: &'a str,
}

impl<'a> Call<'a> {
    fn of(source: &'a GrpcMethodMatch) -> Self {
        Self {
            type_: source.type_.clone(),
            service: source.service.as_deref().unwrap_or_default(),
            method: source.method.as_deref().unwrap_or_default(),
        }
    }

    fn path(&self, field: &str) -> Result<PathMatch, FieldError> {
        let segment = |name: &str, pattern: &str| match pattern {
            "" => Ok("[^/]+".to_owned()),
            pattern => Ok(format!(
                "(?:{})",
                checked(&format!("{field}.{name}"), pattern)?
            )),
        };
        // Envoy's limits apply to the whole path, which can exceed them although each segment is within them.
        let whole = |pattern: String| checked(field, &pattern).map(PathMatch::Regex);
        match (&self.type_, self.service, self.method) {
            (MatchType::Exact | MatchType::RegularExpression, "", "") => {
                Ok(PathMatch::Prefix("/".to_owned()))
            }
            (MatchType::Exact, service, "") => Ok(PathMatch::Prefix(format!("/{service}"))),
            (MatchType::Exact, "", method) => whole(format!("/[^/]+/{method}")),
            (MatchType::Exact, service, method) => {
                Ok(PathMatch::Exact(format!("/{service}/{method}")))
            }
            (MatchType::RegularExpression, service, method) => whole(format!(
                "/{}/{}",
                segment("service", service)?,
                segment("method", method)?
            )),
            (MatchType::Other(other), ..) => Err(FieldError::new(
                format!("{field}.type"),
                format!("unknown type {other:?}; use Exact or RegularExpression"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(type_: MatchType, service: &str, method: &str) -> Result<PathMatch, String> {
        let call = Call {
            type_,
            service,
            method,
        };
        call.path("m").map_err(|error| error.to_string())
    }

    #[test]
    fn a_call_is_a_path() {
        let exact = |service, method| path(MatchType::Exact, service, method);
        assert_eq!(exact("a.B", "C"), Ok(PathMatch::Exact("/a.B/C".into())));
        assert_eq!(exact("a.B", ""), Ok(PathMatch::Prefix("/a.B".into())));
        assert_eq!(exact("", "C"), Ok(PathMatch::Regex("/[^/]+/C".into())));
        assert_eq!(exact("", ""), Ok(PathMatch::Prefix("/".into())));
    }

    #[test]
    fn expressions_match_within_their_segment() {
        let regex = |service, method| path(MatchType::RegularExpression, service, method);
        assert_eq!(
            regex("a|b", "C.*"),
            Ok(PathMatch::Regex("/(?:a|b)/(?:C.*)".into()))
        );
        assert_eq!(regex("", "C"), Ok(PathMatch::Regex("/[^/]+/(?:C)".into())));
        assert!(regex("a", "(").is_err_and(|error| error.starts_with("m.method: ")));
    }

    #[test]
    fn limits_are_for_the_whole_path() {
        let path = path(MatchType::RegularExpression, "a{600}", "b{600}");
        assert!(
            path.is_err_and(|error| error.starts_with("m: the regular expression compiles to"))
        );
        let long = "C".repeat(1_024);
        assert!(self::path(MatchType::Exact, "", &long).is_err());
    }
}
