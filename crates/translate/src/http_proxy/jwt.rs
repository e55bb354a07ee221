//! JSON Web Tokens: the providers of a host, and the requirements of its routes.

use std::sync::Arc;
use std::time::Duration;

use sesame_api::{
    DnsLookupFamily, HTTPProxy, JwtVerificationPolicy, LocalJwks, RemoteJwks, is_precise_hostname,
};
use sesame_engine::Reader;
use sesame_model::{
    AddressFamilies, BackendName, ClusterKey, ClusterPolicy, ExternalHost, JwtKeys, JwtProvider,
    RemoteKeys, Target, TlsSettings,
};

use super::findings::{About, Findings};
use super::{secrets, services};
use crate::inputs::Inputs;
use crate::shared::default_fleet::Sources;
use crate::shared::durations::{self, Limit};
use crate::shared::hostname;
use crate::shared::jwks::JwksEntry;

/// The maximum total size of a host's keys, issuers, audiences and URIs, in bytes: each of its virtual hosts has a copy.
const MAX_SIZE: usize = 64 << 10;

/// The default timeout of a JWKS request.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long a JWKS is cached by default.
const CACHE: Duration = Duration::from_secs(5 * 60);

/// The field of a host's providers.
const FIELD: &str = "spec.virtualhost.jwtProviders";

/// The providers of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Providers {
    /// The names of the providers in the HTTPProxy.
    names: Box<[Arc<str>]>,
    /// The same providers. The HTTPProxy's name is the prefix of their names, since other HTTPProxies may share the
    /// virtual host. `None` if the host doesn't have providers.
    pub(super) all: Option<Arc<[JwtProvider]>>,
    /// The provider for routes without a policy.
    default: Option<Arc<str>>,
}

/// The token that a route requires.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Required {
    /// A token from the host's default provider, if it has one.
    #[default]
    Default,
    /// No token.
    Nothing,
    /// A token from this provider.
    Of(Arc<str>),
}

impl Providers {
    /// The provider whose token is required, if any; an error if the provider doesn't exist.
    pub(super) fn provider(&self, required: &Required) -> Result<Option<Arc<str>>, Arc<str>> {
        match required {
            Required::Default => Ok(self.default.clone()),
            Required::Nothing => Ok(None),
            Required::Of(name) => {
                let index = self.names.iter().position(|own| own == name);
                let all = self.all.as_deref().unwrap_or_default();
                match index.and_then(|index| all.get(index)) {
                    Some(provider) => Ok(Some(Arc::clone(&provider.name))),
                    None => Err(Arc::clone(name)),
                }
            }
        }
    }
}

/// Reads the policy of a route.
pub(super) fn required(
    field: &str,
    policy: Option<&JwtVerificationPolicy>,
    findings: &mut Findings,
) -> Required {
    match policy {
        None => Required::Default,
        Some(JwtVerificationPolicy {
            require: Some(_),
            disabled: true,
        }) => {
            let message = "require and disabled are mutually exclusive; remove one of them";
            findings.refuse(
                About::JWT,
                &format!("{field}.jwtVerificationPolicy"),
                message,
            );
            Required::Default
        }
        Some(JwtVerificationPolicy { disabled: true, .. }) => Required::Nothing,
        Some(JwtVerificationPolicy { require, .. }) => {
            require.clone().map_or(Required::Default, Required::Of)
        }
    }
}

/// The JWKS in Secrets, whether or not the HTTPProxy may use them.
pub(super) fn entries(proxy: &HTTPProxy) -> impl Iterator<Item = JwksEntry> {
    let host = proxy.spec.virtual_host.as_deref();
    let providers = host.into_iter().flat_map(|host| &host.jwt_providers);
    providers.filter_map(|provider| {
        let local = provider.local_jwks.as_deref()?;
        let secret = secrets::named(&proxy.meta.namespace, &local.secret_name)?;
        Some((secret, Arc::clone(&local.key)))
    })
}

/// The clusters of JWKS servers.
pub(super) fn clusters(proxy: &HTTPProxy) -> Vec<ClusterKey> {
    let scratch = &mut Findings::default();
    let host = proxy.spec.virtual_host.as_deref();
    let providers = host.into_iter().flat_map(|host| &host.jwt_providers);
    let remote = providers.filter_map(|provider| provider.remote_jwks.as_deref());
    remote
        .filter_map(|remote| cluster(FIELD, proxy, remote, scratch))
        .collect()
}

/// Reads the providers of a host. `verifies`: Envoy terminates the host's TLS connections and doesn't forward them.
pub(super) fn read(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    proxy: &HTTPProxy,
    verifies: bool,
    findings: &mut Findings,
) -> Providers {
    let host = proxy.spec.virtual_host.as_deref();
    let declared = host.map_or(&[][..], |host| &host.jwt_providers);
    if declared.is_empty() {
        return Providers::default();
    }
    if !verifies {
        let message = "needs TLS terminated by Envoy; set spec.virtualhost.tls.secretName, and remove spec.tcpproxy";
        findings.refuse(About::JWT, FIELD, message);
    }
    let (mut names, mut all) = (Vec::new(), Vec::new());
    let mut default = None;
    let mut size = 0;
    for (index, provider) in declared.iter().enumerate() {
        let field = format!("{FIELD}[{index}]");
        if declared[..index]
            .iter()
            .any(|other| other.name == provider.name)
        {
            let message = format!("another provider has the name {:?}", provider.name);
            findings.refuse(About::JWT, &format!("{field}.name"), message);
        }
        let name: Arc<str> = format!("{}/{}", proxy.meta.namespaced_name(), provider.name).into();
        if provider.default && default.replace(Arc::clone(&name)).is_some() {
            let message = "only one provider can be the default; change the others";
            findings.refuse(About::JWT, &format!("{field}.default"), message);
        }
        let keys = match (&provider.remote_jwks, &provider.local_jwks) {
            (Some(remote), None) => {
                let field = format!("{field}.remoteJWKS");
                self::remote(reader, of, proxy, (&field, remote), findings).map(JwtKeys::Remote)
            }
            (None, Some(local)) => {
                let field = format!("{field}.localJWKS");
                self::local(reader, of, proxy, (&field, local), findings).map(JwtKeys::Inline)
            }
            _ => {
                let message = "exactly one of remoteJWKS and localJWKS is required";
                findings.refuse(About::JWT, &field, message);
                None
            }
        };
        let uri = provider.remote_jwks.iter().map(|remote| &remote.uri);
        let texts = provider.issuer.iter().chain(&provider.audiences).chain(uri);
        size += texts.map(|text| text.len()).sum::<usize>();
        match &keys {
            Some(JwtKeys::Inline(keys)) => size += keys.len(),
            Some(JwtKeys::Remote(_)) => {}
            None => findings.count_refusal(),
        }
        let Some(keys) = keys else {
            continue;
        };
        names.push(Arc::clone(&provider.name));
        all.push(JwtProvider {
            name,
            issuer: provider.issuer.clone().filter(|issuer| !issuer.is_empty()),
            audiences: provider.audiences.clone(),
            keys,
            forward: provider.forward_jwt,
        });
    }
    if size > MAX_SIZE {
        let message = format!(
            "the keys, issuers, audiences and URIs total {size} bytes; at most {MAX_SIZE} are allowed"
        );
        findings.refuse(About::JWT, FIELD, message);
    }
    Providers {
        names: names.into(),
        all: Some(all.into()),
        default,
    }
}

fn local(
    reader: &mut Reader<'_>,
    (inputs, sources): (Inputs, Sources),
    proxy: &HTTPProxy,
    (field, local): (&str, &LocalJwks),
    findings: &mut Findings,
) -> Option<Arc<str>> {
    let name = format!("{field}.secretName");
    let name = (About::JWT, name.as_str(), &*local.secret_name);
    let secret = secrets::permitted(reader, inputs, &proxy.meta.namespace, name, findings)?;
    let state = reader.get(sources.jwks, &(secret.clone(), Arc::clone(&local.key)));
    let why = match state.as_deref() {
        Some(Ok(keys)) => return Some(Arc::clone(keys)),
        Some(Err(why)) => why,
        None => "does not exist",
    };
    findings.error(About::JWT, field, format!("Secret {secret} {why}"));
    None
}

fn remote(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    proxy: &HTTPProxy,
    (field, remote): (&str, &RemoteJwks),
    findings: &mut Findings,
) -> Option<RemoteKeys> {
    let cluster = cluster(field, proxy, remote, findings);
    let mut limit = |part: &str, text: Option<&str>, default: Duration| match durations::read_limit(
        text.unwrap_or_default(),
    ) {
        Some(Limit::Default) => Some(default),
        Some(Limit::After(limit)) => Some(limit),
        Some(Limit::Infinite) | None => {
            let text = text.unwrap_or_default();
            let message = format!("{text:?} is not a duration such as 5s or 1m30s");
            findings.refuse(About::JWT, &format!("{field}.{part}"), message);
            None
        }
    };
    let timeout = limit("timeout", remote.timeout.as_deref(), TIMEOUT);
    let cache = limit("cacheDuration", remote.cache_duration.as_deref(), CACHE);
    let (cluster, timeout, cache) = (cluster?, timeout?, cache?);
    match services::target(reader, of, field, &cluster, findings) {
        Some((Target::Cluster(cluster), _)) => Some(RemoteKeys {
            cluster,
            uri: Arc::clone(&remote.uri),
            timeout,
            cache,
        }),
        _ => None,
    }
}

/// The cluster of a JWKS server; `None` if a field is invalid.
fn cluster(
    field: &str,
    proxy: &HTTPProxy,
    remote: &RemoteJwks,
    findings: &mut Findings,
) -> Option<ClusterKey> {
    let server = Server::of(&remote.uri);
    if let Err(problem) = &server {
        let message = format!("{problem}; use a URI such as https://example.com/jwks.json");
        findings.refuse(About::JWT, &format!("{field}.uri"), message);
    }
    let families = match &remote.dns_lookup_family {
        None | Some(DnsLookupFamily::All) => AddressFamilies::All,
        Some(DnsLookupFamily::Auto) => AddressFamilies::Auto,
        Some(DnsLookupFamily::V4) => AddressFamilies::V4,
        Some(DnsLookupFamily::V6) => AddressFamilies::V6,
        Some(other) => {
            let message = format!("{:?} is unknown; use auto, v4, v6 or all", other.as_str());
            findings.refuse(About::JWT, &format!("{field}.dnsLookupFamily"), message);
            AddressFamilies::All
        }
    };
    let namespace = &proxy.meta.namespace;
    let before = findings.refusals();
    let validation = remote.validation.as_deref();
    let validation = validation.and_then(|validation| {
        let field = format!("{field}.validation");
        services::validation(&field, validation, namespace, findings)
    });
    let server = server.ok().filter(|_| findings.refusals() == before)?;
    if !server.tls && validation.is_some() {
        let message = "has no effect, since the URI's scheme is http; use https";
        findings.warn(About::JWT, &format!("{field}.validation"), message);
    }
    let tls = server
        .tls
        .then(|| validation.unwrap_or(TlsSettings::Unverified));
    Some(ClusterKey {
        namespace: Arc::clone(namespace),
        backend: BackendName::Host(Arc::new(ExternalHost {
            hostname: server.hostname.into(),
            port: server.port,
            families,
        })),
        policy: tls.map(|tls| {
            Arc::new(ClusterPolicy {
                tls: Some(tls),
                ..ClusterPolicy::default()
            })
        }),
    })
}

/// The server in a URI.
#[derive(Debug, PartialEq)]
struct Server<'a> {
    tls: bool,
    hostname: &'a str,
    port: u16,
}

impl<'a> Server<'a> {
    fn of(uri: &'a str) -> Result<Self, &'static str> {
        if !uri.bytes().all(|byte| byte.is_ascii_graphic()) || uri.contains('#') {
            return Err("it contains characters that are not valid in a server URI");
        }
        let (rest, tls) = match (uri.strip_prefix("https://"), uri.strip_prefix("http://")) {
            (Some(rest), _) => (rest, true),
            (_, Some(rest)) => (rest, false),
            (None, None) => return Err("its scheme is neither https nor http"),
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let (hostname, port) = match authority.rsplit_once(':') {
            Some((hostname, port)) => (hostname, read_port(port)),
            None => (authority, Some(if tls { 443 } else { 80 })),
        };
        let port = port.ok_or("its port is not a number from 1 to 65535")?;
        if !is_precise_hostname(hostname) {
            return Err("its host is not a lowercase domain name");
        }
        match hostname::not_external(hostname) {
            Some("is not a domain name") => Err("its host is not a domain name"),
            Some(_) => Err("its host is localhost"),
            None => Ok(Self {
                tls,
                hostname,
                port,
            }),
        }
    }
}

fn read_port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| *port != 0);
    port.filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_of_a_uri_is_a_domain_name() {
        let server = |tls, hostname, port| {
            Ok(Server {
                tls,
                hostname,
                port,
            })
        };
        for (uri, expected) in [
            ("https://a.com/jwks?x=1", server(true, "a.com", 443)),
            ("https://a.com:8443", server(true, "a.com", 8443)),
            ("http://keys.auth.svc/", server(false, "keys.auth.svc", 80)),
        ] {
            assert_eq!(Server::of(uri), expected, "{uri}");
        }
        for uri in [
            "",
            "a.com",
            "ftp://a.com/",
            "https://",
            "https:///x",
            "https://*.a.com/",
            "https://A.com/",
            "https://user@a.com/",
            "https://a.com:0/",
            "https://a.com:+1/",
            "https://a.com:65536/",
            "https://a.com?x",
            "https://a.com/#x",
            "https://a.com/ x",
            "https://a.com/ü",
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://localhost/",
            "https://a.localhost:9901/",
        ] {
            assert!(Server::of(uri).is_err(), "{uri}");
        }
    }
}
