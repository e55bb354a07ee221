//! The forms in which Envoys have a route table: the current one, and former ones for draining connections.
//!
//! In: the form that suits a table, and the hosts that a commit changes. Out: what Envoys get in each form. It must not
//! depend on the bytes of hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::form::{EVERYWHERE, Form, MAX_FORMER, MAX_GROWN, Resized, Sizes};

/// A host of a table: its number (see [`number_of`](super::tables::number_of)) and its domain.
pub(super) type HostKey = (u32, Arc<str>);

/// The hosts that a commit changes.
pub(super) type ChangedHosts = BTreeMap<HostKey, Resized>;

/// The forms of one table.
#[derive(Debug, Default)]
pub(super) struct Forms {
    /// The form that the listener uses.
    current: Form,
    /// The forms that Envoys also get, for draining connections and until the listener with the current form is ready.
    former: BTreeMap<Form, Lacks>,
    /// Former forms that Envoys also have, but that are too large to be kept up to date, with what they lack.
    stale: BTreeMap<Form, Touched>,
}

/// The hosts that a former form doesn't get.
#[derive(Debug, Default)]
struct Lacks {
    hosts: BTreeSet<HostKey>,
    sizes: Sizes,
}

/// The parts of a table that have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    All,
    /// Hosts with these numbers.
    Numbers(BTreeSet<u32>),
}

/// What Envoys get of a table in one form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Update {
    /// The scopes and all routes: Envoys don't have this form.
    Complete,
    Routes(Touched),
}

impl Forms {
    /// The forms of a new table. Another Sesame process may have served the table in another form, which Envoys may still
    /// use, so Envoys get each form that may have suited it.
    pub(super) fn new(suited: impl Fn(Form) -> Form) -> Self {
        let current = suited(Form::WHOLE);
        let forms = Form::ALL.into_iter().map(suited);
        let former = forms.filter(|form| *form != current);
        Self {
            current,
            former: former.map(|form| (form, Lacks::default())).collect(),
            stale: BTreeMap::new(),
        }
    }

    /// The form that the listener uses.
    pub(super) fn current(&self) -> Form {
        self.current
    }

    /// Whether Envoys also get other forms.
    pub(super) fn has_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// The forms that Envoys get and that are up to date.
    pub(super) fn updated(&self) -> impl Iterator<Item = Form> {
        std::iter::once(self.current).chain(self.former.keys().copied())
    }

    /// Removes all forms except the current one, and returns them.
    pub(super) fn settle(&mut self) -> impl Iterator<Item = Form> + use<> {
        let stale = std::mem::take(&mut self.stale);
        let former = std::mem::take(&mut self.former);
        former.into_keys().chain(stale.into_keys())
    }

    /// Whether a form is a former one that doesn't get this host.
    pub(super) fn lacks(&self, form: Form, host: &HostKey) -> bool {
        let former = self.former.get(&form);
        former.is_some_and(|lacks| lacks.hosts.contains(host))
    }

    /// Makes `form` the current one after a commit that changed the bytes of `hosts`, and something else in the parts
    /// `other`. `sizes` are the table's sizes after the commit. Returns what Envoys get, the current form first.
    pub(super) fn renew(
        &mut self,
        form: Form,
        sizes: &Sizes,
        hosts: &ChangedHosts,
        other: &Touched,
    ) -> Vec<(Form, Update)> {
        let touched = other.with(hosts.keys());
        let current = match self.switch(form) {
            Some(mut lacking) => {
                lacking.extend(&touched);
                Update::Routes(lacking)
            }
            None => Update::Complete,
        };
        for (form, lacks) in &mut self.former {
            lacks.change(hosts, sizes.bytes(*form) > MAX_GROWN);
        }
        let is_outdated = |form: &Form, lacks: &mut Lacks| {
            sizes.bytes(*form) - lacks.sizes.bytes(*form) > MAX_FORMER
        };
        let outdated = self.former.extract_if(.., is_outdated);
        let outdated = outdated.map(|(form, lacks)| (form, lacks.touched()));
        self.stale.extend(outdated);
        for lacking in self.stale.values_mut() {
            lacking.extend(&touched);
        }
        let former = self.former.iter().map(|(form, lacks)| {
            let hosts = hosts.keys().filter(|host| !lacks.hosts.contains(*host));
            (*form, Update::Routes(other.with(hosts)))
        });
        std::iter::once((form, current)).chain(former).collect()
    }

    /// Makes `form` the current one. Returns what Envoys lack of it, or `None` if they don't have it.
    fn switch(&mut self, form: Form) -> Option<Touched> {
        if form == self.current {
            return Some(Touched::none());
        }
        let before = std::mem::replace(&mut self.current, form);
        self.former.insert(before, Lacks::default());
        let former = self.former.remove(&form).map(|lacks| lacks.touched());
        former.or_else(|| self.stale.remove(&form))
    }
}

impl Lacks {
    /// Applies a commit's changes. If the form `is_large`, it lacks the new hosts too.
    fn change(&mut self, hosts: &ChangedHosts, is_large: bool) {
        for (host, resized) in hosts {
            if is_large && resized.before.is_none() {
                self.hosts.insert(host.clone());
            }
            if self.hosts.contains(host) {
                self.sizes.resize(host.0, *resized);
            }
        }
    }

    fn touched(&self) -> Touched {
        Touched::none().with(self.hosts.iter())
    }
}

impl Touched {
    pub(super) fn none() -> Self {
        Self::Numbers(BTreeSet::new())
    }

    pub(super) fn add(&mut self, number: u32) {
        match self {
            Self::All => {}
            Self::Numbers(_) if number == EVERYWHERE => *self = Self::All,
            Self::Numbers(numbers) => drop(numbers.insert(number)),
        }
    }

    fn extend(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Numbers(numbers), Self::Numbers(more)) => numbers.extend(more),
            _ => *self = Self::All,
        }
    }

    /// These parts and those of `hosts`.
    fn with<'a>(&self, hosts: impl Iterator<Item = &'a HostKey>) -> Self {
        let mut touched = self.clone();
        hosts.for_each(|(number, _)| touched.add(*number));
        touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Form = Form::ALL[0];

    struct World {
        forms: Forms,
        sizes: Sizes,
    }

    impl World {
        /// Changes the size of the host with this number, and makes `form` the current one.
        fn put(
            &mut self,
            number: u32,
            (before, after): (Option<usize>, usize),
            form: Form,
        ) -> Vec<(Form, Update)> {
            let resized = Resized {
                before,
                after: Some(after),
            };
            self.sizes.resize(number, resized);
            let host = (number, format!("{number}.test").into());
            let hosts = ChangedHosts::from([(host, resized)]);
            self.forms
                .renew(form, &self.sizes, &hosts, &Touched::none())
        }
    }

    fn routes(numbers: &[u32]) -> Update {
        Update::Routes(Touched::Numbers(numbers.iter().copied().collect()))
    }

    #[test]
    fn a_form_that_becomes_current_again_gets_all_that_it_lacks() {
        let mut world = World {
            forms: Forms::new(|_| FINE),
            sizes: Sizes::default(),
        };
        let whole = Form::WHOLE;
        let updates = world.put(1, (None, 1000), whole);
        assert_eq!(updates, [(whole, Update::Complete), (FINE, routes(&[1]))]);
        // The former form is large now, so it doesn't get the new host.
        let updates = world.put(2, (None, MAX_GROWN), whole);
        assert_eq!(updates, [(whole, routes(&[2])), (FINE, routes(&[]))]);
        // Now it is so large that it isn't updated.
        let updates = world.put(1, (Some(1000), MAX_FORMER + 1), whole);
        assert_eq!(updates, [(whole, routes(&[1]))]);
        let updates = world.put(3, (None, 1000), FINE);
        assert_eq!(updates, [(FINE, routes(&[1, 2, 3]))]);
    }
}
