//! Conditions of routes and inclusions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

/// A condition that a request must satisfy. At most one of `prefix`, `exact` and `regex` can be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.prefix), has(self.exact), has(self.regex)].filter(set, set).size() <= 1",
    "message": "at most one of prefix, exact and regex is allowed",
}])))]
#[serde(rename_all = "camelCase")]
pub struct MatchCondition {
    /// The path starts with this text, which must start with a slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 4096), regex(pattern = "^/"))
    )]
    pub prefix: Option<Arc<str>>,
    /// The path equals this text, which must start with a slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 4096), regex(pattern = "^/"))
    )]
    pub exact: Option<Arc<str>>,
    /// The whole path matches this regular expression, in RE2 syntax.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub regex: Option<Arc<str>>,
    /// A condition on a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Box<HeaderMatchCondition>>,
    /// A condition on a query parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_parameter: Option<Box<QueryParameterMatchCondition>>,
}

/// A condition on a header: the name and exactly one matcher, which is any field except `ignoreCase` and
/// `treatMissingAsEmpty`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.present) && self.present, has(self.notpresent) && self.notpresent, has(self.contains), has(self.notcontains), has(self.exact), has(self.notexact), has(self.regex)].filter(set, set).size() == 1",
    "message": "exactly one of present, notpresent, contains, notcontains, exact, notexact and regex is required",
}])))]
pub struct HeaderMatchCondition {
    /// The name of the header, case-insensitive.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub name: Arc<str>,
    /// The request has the header, with any value.
    #[serde(default, skip_serializing_if = "is_default")]
    pub present: bool,
    /// The request doesn't have the header.
    #[serde(default, skip_serializing_if = "is_default", rename = "notpresent")]
    pub not_present: bool,
    /// The value contains this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub contains: Option<Arc<str>>,
    /// The value doesn't contain this text. Requests without the header don't match, unless `treatMissingAsEmpty` is set.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "notcontains"
    )]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub not_contains: Option<Arc<str>>,
    /// The value equals this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub exact: Option<Arc<str>>,
    /// The value doesn't equal this text. Requests without the header don't match, unless `treatMissingAsEmpty` is set.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "notexact")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub not_exact: Option<Arc<str>>,
    /// The whole value matches this regular expression, in RE2 syntax.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub regex: Option<Arc<str>>,
    /// Whether `contains`, `notcontains`, `exact` and `notexact` ignore case.
    #[serde(default, skip_serializing_if = "is_default", rename = "ignoreCase")]
    pub ignore_case: bool,
    /// Whether `notcontains` and `notexact` treat a missing header as an empty value.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        rename = "treatMissingAsEmpty"
    )]
    pub treat_missing_as_empty: bool,
}

/// A condition on a query parameter: the name and exactly one matcher, which is any field except `ignoreCase`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.exact), has(self.prefix), has(self.suffix), has(self.regex), has(self.contains), has(self.present) && self.present].filter(set, set).size() == 1",
    "message": "exactly one of exact, prefix, suffix, regex, contains and present is required",
}])))]
#[serde(rename_all = "camelCase")]
pub struct QueryParameterMatchCondition {
    /// The name of the parameter, case-sensitive.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub name: Arc<str>,
    /// The value equals this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub exact: Option<Arc<str>>,
    /// The value starts with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub prefix: Option<Arc<str>>,
    /// The value ends with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub suffix: Option<Arc<str>>,
    /// The whole value matches this regular expression, in RE2 syntax.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub regex: Option<Arc<str>>,
    /// The value contains this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub contains: Option<Arc<str>>,
    /// Whether the value is compared case-insensitively; not allowed with `regex` or `present`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignore_case: bool,
    /// The request has the parameter, with any value.
    #[serde(default, skip_serializing_if = "is_default")]
    pub present: bool,
}
