//! One stream's subscription to one type.
//!
//! Follows the xDS protocol, "How the client specifies what resources to return": `*` subscribes to all resources, as
//! does a first request without names for some types. Clients may also subscribe to names, and unsubscribe from them
//! individually.

use std::collections::HashSet;
use std::sync::Arc;

use crate::resource::ResourceType;
use crate::shrink;

const WILDCARD: &str = "*";

/// One stream's subscription to one type.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    /// Whether the client has sent a request for this type.
    started: bool,
    wildcard: bool,
    names: HashSet<Arc<str>>,
    /// The sum of the names' [`size`]s.
    size: usize,
}

/// How much a name counts towards a fleet's limit on names.
pub(crate) fn size(name: &str) -> usize {
    1 + name.len() / 128
}

/// The effect of one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SubscriptionChange {
    /// Whether this was the first request for the type on this stream.
    pub(crate) first: bool,
    pub(crate) wildcard_added: bool,
    pub(crate) wildcard_removed: bool,
    /// The names that the request subscribed to, including repeated ones: all need a response.
    pub(crate) subscribed: Vec<Arc<str>>,
    pub(crate) unsubscribed: Vec<Arc<str>>,
}

impl Subscription {
    /// Applies the names in a request. `shared` interns a name.
    pub(crate) fn request(
        &mut self,
        ty: ResourceType,
        subscribe: &[String],
        unsubscribe: &[String],
        shared: impl Fn(&str) -> Arc<str>,
    ) -> SubscriptionChange {
        let was_wildcard = self.wildcard;
        let mut change = SubscriptionChange {
            first: !self.started,
            ..SubscriptionChange::default()
        };
        if change.first && subscribe.is_empty() && ty.legacy_wildcard() {
            self.wildcard = true;
        }
        self.started = true;
        for name in subscribe {
            if name == WILDCARD {
                self.wildcard = true;
            } else if !name.is_empty() {
                let name = match self.names.get(name.as_str()) {
                    Some(known) => Arc::clone(known),
                    None => shared(name),
                };
                if self.names.insert(Arc::clone(&name)) {
                    self.size += size(&name);
                }
                change.subscribed.push(name);
            }
        }
        for name in unsubscribe {
            if name == WILDCARD {
                self.wildcard = false;
            } else if let Some(name) = self.names.take(name.as_str()) {
                self.size -= size(&name);
                change.subscribed.retain(|other| *other != name);
                change.unsubscribed.push(name);
            }
        }
        change.wildcard_added = self.wildcard && !was_wildcard;
        change.wildcard_removed = was_wildcard && !self.wildcard;
        change
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        shrink::set(&mut self.names);
    }

    /// The sum of the names' [`size`]s.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn started(&self) -> bool {
        self.started
    }

    pub(crate) fn wildcard(&self) -> bool {
        self.wildcard
    }

    /// Whether the client subscribed to this name explicitly and so needs a response even if there is no such resource.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether the subscription covers this name, explicitly or by wildcard.
    pub(crate) fn covers(&self, name: &str) -> bool {
        self.wildcard || self.has_name(name)
    }

    /// The explicitly subscribed names.
    pub(crate) fn names(&self) -> &HashSet<Arc<str>> {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn request(
        sub: &mut Subscription,
        ty: ResourceType,
        add: &[&str],
        del: &[&str],
    ) -> SubscriptionChange {
        sub.request(ty, &strings(add), &strings(del), |name| name.into())
    }

    #[test]
    fn a_first_request_without_names_is_a_wildcard_for_some_types() {
        for ty in ResourceType::ALL {
            let mut sub = Subscription::default();
            assert_eq!(
                request(&mut sub, ty, &[], &[]).wildcard_added,
                ty.legacy_wildcard()
            );
            let again = request(&mut sub, ty, &[], &[]);
            assert!(!again.wildcard_added && !again.first);
        }
    }

    #[test]
    fn only_a_first_request_without_names_is_a_wildcard() {
        let mut sub = Subscription::default();
        assert!(!request(&mut sub, ResourceType::Cluster, &["a"], &[]).wildcard_added);
        assert!(!request(&mut sub, ResourceType::Cluster, &[], &[]).wildcard_added);
        assert!(sub.covers("a") && !sub.covers("b"));
    }

    #[test]
    fn the_wildcard_and_names_are_unsubscribed_from_independently() {
        let mut sub = Subscription::default();
        let ty = ResourceType::Endpoint;
        let change = request(&mut sub, ty, &["*", "a", "b"], &[]);
        assert!(change.wildcard_added && change.first);
        assert_eq!(change.subscribed, ["a".into(), "b".into()]);
        let change = request(&mut sub, ty, &[], &["*", "b", "never"]);
        assert!(change.wildcard_removed);
        assert_eq!(change.unsubscribed, ["b".into()]);
        assert!(sub.covers("a") && !sub.covers("b"));
        assert!(request(&mut sub, ty, &["*"], &[]).wildcard_added);
    }

    #[test]
    fn subscribing_and_unsubscribing_in_one_request_has_no_effect() {
        let mut sub = Subscription::default();
        let change = request(&mut sub, ResourceType::Route, &["a", "*"], &["a", "*"]);
        assert_eq!(
            (
                change.subscribed.len(),
                change.wildcard_added,
                change.wildcard_removed
            ),
            (0, false, false)
        );
        assert!(!sub.covers("a"));
    }

    #[test]
    fn a_repeated_subscription_needs_a_response() {
        let mut sub = Subscription::default();
        request(&mut sub, ResourceType::Route, &["a"], &[]);
        assert_eq!(
            request(&mut sub, ResourceType::Route, &["a"], &[]).subscribed,
            ["a".into()]
        );
    }
}
