//! Fields that aren't supported yet. They fail closed: what they apply to answers 503, and the status says so.

use sesame_api::{HttpProxyRoute, HttpProxyVirtualHost};

use super::findings::{About, Findings};

/// The end of all messages.
const LATER: &str = "is not supported yet; until it is, or the field is removed, requests get 503";

/// Refuses unsupported fields of a host, which affect all its routes.
pub(super) fn of_host(field: &str, host: &HttpProxyVirtualHost, findings: &mut Findings) {
    let global = host.rate_limit_policy.as_deref();
    for (used, type_, name) in [(global.is_some(), "VirtualHostError", "rateLimitPolicy")] {
        refuse(used, type_, &format!("{field}.{name}"), findings);
    }
}

/// Refuses unsupported fields of a route.
pub(super) fn of_route(field: &str, route: &HttpProxyRoute, findings: &mut Findings) {
    let rate = route.rate_limit_policy.as_deref();
    let used = rate.is_some_and(|rate| rate.global.is_some());
    let field = format!("{field}.rateLimitPolicy.global");
    refuse(used, "RouteError", &field, findings);
}

fn refuse(used: bool, type_: &'static str, field: &str, findings: &mut Findings) {
    if used {
        findings.refuse(About(type_, "Unsupported"), field, LATER);
    }
}
