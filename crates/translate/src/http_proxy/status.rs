//! Statuses of HTTPProxies.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_api::{
    Condition, ConditionStatus, HTTPProxy, HttpProxyState, HttpProxyStatus, LoadBalancerStatus,
    SubCondition, condition::own,
};

use super::findings::{About, Finding, Severity};
use crate::problem::bounded;

/// The maximum number of messages of one type; further ones are counted.
const MAX_MESSAGES: usize = 20;

/// The status of an HTTPProxy. `orphaned`: it has no host, and no HTTPProxy with a host includes it.
pub(super) fn status(
    proxy: &HTTPProxy,
    mut findings: Vec<Finding>,
    orphaned: bool,
    load_balancer: Option<LoadBalancerStatus>,
) -> Arc<HttpProxyStatus> {
    if orphaned {
        let message =
            "no HTTPProxy that serves a host includes it; add a virtualhost, or include it";
        findings.push(Finding::error(About::ORPHANED, "spec", message));
    }
    let errors = of_severity(&findings, Severity::Error);
    let warnings = of_severity(&findings, Severity::Warning);
    let (state, reason, description) = match (orphaned, errors.is_empty()) {
        (true, _) => (
            HttpProxyState::Orphaned,
            "Orphaned",
            "No HTTPProxy that serves a host includes it.",
        ),
        (false, true) => (HttpProxyState::Valid, "Valid", "All of it is in effect."),
        (false, false) => (
            HttpProxyState::Invalid,
            "Invalid",
            "A part of it is not in effect; the errors of condition Valid say why.",
        ),
    };
    let valid = state == HttpProxyState::Valid;
    let mut condition = Condition::new(
        own::VALID,
        valid,
        reason,
        description,
        proxy.meta.generation,
    );
    condition.errors = errors;
    condition.warnings = warnings;
    Arc::new(HttpProxyStatus {
        current_status: Some(state),
        description: description.to_owned(),
        load_balancer,
        conditions: vec![condition],
    })
}

/// The findings of a severity, one entry for each type.
fn of_severity(findings: &[Finding], severity: Severity) -> Box<[SubCondition]> {
    let mut by_type: BTreeMap<&'static str, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        let list = by_type.entry(finding.type_).or_default();
        // A list has few entries, unless a Service with many routes is missing.
        let known = list.iter().any(|other| other.message == finding.message);
        if finding.severity == severity && !known {
            list.push(finding);
        }
    }
    let entries = by_type.into_iter().filter(|(_, list)| !list.is_empty());
    entries.map(|(type_, list)| entry(type_, &list)).collect()
}

fn entry(type_: &'static str, findings: &[&Finding]) -> SubCondition {
    let reason = findings.first().map_or("", |first| first.reason);
    let same = findings.iter().all(|finding| finding.reason == reason);
    let shown = findings.iter().take(MAX_MESSAGES);
    let mut messages: Vec<String> = shown.map(|finding| finding.message.clone()).collect();
    let others = findings.len() - messages.len();
    if others > 0 {
        messages.push(format!("and {others} more"));
    }
    SubCondition {
        type_: type_.into(),
        status: ConditionStatus::True,
        reason: if same { reason } else { "SeveralReasons" }.into(),
        message: bounded(messages.join(", ")).into(),
    }
}
