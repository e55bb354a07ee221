//! CORS: which other origins may send requests.

use std::sync::Arc;
use std::time::Duration;

use sesame_api::CorsPolicy;
use sesame_model::{Cors, List, OriginMatch};

use super::findings::{About, Findings};
use crate::shared::headers::is_token;
use crate::shared::scans::ListTime;
use crate::shared::{durations, regex};

/// The default maximum age: how long browsers cache a preflight response that doesn't have one.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(5);

/// Reads the policy of a host.
pub(super) fn read(field: &str, policy: &CorsPolicy, findings: &mut Findings) -> Arc<Cors> {
    let field = format!("{field}.corsPolicy");
    if policy.allow_origin.is_empty() {
        let message = "expected at least one origin";
        findings.refuse(About::CORS, &format!("{field}.allowOrigin"), message);
    }
    if policy.allow_methods.is_empty() {
        let message = "expected at least one method";
        findings.refuse(About::CORS, &format!("{field}.allowMethods"), message);
    }
    let mut origins = Vec::new();
    let mut time = ListTime::default();
    for (index, text) in policy.allow_origin.iter().enumerate() {
        let origin = origin(text).and_then(|origin| {
            if let OriginMatch::Regex(pattern) = &origin {
                time.add(pattern)?;
            }
            Ok(origin)
        });
        match origin {
            Ok(origin) => origins.push(origin),
            Err(message) => {
                let field = format!("{field}.allowOrigin[{index}]");
                findings.refuse(About::CORS, &field, message);
            }
        }
    }
    let mut names = |part: &str, list: &[Arc<str>]| {
        for (index, name) in list.iter().enumerate() {
            if !is_token(name) {
                let field = format!("{field}.{part}[{index}]");
                let message = format!("{name:?} is not a valid name");
                findings.refuse(About::CORS, &field, message);
            }
        }
        match list.iter().any(|name| **name == *"*") {
            true => List::All,
            false => List::Only(list.iter().map(|name| name.to_string()).collect()),
        }
    };
    let methods = names("allowMethods", &policy.allow_methods);
    let headers = names("allowHeaders", &policy.allow_headers);
    let mut exposed = policy.expose_headers.clone();
    if policy.allow_credentials {
        // For requests with credentials, browsers treat `*` as a literal name.
        exposed.retain(|name| **name != *"*");
    }
    let expose = names("exposeHeaders", &exposed);
    let max_age = policy.max_age.as_deref().filter(|text| !text.is_empty());
    let max_age = max_age.map_or(Some(DEFAULT_MAX_AGE), durations::read);
    if max_age.is_none() {
        let message = "expected a duration such as 10m, or 0 to disable caching";
        findings.refuse(About::CORS, &format!("{field}.maxAge"), message);
    }
    Arc::new(Cors {
        origins,
        credentials: policy.allow_credentials,
        methods,
        headers,
        expose,
        max_age: max_age.unwrap_or_default(),
        private_network: policy.allow_private_network,
    })
}

fn origin(text: &str) -> Result<OriginMatch, String> {
    if text == "*" {
        return Ok(OriginMatch::Any);
    }
    if is_origin(text) {
        return Ok(OriginMatch::Exact(text.to_owned()));
    }
    match regex::check(text) {
        Ok(()) => Ok(OriginMatch::Regex(text.to_owned())),
        Err(reason) => Err(format!(
            "{text:?} is not * or an origin such as https://example.com, and the regular expression {reason}"
        )),
    }
}

/// Whether a text is `scheme://host[:port]`.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else {
        return false;
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let in_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let in_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(in_scheme)
        && !host.is_empty()
        && host.bytes().all(in_host)
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_exact_or_expressions() {
        let exact = |text: &str| Ok(OriginMatch::Exact(text.to_owned()));
        let pattern = |text: &str| Ok(OriginMatch::Regex(text.to_owned()));
        assert_eq!(origin("*"), Ok(OriginMatch::Any));
        for text in [
            "https://example.com",
            "http://a.b:8080",
            "http://[::1]:80",
            "HTTPS://A",
        ] {
            assert_eq!(origin(text), exact(text));
        }
        for text in [
            r"https://.*\.example\.com",
            "https://a.com/",
            ".*",
            "example.com",
        ] {
            assert_eq!(origin(text), pattern(text));
        }
        assert!(origin("https://(").is_err());
        assert!(origin("").is_err());
    }
}
