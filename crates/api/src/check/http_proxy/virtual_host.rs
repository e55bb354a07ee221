//! The host of a root.

use crate::check::{Check, at, each, ensure, known, optional, text};
use crate::http_proxy::{
    AllowedHeader, AuthorizationServer, AuthorizationServiceType, CorsPolicy, DnsLookupFamily,
    HttpAuthorization, HttpProxyVirtualHost, JwtProvider, RemoteJwks,
};

use super::{count, ip_filters, optional_length, optional_path, policy, some_texts, validation};

pub(super) fn virtual_host(host: &HttpProxyVirtualHost) -> Check {
    at("fqdn", text::hostname(&host.fqdn))?;
    optional(
        "authorization",
        host.authorization.as_deref(),
        authorization,
    )?;
    optional("corsPolicy", host.cors_policy.as_deref(), cors)?;
    optional(
        "rateLimitPolicy",
        host.rate_limit_policy.as_deref(),
        policy::rate_limit,
    )?;
    each("jwtProviders", &host.jwt_providers, 64, provider)?;
    ip_filters(&host.ip_allow_policy, &host.ip_deny_policy)
}

fn authorization(server: &AuthorizationServer) -> Check {
    optional("extensionRef", server.extension_ref.as_ref(), |reference| {
        at("name", text::length(&reference.name, 1, 253))
    })?;
    known(
        "serviceType",
        server.service_type.as_ref(),
        AuthorizationServiceType::KNOWN,
    )?;
    optional("httpSettings", server.http_settings.as_deref(), http)?;
    optional(
        "authPolicy",
        server.auth_policy.as_ref(),
        policy::authorization,
    )?;
    optional(
        "withRequestBody",
        server.with_request_body.as_ref(),
        |body| {
            at(
                "maxRequestBytes",
                ensure(body.max_request_bytes > 0, "expected at least 1"),
            )
        },
    )
}

fn http(settings: &HttpAuthorization) -> Check {
    optional_path("pathPrefix", settings.path_prefix.as_deref())?;
    let lists = [
        (
            "allowedAuthorizationHeaders",
            &settings.allowed_authorization_headers,
        ),
        ("allowedUpstreamHeaders", &settings.allowed_upstream_headers),
    ];
    lists
        .into_iter()
        .try_for_each(|(field, list)| each(field, list, 64, allowed_header))
}

fn allowed_header(header: &AllowedHeader) -> Check {
    let AllowedHeader {
        exact,
        prefix,
        suffix,
        contains,
        ..
    } = header;
    let set = [exact, prefix, suffix, contains].map(Option::is_some);
    ensure(
        count(&set) == 1,
        "exactly one of exact, prefix, suffix and contains is required",
    )?;
    optional_length("exact", exact.as_deref(), 256)?;
    optional_length("prefix", prefix.as_deref(), 256)?;
    optional_length("suffix", suffix.as_deref(), 256)?;
    optional_length("contains", contains.as_deref(), 256)
}

fn cors(policy: &CorsPolicy) -> Check {
    let some = |text: &std::sync::Arc<str>| text::length(text, 1, usize::MAX);
    some_texts("allowOrigin", &policy.allow_origin, 128)?;
    some_texts("allowMethods", &policy.allow_methods, 64)?;
    each("allowHeaders", &policy.allow_headers, 128, some)?;
    each("exposeHeaders", &policy.expose_headers, 128, some)
}

fn provider(provider: &JwtProvider) -> Check {
    at("name", text::length(&provider.name, 1, 253))?;
    ensure(
        provider.remote_jwks.is_some() != provider.local_jwks.is_some(),
        "exactly one of remoteJWKS and localJWKS is required",
    )?;
    each("audiences", &provider.audiences, 64, |_| Ok(()))?;
    optional("remoteJWKS", provider.remote_jwks.as_deref(), remote)?;
    optional("localJWKS", provider.local_jwks.as_deref(), |local| {
        at("secretName", text::length(&local.secret_name, 1, 317))?;
        at("key", text::length(&local.key, 1, 253))
    })
}

fn remote(remote: &RemoteJwks) -> Check {
    at("uri", text::length(&remote.uri, 1, 2048))?;
    optional("validation", remote.validation.as_deref(), validation)?;
    known(
        "dnsLookupFamily",
        remote.dns_lookup_family.as_ref(),
        DnsLookupFamily::KNOWN,
    )
}
