//! Errors and warnings about an HTTPProxy, for its status.

use std::collections::BTreeMap;

use crate::problem::FieldError;

/// The maximum number of findings per severity and type in a status; further findings are only counted.
pub(super) const MAX_OF_TYPE: usize = 20;

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// The type in the status, which names the affected part.
    pub(super) type_: &'static str,
    /// The reason, in CamelCase.
    pub(super) reason: &'static str,
    /// The field, the problem, and how to fix it.
    pub(super) message: String,
    /// The number of further findings of this severity and type, which are only counted.
    pub(super) others: usize,
}

/// Whether a finding makes an HTTPProxy invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Part of the HTTPProxy is not in effect.
    Error,
    /// The HTTPProxy is in effect, but probably not as intended.
    Warning,
}

/// The type and reason of errors in one part of an HTTPProxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct About(pub(super) &'static str, pub(super) &'static str);

impl About {
    pub(super) const CONDITIONS: Self = Self("RouteError", "InvalidConditions");
    pub(super) const ACTION: Self = Self("RouteError", "InvalidAction");
    pub(super) const TIMEOUT: Self = Self("RouteError", "InvalidTimeout");
    pub(super) const RETRY: Self = Self("RouteError", "InvalidRetryPolicy");
    pub(super) const HEALTH: Self = Self("RouteError", "InvalidHealthCheckPolicy");
    pub(super) const BALANCING: Self = Self("RouteError", "InvalidLoadBalancerPolicy");
    pub(super) const HEADERS: Self = Self("RouteError", "InvalidHeadersPolicy");
    pub(super) const COOKIES: Self = Self("RouteError", "InvalidCookieRewritePolicy");
    pub(super) const RATE: Self = Self("RouteError", "InvalidRateLimitPolicy");
    pub(super) const HOST_RATE: Self = Self("VirtualHostError", "InvalidRateLimitPolicy");
    pub(super) const PREFIX: Self = Self("PrefixReplaceError", "InvalidReplacement");
    pub(super) const SOURCES: Self = Self("IPFilterError", "InvalidIPFilter");
    pub(super) const AUTH: Self = Self("AuthError", "InvalidAuthorization");
    pub(super) const AUTH_SERVICE: Self = Self("AuthError", "ExtensionServiceNotUsable");
    pub(super) const CORS: Self = Self("CORSError", "InvalidCORSPolicy");
    pub(super) const SERVICE: Self = Self("ServiceError", "InvalidService");
    pub(super) const UNRESOLVED: Self = Self("ServiceError", "ServiceNotFound");
    pub(super) const SERVICE_COOKIES: Self = Self("ServiceError", "InvalidCookieRewritePolicy");
    pub(super) const SLOW_START: Self = Self("ServiceError", "InvalidSlowStartPolicy");
    pub(super) const VALIDATION: Self = Self("ServiceError", "InvalidValidation");
    pub(super) const CLIENT_CERTIFICATE: Self = Self("ServiceError", "InvalidClientCertificate");
    pub(super) const INCLUDE: Self = Self("IncludeError", "InvalidInclude");
    pub(super) const CYCLE: Self = Self("IncludeError", "IncludeCycle");
    pub(super) const INCLUDED_ROOT: Self = Self("IncludeError", "IncludesRoot");
    pub(super) const MISSING_INCLUDE: Self = Self("IncludeError", "IncludeNotFound");
    pub(super) const DUPLICATE_INCLUDE: Self = Self("IncludeError", "DuplicateConditions");
    pub(super) const LIMIT: Self = Self("IncludeError", "LimitExceeded");
    pub(super) const SIZE: Self = Self("RouteError", "LimitExceeded");
    pub(super) const HOST: Self = Self("VirtualHostError", "InvalidHost");
    pub(super) const ROOT_NAMESPACE: Self = Self("RootNamespaceError", "RootNotPermitted");
    pub(super) const DUPLICATE_HOST: Self = Self("VirtualHostError", "DuplicateHost");
    pub(super) const TLS: Self = Self("TLSError", "InvalidTLS");
    pub(super) const CERTIFICATE: Self = Self("TLSError", "InvalidCertificate");
    pub(super) const CLIENTS: Self = Self("TLSError", "InvalidClientValidation");
    pub(super) const JWT: Self = Self("JWTVerificationError", "InvalidJWTVerification");
    pub(super) const TCP: Self = Self("TCPProxyError", "InvalidTCPProxy");
    pub(super) const TCP_BALANCING: Self = Self("TCPProxyError", "InvalidLoadBalancerPolicy");
    pub(super) const TCP_INCLUDE: Self = Self("TCPProxyIncludeError", "InvalidInclude");
    pub(super) const EXTENSION_BALANCING: Self = Self("SpecError", "InvalidLoadBalancerPolicy");
    pub(super) const EXTENSION_TIMEOUT: Self = Self("SpecError", "InvalidTimeout");
    pub(super) const OVERLAP: Self = Self("RouteError", "Overlap");
    pub(super) const SUPERSEDED: Self = Self("SpecError", "Superseded");
    pub(super) const ORPHANED: Self = Self("Orphaned", "Orphaned");
}

impl Finding {
    /// An error in a field.
    pub(super) fn error(about: About, field: &str, message: impl AsRef<str>) -> Self {
        Self::new(Severity::Error, about, field, message.as_ref())
    }

    /// A warning about a field.
    pub(super) fn warning(about: About, field: &str, message: impl AsRef<str>) -> Self {
        Self::new(Severity::Warning, about, field, message.as_ref())
    }

    fn new(severity: Severity, about: About, field: &str, message: &str) -> Self {
        Self {
            severity,
            type_: about.0,
            reason: about.1,
            message: format!("{field}: {message}"),
            others: 0,
        }
    }
}

/// The findings about an HTTPProxy, at most [`MAX_OF_TYPE`] per severity and type.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) list: Vec<Finding>,
    /// For each severity and type: the number of findings in the list, and the index of the last of them.
    by_type: BTreeMap<(Severity, &'static str), (usize, usize)>,
    refusals: usize,
}

impl Findings {
    /// Adds an error that takes the route, or the whole host, out of service.
    pub(super) fn refuse(&mut self, about: About, field: &str, message: impl AsRef<str>) {
        self.refusals += 1;
        self.error(about, field, message);
    }

    /// Takes the route, or the whole host, out of service for an error that has already been added.
    pub(super) fn count_refusal(&mut self) {
        self.refusals += 1;
    }

    /// Adds an error that leaves the route in effect.
    pub(super) fn error(&mut self, about: About, field: &str, message: impl AsRef<str>) {
        self.add(Finding::error(about, field, message));
    }

    /// Reads a count, which Contour's CRDs don't bound.
    pub(super) fn count(&mut self, about: About, field: &str, count: i64) -> u32 {
        u32::try_from(count).unwrap_or_else(|_| {
            let message = format!("{count} is not valid; use a number from 0 to {}", u32::MAX);
            self.refuse(about, field, message);
            0
        })
    }

    /// Adds a warning.
    pub(super) fn warn(&mut self, about: About, field: &str, message: impl AsRef<str>) {
        self.add(Finding::warning(about, field, message));
    }

    /// Adds a finding.
    pub(super) fn add(&mut self, finding: Finding) {
        let of_type = (finding.severity, finding.type_);
        let (count, last) = self.by_type.entry(of_type).or_default();
        if *count == MAX_OF_TYPE {
            self.list[*last].others += 1;
            return;
        }
        *count += 1;
        *last = self.list.len();
        self.list.push(finding);
    }

    /// The findings as invalid fields.
    pub(super) fn into_field_errors(self) -> Vec<FieldError> {
        let findings = self.list.into_iter();
        findings
            .filter_map(|finding| {
                let (field, message) = finding.message.split_once(": ")?;
                Some(FieldError::new(field.to_owned(), message.to_owned()))
            })
            .collect()
    }

    /// The number of errors so far that take a route or the whole host out of service.
    pub(super) fn refusals(&self) -> usize {
        self.refusals
    }
}
