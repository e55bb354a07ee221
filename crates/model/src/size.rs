//! The size of routes: an estimate, for limits.

use crate::{
    Action, AuthProtocol, CookieChange, ExternalAuth, GlobalRate, HeaderLists, List, OriginMatch,
    PathMatch, RateEntry, Route, RouteMatch, RoutePolicy, TextMatch, ValueMatch,
};

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
                    let cookies = options.cookies.iter().flat_map(|list| list.iter());
                    options.hash.len() * PART + cookies.map(cookie).sum::<usize>()
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
            origins.sum::<usize>() + lists.map(list).iter().sum::<usize>()
        });
        let session = self.session.as_ref().map_or(0, |_| 4 * PART);
        let auth = self.auth.as_deref().map_or(0, auth);
        let policy = self.policy.as_deref().map_or(0, policy);
        let changes = headers(&self.request_headers) + headers(&self.response_headers);
        matches(&self.matches) + action + changes + cors + session + auth + policy
    }
}

fn cookie(change: &CookieChange) -> usize {
    let texts = [&change.path, &change.domain].into_iter().flatten();
    4 * PART + change.name.len() + texts.map(|text| text.len()).sum::<usize>()
}

fn auth(auth: &ExternalAuth) -> usize {
    let texts = |texts: &[TextMatch]| {
        let texts = texts.iter().map(|text| PART + text.text.len());
        texts.sum::<usize>()
    };
    let protocol = match &auth.protocol {
        AuthProtocol::Grpc { request_headers } => list(request_headers),
        AuthProtocol::GrpcWithContext(context) => {
            let pairs = context.iter();
            pairs
                .map(|(name, value)| PART + name.len() + value.len())
                .sum()
        }
        AuthProtocol::Http {
            path_prefix,
            request_headers,
            response_headers,
        } => {
            let response_headers = response_headers.as_deref().unwrap_or_default();
            path_prefix.len() + texts(request_headers) + texts(response_headers)
        }
    };
    4 * PART + protocol + headers(&auth.before)
}

fn policy(policy: &RoutePolicy) -> usize {
    let sources = policy.sources.as_ref();
    let sources = sources.map_or(0, |sources| sources.ranges.len() * PART);
    let global = policy.global_rate.as_deref().map_or(0, GlobalRate::bytes);
    let jwt = policy.jwt.as_deref();
    let jwt = jwt.map_or(0, |provider| 3 * PART + provider.len());
    4 * PART + sources + global + jwt
}

impl GlobalRate {
    /// The approximate size of the limits in a route's configuration, in bytes.
    pub fn bytes(&self) -> usize {
        descriptors(self)
    }
}

fn descriptors(rate: &GlobalRate) -> usize {
    let entries = rate.descriptors.iter().flat_map(|entries| entries.iter());
    let entries = entries.map(|entry| match entry {
        RateEntry::Fixed { key, value } => PART + key.len() + value.len(),
        RateEntry::Header { name, key } => PART + name.len() + key.len(),
        RateEntry::Matching { headers, value, .. } => {
            let headers = headers.iter();
            let headers =
                headers.map(|header| PART + header.name.len() + self::value(&header.value));
            PART + value.len() + headers.sum::<usize>()
        }
        RateEntry::ClientAddress => PART,
    });
    entries.sum()
}

fn list(list: &List) -> usize {
    match list {
        List::Only(names) => names.iter().map(|name| name.len() + 2).sum(),
        List::All => 1,
    }
}

impl HeaderLists {
    /// The approximate size of the changes in a route's configuration, in bytes.
    pub fn bytes(&self) -> usize {
        headers(self)
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
