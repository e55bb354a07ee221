//! The part of `metadata` that Sesame needs, shared by all Gateway API kinds, and label selectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::key::NamespacedName;
use crate::open_enum::open_enum;

/// An object's metadata without field managers, owners and finalizers, which are unused and would
/// take most of a small object's memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// The name.
    pub name: Arc<str>,
    /// The namespace; empty for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "is_empty_str")]
    pub namespace: Arc<str>,
    /// The labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations, except kubectl's copy of the whole object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Incremented when the spec changes; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// When the object was created; the first tie-break of the Gateway API's precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// The resource version of the stored object; empty outside a cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The object's UID; empty outside a cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Set while the object waits for finalizers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
}

/// The annotations with the name of the ingress class, in order of precedence.
const INGRESS_CLASS_ANNOTATIONS: [&str; 2] = [
    "projectsesame.io/ingress.class",
    "kubernetes.io/ingress.class",
];

impl Meta {
    /// Namespace and name.
    pub fn namespaced_name(&self) -> NamespacedName {
        NamespacedName {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// The ingress class of an object with this class in its spec. Annotations take precedence, since only objects from
    /// before the field existed have both.
    pub fn ingress_class(&self, spec: Option<&Arc<str>>) -> Option<Arc<str>> {
        let annotations = INGRESS_CLASS_ANNOTATIONS
            .iter()
            .filter_map(|name| self.annotations.get(*name));
        let mut named = annotations.filter(|name| !name.is_empty());
        match named.next() {
            Some(name) => Some(name.as_str().into()),
            None => spec.filter(|name| !name.is_empty()).cloned(),
        }
    }
}

fn is_empty_str(text: &Arc<str>) -> bool {
    text.is_empty()
}

pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Selects objects by labels (meta/v1 LabelSelector). All requirements must hold; an empty
/// selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Additional requirements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement of a [`LabelSelector`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// How the value relates to `values`.
    pub operator: LabelOperator,
    /// The values for `In` and `NotIn`; empty for other operators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

open_enum! {
    /// The operator of a [`LabelRequirement`].
    pub enum LabelOperator {
        /// The label exists and its value is listed.
        In = "In",
        /// The label is missing or its value is not listed.
        NotIn = "NotIn",
        /// The label exists.
        Exists = "Exists",
        /// The label is missing.
        DoesNotExist = "DoesNotExist",
    }
}

impl LabelSelector {
    /// Whether labels satisfy every requirement; `label` returns the value of one. An unknown operator never matches,
    /// because selectors grant access.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| label(key) == Some(value))
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl LabelRequirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|listed| listed == value);
        match self.operator {
            LabelOperator::In => value.is_some_and(listed),
            LabelOperator::NotIn => value.is_none_or(|value| !listed(value)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::Other(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect()
    }

    fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
        selector.matches(|key| labels.get(key).map(String::as_str))
    }

    fn requires(operator: &str, values: &[&str]) -> LabelSelector {
        let values = values.iter().map(|v| v.to_string()).collect();
        let operator = LabelOperator::from(operator);
        let requirement = LabelRequirement {
            key: "k".to_owned(),
            operator,
            values,
        };
        LabelSelector {
            match_expressions: vec![requirement],
            ..LabelSelector::default()
        }
    }

    #[test]
    fn a_selector_matches_only_if_every_requirement_holds() {
        let (none, a, b) = (labels(&[]), labels(&[("k", "a")]), labels(&[("k", "b")]));
        for (selector, expected) in [
            (LabelSelector::default(), [true, true, true]),
            (
                LabelSelector {
                    match_labels: a.clone(),
                    ..Default::default()
                },
                [false, true, false],
            ),
            (requires("In", &["a", "c"]), [false, true, false]),
            (requires("NotIn", &["a", "c"]), [true, false, true]),
            (requires("Exists", &[]), [false, true, true]),
            (requires("DoesNotExist", &[]), [true, false, false]),
            (requires("Gt", &["1"]), [false, false, false]),
        ] {
            let matched = [&none, &a, &b].map(|labels| matches(&selector, labels));
            assert_eq!(matched, expected, "{selector:?}");
        }
        let both = LabelSelector {
            match_labels: labels(&[("x", "1")]),
            ..requires("Exists", &[])
        };
        assert!(!matches(&both, &a));
        assert!(matches(&both, &labels(&[("x", "1"), ("k", "")])));
    }
}
