//! Merges the filters of a rule or of a backendRef.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sesame_api::{
    Cors as CorsFilter, ExternalAuth, HeaderModifier, HttpHeader, Kind, PathModifier,
    RedirectScheme, RequestMirror, RequestRedirect, RouteFilter,
};
use sesame_model::{Cors, HeaderChanges, List, OriginMatch, PathRewrite, Redirect, RedirectPort};

use super::matches::{CONTROLS, has_controls};
use crate::gateway_api::http_route::matches::read_method;
use crate::problem::FieldError;
use crate::shared::headers::check_name;

/// The effect of a list of filters.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Filters<'a> {
    pub(super) request_headers: HeaderChanges,
    pub(super) response_headers: HeaderChanges,
    pub(super) redirect: Option<Redirect>,
    pub(super) path_rewrite: Option<PathRewrite>,
    pub(super) host_rewrite: Option<Box<str>>,
    /// Each mirror filter with its field; the reference is resolved elsewhere.
    pub(super) mirrors: Vec<(String, &'a RequestMirror)>,
    pub(super) cors: Option<Arc<Cors>>,
    pub(super) auth: Option<AuthFilter<'a>>,
}

/// An ExternalAuth filter; its service is resolved elsewhere.
#[derive(Debug, PartialEq)]
pub(super) struct AuthFilter<'a> {
    pub(super) field: String,
    pub(super) filter: &'a ExternalAuth,
    /// The header changes of the filters before it.
    pub(super) before: HeaderChanges,
}

/// The object that has the filters.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    /// A rule.
    Rule,
    /// A backendRef.
    Backend,
}

/// Merges the filters of a route of this kind. `field` is the path of the list; `prefix_path` is true if the rule
/// matches by path prefix.
///
/// # Errors
/// The first invalid or unsupported filter. A filter is never dropped silently.
pub(super) fn gather<'a>(
    field: &str,
    filters: &'a [RouteFilter],
    (kind, place): (Kind, Place),
    prefix_path: bool,
) -> Result<Filters<'a>, FieldError> {
    let mut gathered = Filters::default();
    for (index, filter) in filters.iter().enumerate() {
        let field = format!("{field}[{index}]");
        add(&mut gathered, &field, filter, (kind, place), prefix_path)?;
    }
    if gathered.redirect.is_some()
        && (gathered.path_rewrite.is_some() || gathered.host_rewrite.is_some())
    {
        return Err(FieldError::new(
            field,
            "RequestRedirect and URLRewrite cannot be used together; remove one of them",
        ));
    }
    Ok(gathered)
}

fn add<'a>(
    gathered: &mut Filters<'a>,
    field: &str,
    filter: &'a RouteFilter,
    (kind, place): (Kind, Place),
    prefix_path: bool,
) -> Result<(), FieldError> {
    match filter {
        RouteFilter::RequestHeaderModifier(changes) => headers(
            &format!("{field}.requestHeaderModifier"),
            changes,
            &mut gathered.request_headers,
        ),
        RouteFilter::ResponseHeaderModifier(changes) => headers(
            &format!("{field}.responseHeaderModifier"),
            changes,
            &mut gathered.response_headers,
        ),
        RouteFilter::UrlRewrite(rewrite) => {
            if let Some(path) = &rewrite.path {
                gathered.path_rewrite = Some(path_rewrite(
                    &format!("{field}.urlRewrite.path"),
                    path,
                    prefix_path,
                )?);
            }
            if let Some(hostname) = &rewrite.hostname {
                gathered.host_rewrite = Some((&**hostname).into());
            }
            Ok(())
        }
        RouteFilter::RequestMirror(mirror) => {
            gathered
                .mirrors
                .push((format!("{field}.requestMirror"), mirror));
            Ok(())
        }
        RouteFilter::RequestRedirect(_) | RouteFilter::Cors(_) | RouteFilter::ExternalAuth(_)
            if place == Place::Backend =>
        {
            Err(FieldError::new(
                format!("{field}.type"),
                format!(
                    "a backendRef cannot have a filter of type {}; move it to the rule's filters",
                    filter.type_name()
                ),
            ))
        }
        RouteFilter::RequestRedirect(body) => {
            gathered.redirect = Some(redirect(
                &format!("{field}.requestRedirect"),
                body,
                prefix_path,
            )?);
            Ok(())
        }
        RouteFilter::Cors(body) => {
            gathered.cors = Some(Arc::new(cors(&format!("{field}.cors"), body)?));
            Ok(())
        }
        RouteFilter::ExternalAuth(filter) => {
            let field = format!("{field}.externalAuth");
            if gathered.auth.is_some() {
                return Err(FieldError::new(
                    field,
                    "only one ExternalAuth filter is supported in a rule; remove the others",
                ));
            }
            gathered.auth = Some(AuthFilter {
                field,
                filter,
                before: std::mem::take(&mut gathered.request_headers),
            });
            Ok(())
        }
        RouteFilter::ExtensionRef(_) | RouteFilter::Unknown(_) => Err(FieldError::new(
            format!("{field}.type"),
            format!(
                "filter type {} is not supported; use {}",
                filter.type_name(),
                supported(kind, place)
            ),
        )),
    }
}

/// The supported types of filters.
fn supported(kind: Kind, place: Place) -> &'static str {
    match (kind, place) {
        (Kind::GRPCRoute, _) => "RequestHeaderModifier, ResponseHeaderModifier or RequestMirror",
        (_, Place::Rule) => {
            "RequestHeaderModifier, ResponseHeaderModifier, RequestMirror, RequestRedirect, URLRewrite, CORS or \
             ExternalAuth"
        }
        (_, Place::Backend) => {
            "RequestHeaderModifier, ResponseHeaderModifier, RequestMirror or URLRewrite"
        }
    }
}

fn headers(
    field: &str,
    modifier: &HeaderModifier,
    changes: &mut HeaderChanges,
) -> Result<(), FieldError> {
    for (part, list) in [("set", &modifier.set), ("add", &modifier.add)] {
        for (index, header) in list.iter().enumerate() {
            let field = format!("{field}.{part}[{index}]");
            check_name(format!("{field}.name"), &header.name)?;
            if has_controls(&header.value) {
                return Err(FieldError::new(format!("{field}.value"), CONTROLS));
            }
        }
    }
    for (index, name) in modifier.remove.iter().enumerate() {
        check_name(format!("{field}.remove[{index}]"), name)?;
    }
    // Only the first of several entries with equivalent names is used (HTTPHeader.name).
    let mut seen = BTreeSet::new();
    let mut first = |name: &str| seen.insert(name.to_ascii_lowercase());
    let pair = |header: &HttpHeader| (header.name.to_string(), header.value.to_string());
    changes.set.extend(
        modifier
            .set
            .iter()
            .filter(|header| first(&header.name))
            .map(pair),
    );
    changes.add.extend(
        modifier
            .add
            .iter()
            .filter(|header| first(&header.name))
            .map(pair),
    );
    changes.remove.extend(
        modifier
            .remove
            .iter()
            .filter(|name| first(name))
            .map(|name| name.to_string()),
    );
    Ok(())
}

fn path_rewrite(
    field: &str,
    path: &PathModifier,
    prefix_path: bool,
) -> Result<PathRewrite, FieldError> {
    let checked = |name: &str, path: &str| {
        if path
            .bytes()
            .any(|byte| byte.is_ascii_control() || matches!(byte, b'?' | b'#' | b' '))
        {
            let field = format!("{field}.{name}");
            return Err(FieldError::new(
                field,
                "a path cannot contain a query, a fragment, spaces or control characters",
            ));
        }
        Ok(path.to_owned())
    };
    match path {
        PathModifier::ReplaceFullPath(path) => {
            let path = checked("replaceFullPath", path)?;
            // Backends always get an absolute path.
            Ok(PathRewrite::Full(if path.starts_with('/') {
                path
            } else {
                format!("/{path}")
            }))
        }
        PathModifier::ReplacePrefixMatch(path) if prefix_path => {
            Ok(PathRewrite::Prefix(checked("replacePrefixMatch", path)?))
        }
        PathModifier::ReplacePrefixMatch(_) => Err(FieldError::new(
            format!("{field}.type"),
            "ReplacePrefixMatch requires all matches of the rule to have path type PathPrefix",
        )),
        PathModifier::Unknown(other) => Err(FieldError::new(
            format!("{field}.type"),
            format!("unknown type {other:?}; use ReplaceFullPath or ReplacePrefixMatch"),
        )),
    }
}

fn redirect(
    field: &str,
    filter: &RequestRedirect,
    prefix_path: bool,
) -> Result<Redirect, FieldError> {
    let scheme = match &filter.scheme {
        None => None,
        Some(scheme @ (RedirectScheme::Http | RedirectScheme::Https)) => {
            Some(scheme.as_str().to_owned())
        }
        Some(RedirectScheme::Other(other)) => {
            return Err(FieldError::new(
                format!("{field}.scheme"),
                format!("unknown scheme {other:?}; use http or https"),
            ));
        }
    };
    let port = match (filter.port, &scheme) {
        (Some(port), _) => RedirectPort::Exact(port),
        (None, Some(_)) => RedirectPort::OfScheme,
        (None, None) => RedirectPort::OfListener,
    };
    if !matches!(filter.status_code, 301 | 302 | 303 | 307 | 308) {
        return Err(FieldError::new(
            format!("{field}.statusCode"),
            format!(
                "{} is not supported; use 301, 302, 303, 307 or 308",
                filter.status_code
            ),
        ));
    }
    Ok(Redirect {
        scheme,
        hostname: filter.hostname.as_deref().map(str::to_owned),
        port,
        path: filter
            .path
            .as_ref()
            .map(|path| path_rewrite(&format!("{field}.path"), path, prefix_path))
            .transpose()?,
        status: filter.status_code,
    })
}

fn cors(field: &str, filter: &CorsFilter) -> Result<Cors, FieldError> {
    let origins = filter
        .allow_origins
        .iter()
        .enumerate()
        .map(|(index, origin)| read_origin(&format!("{field}.allowOrigins[{index}]"), origin))
        .collect::<Result<_, _>>()?;
    let mut methods = Vec::new();
    for (index, method) in filter.allow_methods.iter().enumerate() {
        methods.push(match method.as_str() {
            "*" => "*",
            _ => read_method(&format!("{field}.allowMethods[{index}]"), method)?,
        });
    }
    let expose = match list(filter.expose_headers.iter().map(|name| &**name)) {
        // With credentials, browsers take `*` as a literal header name, so the API forbids it in that case.
        List::All if filter.allow_credentials => List::Only(Vec::new()),
        expose => expose,
    };
    Ok(Cors {
        origins,
        credentials: filter.allow_credentials,
        methods: list(methods.into_iter()),
        headers: list(filter.allow_headers.iter().map(|name| &**name)),
        expose,
        max_age: Duration::from_secs(filter.max_age.into()),
        private_network: false,
    })
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> List {
    let names: Vec<String> = names.map(str::to_owned).collect();
    if names.iter().any(|name| name == "*") {
        List::All
    } else {
        List::Only(names)
    }
}

/// Removes a scheme's default port, which browsers never send.
fn as_browsers_write(origin: &str) -> &str {
    let port = match origin.split_once("://") {
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => ":443",
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => ":80",
        _ => return origin,
    };
    origin.strip_suffix(port).unwrap_or(origin)
}

fn read_origin(field: &str, origin: &str) -> Result<OriginMatch, FieldError> {
    let origin = as_browsers_write(origin);
    match origin.split_once('*') {
        None => Ok(OriginMatch::Exact(origin.to_owned())),
        Some(("", "")) => Ok(OriginMatch::Any),
        Some((before, behind)) if !behind.contains('*') && before.ends_with("://") => {
            Ok(OriginMatch::Wildcard {
                before: before.to_owned(),
                behind: behind.to_owned(),
            })
        }
        Some(_) => Err(FieldError::new(
            field,
            format!(
                "{origin:?} is not a valid origin; use scheme://host[:port], scheme://*.host[:port] or *"
            ),
        )),
    }
}
