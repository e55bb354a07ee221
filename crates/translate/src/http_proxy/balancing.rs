//! Load balancing of requests and connections.

use sesame_api::{LoadBalancerPolicy, LoadBalancerStrategy, RequestHashPolicy};
use sesame_model::{Balancing, HashOf, HashPolicy};

use super::findings::{About, Findings};
use crate::shared::headers::is_token;

/// The cookie for the strategy `Cookie`.
const AFFINITY_COOKIE: &str = "X-Sesame-Session-Affinity";

/// How an endpoint is selected.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Selection {
    /// `None` for the default.
    pub(super) balancing: Option<Balancing>,
    /// The hash inputs; empty unless `balancing` is [`Balancing::Hash`].
    pub(super) hash: Vec<HashPolicy>,
}

/// Reads how requests are distributed.
pub(super) fn of_requests(
    field: &str,
    policy: Option<&LoadBalancerPolicy>,
    findings: &mut Findings,
) -> Selection {
    let Some(policy) = policy else {
        return Selection::default();
    };
    let field = format!("{field}.loadBalancerPolicy");
    let hash = match &policy.strategy {
        Some(LoadBalancerStrategy::Cookie) => vec![HashPolicy {
            of: HashOf::Cookie {
                name: AFFINITY_COOKIE.to_owned(),
                path: "/".to_owned(),
            },
            terminal: false,
        }],
        Some(LoadBalancerStrategy::RequestHash) => {
            let hash = hash(&field, &policy.request_hash_policies, findings);
            if hash.is_empty() {
                let message = "has no valid entry in requestHashPolicies; RoundRobin applies";
                findings.warn(About::BALANCING, &format!("{field}.strategy"), message);
                return only(Balancing::RoundRobin);
            }
            hash
        }
        other => return only_simple(&field, About::BALANCING, other.as_ref(), findings),
    };
    Selection {
        balancing: Some(Balancing::Hash),
        hash,
    }
}

/// Reads how connections or calls are distributed, which have nothing to hash. `user` is how messages name the object
/// that they belong to.
pub(super) fn unhashed(
    (field, about, user): (&str, About, &str),
    policy: Option<&LoadBalancerPolicy>,
    findings: &mut Findings,
) -> Selection {
    let field = format!("{field}.loadBalancerPolicy");
    match policy.map(|policy| &policy.strategy) {
        None => Selection::default(),
        Some(Some(
            strategy @ (LoadBalancerStrategy::Cookie | LoadBalancerStrategy::RequestHash),
        )) => {
            let message = format!(
                "{} hashes requests, so it can't be used with {user}; RoundRobin applies",
                strategy.as_str()
            );
            findings.warn(about, &format!("{field}.strategy"), message);
            only(Balancing::RoundRobin)
        }
        Some(strategy) => only_simple(&field, about, strategy.as_ref(), findings),
    }
}

fn only(balancing: Balancing) -> Selection {
    Selection {
        balancing: Some(balancing),
        hash: Vec::new(),
    }
}

fn only_simple(
    field: &str,
    about: About,
    strategy: Option<&LoadBalancerStrategy>,
    findings: &mut Findings,
) -> Selection {
    match strategy {
        None => Selection::default(),
        Some(LoadBalancerStrategy::RoundRobin) => only(Balancing::RoundRobin),
        Some(LoadBalancerStrategy::WeightedLeastRequest) => only(Balancing::LeastRequest),
        Some(LoadBalancerStrategy::Random) => only(Balancing::Random),
        Some(other) => {
            let message = format!(
                "unknown strategy {:?}; RoundRobin applies. Use one of {}",
                other.as_str(),
                LoadBalancerStrategy::KNOWN.join(", ")
            );
            findings.warn(about, &format!("{field}.strategy"), message);
            only(Balancing::RoundRobin)
        }
    }
}

fn hash(field: &str, policies: &[RequestHashPolicy], findings: &mut Findings) -> Vec<HashPolicy> {
    let mut hash: Vec<HashPolicy> = Vec::new();
    for (index, policy) in policies.iter().enumerate() {
        let field = format!("{field}.requestHashPolicies[{index}]");
        match part(policy) {
            Ok(of) if hash.iter().any(|other| other.of == of) => {
                let message = "repeats an earlier entry and is ignored";
                findings.warn(About::BALANCING, &field, message);
            }
            // Envoy parses the query again for each.
            Ok(HashOf::Query(_))
                if hash
                    .iter()
                    .any(|other| matches!(other.of, HashOf::Query(_))) =>
            {
                let message = "is ignored, since an earlier entry has a query parameter";
                findings.warn(About::BALANCING, &field, message);
            }
            Ok(of) => hash.push(HashPolicy {
                of,
                terminal: policy.terminal,
            }),
            Err(message) => findings.warn(About::BALANCING, &field, message),
        }
    }
    hash
}

fn part(policy: &RequestHashPolicy) -> Result<HashOf, &'static str> {
    match (
        &policy.header_hash_options,
        &policy.query_parameter_hash_options,
        policy.hash_source_ip,
    ) {
        (Some(header), None, false) if is_token(&header.header_name) => {
            Ok(HashOf::Header(header.header_name.to_string()))
        }
        (Some(_), None, false) => {
            Err("headerHashOptions.headerName is not a valid header name; the entry is ignored")
        }
        (None, Some(query), false) if !query.parameter_name.is_empty() => {
            Ok(HashOf::Query(query.parameter_name.to_string()))
        }
        (None, Some(_), false) => {
            Err("queryParameterHashOptions.parameterName is empty; the entry is ignored")
        }
        (None, None, true) => Ok(HashOf::Source),
        _ => Err(
            "needs exactly one of headerHashOptions, queryParameterHashOptions and hashSourceIP; the entry is ignored",
        ),
    }
}
