//! External authorization for a host's requests.
//!
//! In: the `authorization` of a host, the ExtensionService that it refers to, and the `authPolicy` of routes. Out:
//! the check for each route.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_api::{
    AllowedHeader, AuthorizationPolicy, AuthorizationServer, AuthorizationServiceType,
    HttpAuthorization, RequestBodyBuffer,
};
use sesame_engine::Reader;
use sesame_model::{
    AuthBody, AuthProtocol, ExternalAuth, HeaderChanges, HeaderLists, List, TextMatch, TextPosition,
};

use super::extensions::Extension;
use super::findings::{About, Findings};
use super::{extensions, policies};
use crate::settings::GlobalAuthSettings;
use crate::shared::default_fleet::Sources;
use crate::shared::external_auth::{self, MAX_BODY, PATH_PREFIX, TIMEOUT};
use crate::shared::headers::is_token;

/// The maximum size of a partial body for a service, in bytes: Envoy's default limit for buffering a request.
const MAX_PARTIAL_BODY: u32 = 1 << 20;

/// The maximum total size of a context's names and values, and of the path and header names, in bytes: each route has a
/// copy of its host's.
const MAX_TEXT: usize = 4_096;

/// The maximum number of texts in a list that names of headers may contain anywhere. Envoy searches each name for each
/// of them, in about 0.2 ms for a name of 57 kB.
const MAX_CONTAINING: usize = 16;

/// The authorization settings for a host's requests.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HostAuth {
    /// The check, with the host's context. `None` if a field is invalid or the service can't be used; then requests
    /// that need the check must not pass.
    check: Option<Arc<ExternalAuth>>,
    /// Whether routes without an `authPolicy` skip the check.
    disabled: bool,
}

/// Why a route's requests must not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unchecked {
    /// The host's check can't be used.
    Host,
    /// The route has context entries, but the service can't receive any.
    Context,
}

impl HostAuth {
    /// The check for a route, if the route needs one.
    pub(super) fn of_route(
        &self,
        policy: Option<&AuthorizationPolicy>,
    ) -> Result<Option<Arc<ExternalAuth>>, Unchecked> {
        if policy.map_or(self.disabled, |policy| policy.disabled) {
            return Ok(None);
        }
        let check = self.check.as_ref().ok_or(Unchecked::Host)?;
        let Some(policy) = policy.filter(|policy| !policy.context.is_empty()) else {
            return Ok(Some(Arc::clone(check)));
        };
        let mut context = match &check.protocol {
            AuthProtocol::Grpc { .. } => BTreeMap::new(),
            AuthProtocol::GrpcWithContext(context) => context.clone(),
            AuthProtocol::Http { .. } => return Err(Unchecked::Context),
        };
        context.extend(policy.context.clone());
        Ok(Some(Arc::new(ExternalAuth {
            protocol: AuthProtocol::GrpcWithContext(context),
            ..ExternalAuth::clone(check)
        })))
    }
}

/// Reads the authorization of a host.
pub(super) fn read(
    reader: &mut Reader<'_>,
    sources: Sources,
    namespace: &Arc<str>,
    field: &str,
    server: &AuthorizationServer,
    findings: &mut Findings,
) -> HostAuth {
    let mut own = Findings::default();
    let check = check(reader, sources, namespace, field, server, &mut own);
    let valid = own.refusals() == 0;
    for finding in own.list {
        findings.add(finding);
    }
    let policy = server.auth_policy.as_ref();
    HostAuth {
        check: check.filter(|_| valid).map(Arc::new),
        disabled: policy.is_some_and(|policy| policy.disabled),
    }
}

/// Reads and checks the `authPolicy` of a route.
pub(super) fn of_route(
    field: &str,
    policy: Option<&AuthorizationPolicy>,
    findings: &mut Findings,
) -> Option<Arc<AuthorizationPolicy>> {
    let policy = policy?;
    check_context(field, policy, findings);
    Some(Arc::new(policy.clone()))
}

fn check_context(field: &str, policy: &AuthorizationPolicy, findings: &mut Findings) {
    if let Err(message) = context_size(&policy.context) {
        let field = format!("{field}.authPolicy.context");
        findings.refuse(About::AUTH, &field, message);
    }
}

/// Checks the size of a context.
///
/// # Errors
/// If it is too large.
pub(crate) fn context_size(context: &BTreeMap<String, String>) -> Result<(), String> {
    let entries = context.iter();
    let size: usize = entries.map(|(name, value)| name.len() + value.len()).sum();
    match size > MAX_TEXT {
        true => Err(format!(
            "names and values total {size} bytes; at most {MAX_TEXT} are allowed"
        )),
        false => Ok(()),
    }
}

/// The authorization of all hosts, for a host whose own `authorization` has no `extensionRef`.
pub(super) fn of_all_hosts(
    reader: &mut Reader<'_>,
    sources: Sources,
    field: &str,
    (all, own): (&GlobalAuthSettings, Option<&AuthorizationServer>),
    findings: &mut Findings,
) -> HostAuth {
    if let Some(own) = own {
        let rest = AuthorizationServer {
            auth_policy: None,
            ..own.clone()
        };
        if rest != AuthorizationServer::default() {
            let message = "has only authPolicy in effect, since it has no extensionRef; \
                           remove the other fields, or add an extensionRef";
            findings.warn(About::AUTH, field, message);
        }
    }
    let policy = own.and_then(|own| own.auth_policy.as_ref());
    let mut invalid = Findings::default();
    if let Some(policy) = policy {
        check_context(field, policy, &mut invalid);
    }
    let valid = invalid.refusals() == 0;
    for finding in invalid.list {
        findings.add(finding);
    }
    let disabled = policy.map_or(all.disabled, |policy| policy.disabled);
    let extension = match grpc_service(reader, sources, all) {
        Ok(extension) => Some(extension),
        Err(message) => {
            let message = format!(
                "globalAuth in the configuration of the Sesame instance can't be used: {message}"
            );
            match disabled {
                true => findings.warn(About::AUTH_SERVICE, field, message),
                false => findings.error(About::AUTH_SERVICE, field, message),
            }
            None
        }
    };
    let mut context = all.context.clone();
    context.extend(policy.iter().flat_map(|policy| policy.context.clone()));
    let check = extension.filter(|_| valid).map(|extension| ExternalAuth {
        cluster: extension.cluster.clone(),
        body: all.body,
        timeout: all.timeout.or(extension.timeout).unwrap_or(TIMEOUT),
        fail_open: all.fail_open,
        before: HeaderChanges::default(),
        protocol: grpc((!context.is_empty()).then_some(&context)),
    });
    HostAuth {
        check: check.map(Arc::new),
        disabled,
    }
}

fn grpc_service(
    reader: &mut Reader<'_>,
    sources: Sources,
    all: &GlobalAuthSettings,
) -> Result<Arc<Extension>, String> {
    let extension = extensions::usable(reader, sources.extensions, &all.service)?;
    match extension.speaks_grpc() {
        true => Ok(extension),
        false => Err(format!(
            "ExtensionService {} has protocol http/1.1, but h2 or h2c is needed",
            all.service
        )),
    }
}

/// A call with these names and values.
fn grpc(context: Option<&BTreeMap<String, String>>) -> AuthProtocol {
    match context {
        Some(context) => AuthProtocol::GrpcWithContext(context.clone()),
        None => AuthProtocol::Grpc {
            request_headers: List::All,
        },
    }
}

fn check(
    reader: &mut Reader<'_>,
    sources: Sources,
    namespace: &Arc<str>,
    field: &str,
    server: &AuthorizationServer,
    findings: &mut Findings,
) -> Option<ExternalAuth> {
    let protocol = protocol(field, server, findings);
    let timeout = server.response_timeout.as_ref();
    let timeout = policies::limit(
        About::AUTH,
        &format!("{field}.responseTimeout"),
        timeout,
        findings,
    );
    let body = server.with_request_body.as_ref();
    let body = body.map(|body| self::body(field, body, findings));
    let field = format!("{field}.extensionRef");
    let Some(reference) = &server.extension_ref else {
        let message = "is required; name an ExtensionService";
        findings.refuse(About::AUTH, &field, message);
        return None;
    };
    let extension = match extensions::resolve(reader, sources.extensions, namespace, reference) {
        Ok(extension) => extension,
        Err(message) => {
            findings.refuse(About::AUTH_SERVICE, &field, message);
            return None;
        }
    };
    if !matches!(protocol, AuthProtocol::Http { .. }) && !extension.speaks_grpc() {
        let message = "the ExtensionService has protocol http/1.1, but the grpc service type needs h2 or h2c; \
             change the protocol, or set serviceType to http";
        findings.refuse(About::AUTH_SERVICE, &field, message);
    }
    let removed = external_auth::exclusive(&protocol).cloned().collect();
    Some(ExternalAuth {
        cluster: extension.cluster.clone(),
        body,
        timeout: timeout.or(extension.timeout).unwrap_or(TIMEOUT),
        fail_open: server.fail_open,
        before: HeaderChanges::from(HeaderLists {
            remove: removed,
            ..HeaderLists::default()
        }),
        protocol,
    })
}

fn protocol(field: &str, server: &AuthorizationServer, findings: &mut Findings) -> AuthProtocol {
    let policy = server.auth_policy.as_ref();
    let context = policy.map(|policy| &policy.context);
    let context = context.filter(|context| !context.is_empty());
    if let Some(policy) = policy {
        check_context(field, policy, findings);
    }
    let settings = server.http_settings.as_deref();
    match &server.service_type {
        None | Some(AuthorizationServiceType::Grpc) => {
            if settings.is_some() {
                let message = "has no effect with the grpc service type; remove it, or set serviceType to http";
                findings.warn(About::AUTH, &format!("{field}.httpSettings"), message);
            }
            grpc(context)
        }
        Some(AuthorizationServiceType::Http) => {
            if context.is_some() {
                findings.refuse(About::AUTH, &format!("{field}.authPolicy.context"), CONTEXT);
            }
            http(&format!("{field}.httpSettings"), settings, findings)
        }
        Some(other) => {
            let message = format!("unknown type {:?}; use grpc or http", other.as_str());
            findings.refuse(About::AUTH, &format!("{field}.serviceType"), message);
            grpc(context)
        }
    }
}

/// The error for context entries when the service has type `http`.
pub(super) const CONTEXT: &str =
    "can't be sent with the http service type; remove it, or set serviceType to grpc";

fn http(
    field: &str,
    settings: Option<&HttpAuthorization>,
    findings: &mut Findings,
) -> AuthProtocol {
    let none = HttpAuthorization::default();
    let settings = settings.unwrap_or(&none);
    let path = settings.path_prefix.as_deref().unwrap_or_default();
    let path_prefix = external_auth::path_prefix(path);
    if path_prefix.is_none() {
        findings.refuse(About::AUTH, &format!("{field}.pathPrefix"), PATH_PREFIX);
    }
    let mut names = |part: &str, headers: &[AllowedHeader]| {
        let containing = headers.iter().filter(|header| header.contains.is_some());
        if containing.count() > MAX_CONTAINING {
            let message = format!(
                "has more than {MAX_CONTAINING} entries with contains, which take Envoy long; use exact or prefix"
            );
            findings.refuse(About::AUTH, &format!("{field}.{part}"), message);
        }
        let headers = headers.iter().enumerate();
        Vec::from_iter(headers.filter_map(|(index, header)| {
            let names = names(header);
            if names.is_none() {
                let message = "needs exactly one of exact, prefix, suffix and contains, with characters that are \
                     valid in header names";
                findings.refuse(About::AUTH, &format!("{field}.{part}[{index}]"), message);
            }
            names
        }))
    };
    let request_headers = names(
        "allowedAuthorizationHeaders",
        &settings.allowed_authorization_headers,
    );
    let response_headers = names("allowedUpstreamHeaders", &settings.allowed_upstream_headers);
    let protocol = AuthProtocol::Http {
        path_prefix: path_prefix.unwrap_or_default(),
        request_headers,
        response_headers: Some(response_headers),
    };
    let size = external_auth::size(&protocol);
    if size > MAX_TEXT {
        let message =
            format!("the path and header names total {size} bytes; at most {MAX_TEXT} are allowed");
        findings.refuse(About::AUTH, field, message);
    }
    protocol
}

/// Reads a matcher for header names. These are case-insensitive, whatever the value of `ignoreCase`.
fn names(header: &AllowedHeader) -> Option<TextMatch> {
    let (text, position) = match (
        &header.exact,
        &header.prefix,
        &header.suffix,
        &header.contains,
    ) {
        (Some(text), None, None, None) => (text, TextPosition::Whole),
        (None, Some(text), None, None) => (text, TextPosition::Start),
        (None, None, Some(text), None) => (text, TextPosition::End),
        (None, None, None, Some(text)) => (text, TextPosition::Anywhere),
        _ => return None,
    };
    is_token(text).then(|| external_auth::names(text, position))
}

fn body(field: &str, body: &RequestBodyBuffer, findings: &mut Findings) -> AuthBody {
    let (max, partial) = (body.max_request_bytes, body.allow_partial_message);
    let limit = match partial {
        true => MAX_PARTIAL_BODY,
        false => MAX_BODY,
    };
    if max == 0 || max > limit {
        let field = format!("{field}.withRequestBody.maxRequestBytes");
        let condition = if partial {
            " with allowPartialMessage"
        } else {
            ""
        };
        let message = format!("{max} is not valid; use a number from 1 to {limit}{condition}");
        findings.refuse(About::AUTH, &field, message);
    }
    AuthBody {
        max,
        partial,
        bytes: body.pack_as_bytes,
    }
}
