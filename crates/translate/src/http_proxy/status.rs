//! Statuses of HTTPProxies.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use sesame_api::{
    Condition, ConditionStatus, HTTPProxy, HttpProxyState, HttpProxyStatus, LoadBalancerStatus,
    SubCondition, condition::own,
};

use super::findings::{About, Finding, MAX_OF_TYPE, Severity};
use crate::problem::bounded;

/// The status of an HTTPProxy. `orphaned`: it doesn't have a host, and no HTTPProxy with a host includes it.
pub(super) fn status(
    proxy: &HTTPProxy,
    mut findings: Vec<Finding>,
    orphaned: bool,
    load_balancer: Option<LoadBalancerStatus>,
) -> Arc<HttpProxyStatus> {
    if orphaned {
        let message = "no root HTTPProxy includes this HTTPProxy; \
                       add a virtualhost, or include it in another HTTPProxy";
        findings.push(Finding::error(About::ORPHANED, "spec", message));
    }
    let mut condition = whole(&findings, proxy.meta.generation);
    let state = match (orphaned, condition.is_true()) {
        (true, _) => {
            condition.reason = "Orphaned".into();
            condition.message = "No root HTTPProxy includes this HTTPProxy.".into();
            HttpProxyState::Orphaned
        }
        (false, true) => HttpProxyState::Valid,
        (false, false) => HttpProxyState::Invalid,
    };
    Arc::new(HttpProxyStatus {
        current_status: Some(state),
        description: condition.message.to_string(),
        load_balancer,
        conditions: vec![condition],
    })
}

/// The status of an HTTPProxy of Contour's group that is superseded by an HTTPProxy of Sesame's group.
pub(super) fn superseded(proxy: &HTTPProxy) -> Arc<HttpProxyStatus> {
    status(proxy, vec![supersession()], false, None)
}

/// The error for an object of Contour's group that is superseded by an object of Sesame's group.
pub(super) fn supersession() -> Finding {
    let message = "not in effect: the projectsesame.io object with the same name takes precedence; \
                   delete one of the two objects";
    Finding::error(About::SUPERSEDED, "spec", message)
}

/// The `Valid` condition.
pub(super) fn whole(findings: &[Finding], generation: i64) -> Condition {
    let errors = of_severity(findings, Severity::Error);
    let (reason, message) = match errors.is_empty() {
        true => ("Valid", "The entire object is in effect."),
        false => (
            "Invalid",
            "Part of the object is not in effect; see the errors in the Valid condition.",
        ),
    };
    let valid = errors.is_empty();
    Condition {
        errors,
        warnings: of_severity(findings, Severity::Warning),
        ..Condition::new(own::VALID, valid, reason, message, generation)
    }
}

/// Groups the findings with a severity into one entry per type.
fn of_severity(findings: &[Finding], severity: Severity) -> Box<[SubCondition]> {
    let mut by_type: BTreeMap<&'static str, (Vec<&Finding>, usize)> = BTreeMap::new();
    let mut seen = HashSet::new();
    for finding in findings {
        if finding.severity == severity {
            let (list, others) = by_type.entry(finding.type_).or_default();
            *others += finding.others;
            if seen.insert((finding.type_, &finding.message)) {
                list.push(finding);
            }
        }
    }
    let entries = by_type.into_iter();
    entries
        .map(|(type_, (list, others))| entry(type_, &list, others))
        .collect()
}

fn entry(type_: &'static str, findings: &[&Finding], others: usize) -> SubCondition {
    let reason = findings.first().map_or("", |first| first.reason);
    let same = findings.iter().all(|finding| finding.reason == reason);
    let shown = findings.iter().take(MAX_OF_TYPE);
    let mut messages: Vec<String> = shown.map(|finding| finding.message.clone()).collect();
    let others = findings.len() - messages.len() + others;
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

#[cfg(test)]
mod tests {
    use super::super::findings::Findings;
    use super::*;

    #[test]
    fn further_findings_of_a_type_are_counted() {
        let mut findings = Findings::default();
        for n in 0..50 {
            findings.error(About::ACTION, &n.to_string(), "a");
            findings.error(About::ACTION, "same", "a");
        }
        findings.warn(About::ACTION, "w", "a");
        findings.error(About::TLS, "t", "a");
        assert_eq!(findings.list.len(), MAX_OF_TYPE + 2);
        let errors = of_severity(&findings.list, Severity::Error);
        let messages: Vec<&str> = errors.iter().map(|entry| &*entry.message).collect();
        assert_eq!(
            messages,
            [
                "0: a, same: a, 1: a, 2: a, 3: a, 4: a, 5: a, 6: a, 7: a, 8: a, 9: a, and 80 more",
                "t: a"
            ]
        );
    }
}
