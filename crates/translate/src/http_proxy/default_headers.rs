//! Changes to headers that the instance's configuration makes on all routes.
//!
//! In: the settings. Out: the changes for the routes of one object, whose own changes to the same headers take precedence.

use sesame_model::{HeaderChanges, HeaderLists};

use super::findings::Findings;
use super::headers::{self, Place};
use super::operators::Names;
use crate::problem::FieldError;
use crate::settings::HeaderDefaults;

/// The maximum length of a namespace's name.
const LONGEST_NAMESPACE: usize = 63;

/// The changes for the routes of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DefaultChanges {
    /// For forwarded requests.
    pub(crate) requests: HeaderChanges,
    /// For responses.
    pub(crate) responses: HeaderChanges,
}

/// The changes for the routes of an object in this namespace. Invalid entries have no effect; [`check`] reports them.
pub(crate) fn of_object(defaults: &HeaderDefaults, namespace: &str) -> DefaultChanges {
    read(defaults, namespace, &mut Findings::default())
}

/// The invalid fields.
pub(crate) fn check(defaults: &HeaderDefaults) -> Vec<FieldError> {
    let mut findings = Findings::default();
    read(defaults, &"n".repeat(LONGEST_NAMESPACE), &mut findings);
    findings.into_field_errors()
}

fn read(defaults: &HeaderDefaults, namespace: &str, findings: &mut Findings) -> DefaultChanges {
    let names = Names {
        namespace,
        service: None,
    };
    let mut read =
        |field, policy, place| headers::read(field, Some(policy), place, names, findings).headers;
    DefaultChanges {
        requests: read(
            "policy.requestHeaders",
            &defaults.requests,
            Place::RequestOfAll,
        ),
        responses: read(
            "policy.responseHeaders",
            &defaults.responses,
            Place::Response,
        ),
    }
}

/// An object's own changes, and the default ones for other headers.
pub(super) fn merged(own: &HeaderChanges, default: &HeaderChanges) -> HeaderChanges {
    if own.is_empty() {
        return default.clone();
    }
    if default.is_empty() {
        return own.clone();
    }
    let set = own.set.iter().chain(&own.computed).chain(&own.add);
    let named: Vec<&str> = set
        .map(|(name, _)| &**name)
        .chain(own.remove.iter().map(|name| &**name))
        .collect();
    let others = |name: &str| !named.iter().any(|own| own.eq_ignore_ascii_case(name));
    let both = |own: &[(String, String)], default: &[(String, String)]| {
        let default = default.iter().filter(|(name, _)| others(name));
        own.iter().chain(default).cloned().collect()
    };
    let removed = default.remove.iter().filter(|name| others(name));
    let lists = HeaderLists {
        set: both(&own.set, &default.set),
        add: both(&own.add, &default.add),
        computed: both(&own.computed, &default.computed),
        remove: own.remove.iter().chain(removed).cloned().collect(),
    };
    lists.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(set: &[&str], computed: &[&str], remove: &[&str]) -> HeaderChanges {
        let with_value = |names: &[&str], value: &str| {
            let names = names.iter().map(|name| (*name).to_owned());
            names.map(|name| (name, value.to_owned())).collect()
        };
        let lists = HeaderLists {
            set: with_value(set, "a"),
            computed: with_value(computed, "%PROTOCOL%"),
            add: Vec::new(),
            remove: remove.iter().map(|name| (*name).to_owned()).collect(),
        };
        lists.into()
    }

    #[test]
    fn own_changes_take_precedence_for_each_header() {
        let default = changes(&["x-a", "x-b", "X-C"], &["x-d"], &["x-e", "x-f"]);
        let none = HeaderChanges::default();
        assert_eq!(merged(&none, &default), default);
        assert_eq!(merged(&default, &none), default);
        let own = changes(&["X-A", "x-e"], &["x-c"], &["X-B", "x-D"]);
        let expected = changes(&["X-A", "x-e"], &["x-c"], &["X-B", "x-D", "x-f"]);
        assert_eq!(merged(&own, &default), expected);
    }
}
