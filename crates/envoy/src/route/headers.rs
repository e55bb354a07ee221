//! Header modifications.

use std::borrow::Cow;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};
use sesame_model::{Action, HeaderChanges, HeaderLists, Route, WeightedTarget};

/// Modifications as Envoy fields. Envoy removes first, then adds in order.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) add: Vec<HeaderValueOption>,
    pub(super) remove: Vec<String>,
}

/// Values are literal, except for computed ones: percent signs are doubled to escape Envoy's `%…%` substitution. Host
/// and pseudo-headers are omitted, since Envoy rejects tables that name them here.
pub(super) fn changes(changes: &HeaderChanges) -> Changes {
    let formatted = |name: &str, value: String, action: HeaderAppendAction| HeaderValueOption {
        keep_empty_value: value.is_empty(),
        header: Some(HeaderValue {
            key: name.to_owned(),
            value,
            ..Default::default()
        }),
        append_action: action.into(),
        ..Default::default()
    };
    let option = |name: &str, value: &str, action: HeaderAppendAction| {
        formatted(name, value.replace('%', "%%"), action)
    };
    let set = changes
        .set
        .iter()
        .filter(|(name, _)| !is_reserved(name))
        .map(|(name, value)| option(name, value, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let computed = changes
        .computed
        .iter()
        .filter(|(name, _)| !is_reserved(name))
        .map(|(name, value)| {
            formatted(
                name,
                value.clone(),
                HeaderAppendAction::OverwriteIfExistsOrAdd,
            )
        });
    let add = changes
        .add
        .iter()
        .filter(|(name, _)| !is_reserved(name))
        .map(|(name, value)| option(name, value, HeaderAppendAction::AppendIfExistsOrAdd));
    Changes {
        add: set.chain(computed).chain(add).collect(),
        remove: changes
            .remove
            .iter()
            .filter(|name| !is_reserved(name))
            .cloned()
            .collect(),
    }
}

/// The route with its modifications in the right order. A backend's modifications should apply after the route's, but
/// Envoy applies the backend's first, so the route would win for headers that both modify. If there are any such
/// headers, the route's modifications move to its backends.
pub(super) fn in_order(route: &Route) -> Cow<'_, Route> {
    let Action::Forward(forward) = &route.action else {
        return Cow::Borrowed(route);
    };
    let any = |own: &HeaderChanges, of: fn(&WeightedTarget) -> &HeaderChanges| {
        forward
            .targets
            .iter()
            .any(|target| touch_the_same(own, of(target)))
    };
    let request = any(&route.request_headers, |target| &target.request_headers);
    let response = any(&route.response_headers, |target| &target.response_headers);
    if !request && !response {
        return Cow::Borrowed(route);
    }
    let mut route = route.clone();
    let Route {
        action: Action::Forward(forward),
        request_headers,
        response_headers,
        ..
    } = &mut route
    else {
        return Cow::Owned(route);
    };
    for target in &mut Arc::make_mut(forward).targets {
        if request {
            target.request_headers = one_after_the_other(request_headers, &target.request_headers);
        }
        if response {
            target.response_headers =
                one_after_the_other(response_headers, &target.response_headers);
        }
    }
    if request {
        *request_headers = HeaderChanges::default();
    }
    if response {
        *response_headers = HeaderChanges::default();
    }
    Cow::Owned(route)
}

/// Modifications equivalent to `first` followed by `then`.
fn one_after_the_other(first: &HeaderChanges, then: &HeaderChanges) -> HeaderChanges {
    let undone = |name: &str| {
        let set = then.set.iter().chain(&then.computed);
        let set = set.map(|(other, _)| other);
        set.chain(&then.remove)
            .any(|other| other.eq_ignore_ascii_case(name))
    };
    let both = |first: &[(String, String)], then: &[(String, String)]| {
        let kept = first.iter().filter(|(name, _)| !undone(name));
        kept.chain(then).cloned().collect()
    };
    let lists = HeaderLists {
        set: both(&first.set, &then.set),
        computed: both(&first.computed, &then.computed),
        add: both(&first.add, &then.add),
        remove: first.remove.iter().chain(&then.remove).cloned().collect(),
    };
    lists.into()
}

fn touch_the_same(one: &HeaderChanges, other: &HeaderChanges) -> bool {
    let touched = |name: &str| names(other).any(|other| other.eq_ignore_ascii_case(name));
    names(one).any(touched)
}

fn names(changes: &HeaderChanges) -> impl Iterator<Item = &str> {
    let named = changes.set.iter().chain(&changes.computed);
    let named = named.chain(&changes.add);
    named
        .map(|(name, _)| name.as_str())
        .chain(changes.remove.iter().map(String::as_str))
}

fn is_reserved(name: &str) -> bool {
    name.is_empty() || name.starts_with(':') || name.eq_ignore_ascii_case("host")
}
