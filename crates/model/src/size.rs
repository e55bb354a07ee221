//! The size of routes: an estimate, for limits.

use crate::{Action, HeaderLists, OriginMatch, PathMatch, Route, RouteMatch, ValueMatch};

/// The size of a part without its strings, in bytes.
const PART: usize = 40;

impl Route {
    /// The approximate size of its configuration, in bytes.
    pub fn bytes(&self) -> usize {
        let action = match &self.action {
            Action::Forward(forward) => {
                let targets = forward.targets.iter();
                let targets = targets.map(|target| {
                    2 * PART + headers(&target.request_headers) + headers(&target.response_headers)
                });
                let options = forward.options.as_deref();
                let options = options.map_or(0, |options| {
                    let cookies = options.cookies.iter().map(|list| list.len()).sum::<usize>();
                    (options.hash.len() + 4 * cookies) * PART
                });
                targets.sum::<usize>() + 2 * forward.mirrors.len() * PART + options
            }
            Action::Redirect(_) | Action::Respond(_) => PART,
            Action::RespondWith(response) => PART + response.body.len(),
        };
        let cors = self.cors.as_deref().map_or(0, |cors| {
            let origins = cors.origins.iter().map(|origin| match origin {
                OriginMatch::Any => PART,
                OriginMatch::Exact(text) | OriginMatch::Regex(text) => PART + text.len(),
                OriginMatch::Wildcard { before, behind } => PART + before.len() + behind.len(),
            });
            let lists = [&cors.methods, &cors.headers, &cors.expose];
            let lists = lists.map(|list| match list {
                crate::List::Only(names) => names.iter().map(|name| name.len() + 2).sum(),
                crate::List::All => 1,
            });
            origins.sum::<usize>() + lists.iter().sum::<usize>()
        });
        let optional = [
            self.session.is_some(),
            self.auth.is_some(),
            self.policy.is_some(),
        ];
        let optional = optional.into_iter().filter(|has| *has).count() * 4 * PART;
        let changes = headers(&self.request_headers) + headers(&self.response_headers);
        matches(&self.matches) + action + changes + cors + optional
    }
}

fn headers(lists: &HeaderLists) -> usize {
    let pairs = lists.set.iter().chain(&lists.add).chain(&lists.computed);
    let pairs = pairs.map(|(name, value)| PART + name.len() + value.len());
    let removed = lists.remove.iter().map(|name| PART + name.len());
    pairs.chain(removed).sum()
}

fn matches(requests: &RouteMatch) -> usize {
    let path = match &requests.path {
        PathMatch::Exact(text)
        | PathMatch::Prefix(text)
        | PathMatch::StartsWith(text)
        | PathMatch::Regex(text) => text.len(),
    };
    let headers = requests.headers.iter();
    let headers = headers.map(|header| PART + header.name.len() + value(&header.value));
    let query = requests.query.iter();
    let query = query.map(|parameter| PART + parameter.name.len() + value(&parameter.value));
    2 * PART + path + headers.chain(query).sum::<usize>()
}

fn value(value: &ValueMatch) -> usize {
    match value {
        ValueMatch::Exact(text) | ValueMatch::Regex(text) => text.len(),
        ValueMatch::Present | ValueMatch::Absent => 0,
        ValueMatch::Text(text) => text.text.len(),
        ValueMatch::Not(inner) | ValueMatch::NotOrAbsent(inner) => self::value(inner),
    }
}

#[cfg(test)]
mod tests {
    use crate::{HeaderLists, Route};

    #[test]
    fn a_route_is_as_large_as_its_strings() {
        let mut route = Route::respond_to_all(404);
        let small = route.bytes();
        assert!(small < 200, "{small}");
        let set = vec![("x-a".to_owned(), "v".repeat(1_000)); 10];
        route.request_headers = HeaderLists {
            set,
            ..HeaderLists::default()
        }
        .into();
        assert!((10_000..11_000).contains(&route.bytes()));
    }
}
