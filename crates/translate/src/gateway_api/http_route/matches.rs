//! HTTPRouteMatch → [`RouteMatch`].

use sesame_api::{HttpMethod, HttpPathMatch, HttpRouteMatch, PathMatchType};
use sesame_model::{PathMatch, QueryMatch, RouteMatch};

use crate::gateway_api::route::matches::{checked, distinct, read_headers, read_value};
use crate::problem::FieldError;
use crate::shared::precedence::MatchRank;

/// Reads one match. `field` is its path in the object.
///
/// # Errors
/// The first invalid field.
pub(super) fn read(
    field: &str,
    source: &HttpRouteMatch,
) -> Result<(MatchRank, RouteMatch), FieldError> {
    let query = distinct(&source.query_params, |param| param.name.to_string());
    let found = RouteMatch {
        path: read_path(&format!("{field}.path"), &source.path)?,
        method: source
            .method
            .as_ref()
            .map(|method| read_method(&format!("{field}.method"), method))
            .transpose()?
            .map(Into::into),
        headers: read_headers(field, &source.headers)?,
        query: query
            .map(|(index, param)| {
                let field = format!("{field}.queryParams[{index}]");
                Ok(QueryMatch {
                    name: param.name.to_string(),
                    value: read_value(&field, &param.type_, &param.value)?,
                })
            })
            .collect::<Result<_, _>>()?,
        grpc: false,
        share: None,
    };
    Ok((MatchRank::of(&found), found))
}

/// Reads a method. Unknown methods are invalid (HTTPMethod).
///
/// # Errors
/// If the API has no such method.
pub(crate) fn read_method<'m>(field: &str, method: &'m HttpMethod) -> Result<&'m str, FieldError> {
    match method {
        HttpMethod::Other(other) => Err(FieldError::new(
            field,
            format!(
                "unknown method {other:?}; use one of {}",
                HttpMethod::KNOWN.join(", ")
            ),
        )),
        known => Ok(known.as_str()),
    }
}

fn read_path(field: &str, path: &HttpPathMatch) -> Result<PathMatch, FieldError> {
    let value = &*path.value;
    match &path.type_ {
        PathMatchType::Exact => Ok(PathMatch::Exact(value.to_owned())),
        PathMatchType::PathPrefix => Ok(PathMatch::Prefix(match value.trim_end_matches('/') {
            "" => "/".to_owned(),
            prefix => prefix.to_owned(),
        })),
        PathMatchType::RegularExpression => {
            Ok(PathMatch::Regex(checked(&format!("{field}.value"), value)?))
        }
        PathMatchType::Other(other) => Err(FieldError::new(
            format!("{field}.type"),
            format!("unknown type {other:?}; use Exact, PathPrefix or RegularExpression"),
        )),
    }
}
