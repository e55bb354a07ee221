//! What one client asked for of one type.
//!
//! In: the names of its requests. Out: whether it wants a name, and what a request changed.
//! It must not know: what exists, or what the client has.
//!
//! The rules are those of the xDS protocol, "How the client specifies what resources to return":
//! `*` asks for all, so does a first request without names for some types; names may be asked for
//! besides; each is taken back by its own name.

use std::collections::HashSet;
use std::sync::Arc;

use crate::resource::ResourceType;
use crate::thrift;

/// The name that stands for all.
const WILDCARD: &str = "*";

/// What one client asked for of one type.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    /// The client has sent a request of this type.
    started: bool,
    wildcard: bool,
    names: HashSet<Arc<str>>,
}

/// What one request changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// It was the first request of the type on this stream.
    pub(crate) first: bool,
    /// It asked for all, and hadn't before.
    pub(crate) all: bool,
    /// It no longer asks for all.
    pub(crate) not_all: bool,
    /// The names it asked for: also those that it had asked for before, since a client that asks
    /// again wants to be told again.
    pub(crate) names: Vec<Arc<str>>,
    /// The names it no longer asks for.
    pub(crate) dropped: Vec<Arc<str>>,
}

impl Subscription {
    /// Takes the names of a request. `shared` gives the text of a name that others may have already.
    pub(crate) fn request(
        &mut self,
        ty: ResourceType,
        subscribe: &[String],
        unsubscribe: &[String],
        shared: impl Fn(&str) -> Arc<str>,
    ) -> Asked {
        let was_wildcard = self.wildcard;
        let mut asked = Asked {
            first: !self.started,
            ..Asked::default()
        };
        if asked.first && subscribe.is_empty() && ty.legacy_wildcard() {
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
                self.names.insert(Arc::clone(&name));
                asked.names.push(name);
            }
        }
        for name in unsubscribe {
            if name == WILDCARD {
                self.wildcard = false;
            } else if let Some(name) = self.names.take(name.as_str()) {
                asked.names.retain(|asked| *asked != name);
                asked.dropped.push(name);
            }
        }
        asked.all = self.wildcard && !was_wildcard;
        asked.not_all = was_wildcard && !self.wildcard;
        asked
    }

    /// Gives back memory of names that were asked for once.
    pub(crate) fn tighten(&mut self) {
        thrift::set(&mut self.names);
    }

    pub(crate) fn started(&self) -> bool {
        self.started
    }

    pub(crate) fn wildcard(&self) -> bool {
        self.wildcard
    }

    /// Whether the client asked for this name itself, and so is owed an answer even if there is none.
    pub(crate) fn named(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether the client wants to be told of this name.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.wildcard || self.named(name)
    }

    /// The names that the client asked for itself.
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

    fn ask(sub: &mut Subscription, ty: ResourceType, add: &[&str], del: &[&str]) -> Asked {
        sub.request(ty, &strings(add), &strings(del), |name| name.into())
    }

    #[test]
    fn a_first_request_without_names_asks_for_all_where_the_protocol_says_so() {
        for ty in ResourceType::ALL {
            let mut sub = Subscription::default();
            assert_eq!(ask(&mut sub, ty, &[], &[]).all, ty.legacy_wildcard());
            let again = ask(&mut sub, ty, &[], &[]);
            assert!(!again.all && !again.first);
        }
    }

    #[test]
    fn only_the_first_request_does_so() {
        let mut sub = Subscription::default();
        assert!(!ask(&mut sub, ResourceType::Cluster, &["a"], &[]).all);
        assert!(!ask(&mut sub, ResourceType::Cluster, &[], &[]).all);
        assert!(sub.wants("a") && !sub.wants("b"));
    }

    #[test]
    fn all_and_names_are_taken_back_each_by_itself() {
        let mut sub = Subscription::default();
        let ty = ResourceType::Endpoint;
        let asked = ask(&mut sub, ty, &["*", "a", "b"], &[]);
        assert!(asked.all && asked.first);
        assert_eq!(asked.names, ["a".into(), "b".into()]);
        let asked = ask(&mut sub, ty, &[], &["*", "b", "never"]);
        assert!(asked.not_all);
        assert_eq!(asked.dropped, ["b".into()]);
        assert!(sub.wants("a") && !sub.wants("b"));
        assert!(ask(&mut sub, ty, &["*"], &[]).all);
    }

    #[test]
    fn a_name_asked_for_and_taken_back_at_once_is_not_wanted() {
        let mut sub = Subscription::default();
        let asked = ask(&mut sub, ResourceType::Route, &["a", "*"], &["a", "*"]);
        assert_eq!(
            (asked.names.len(), asked.all, asked.not_all),
            (0, false, false)
        );
        assert!(!sub.wants("a"));
    }

    #[test]
    fn a_name_asked_for_again_is_to_be_told_again() {
        let mut sub = Subscription::default();
        ask(&mut sub, ResourceType::Route, &["a"], &[]);
        assert_eq!(
            ask(&mut sub, ResourceType::Route, &["a"], &[]).names,
            ["a".into()]
        );
    }
}
