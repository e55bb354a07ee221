//! A simulated Envoy for session tests: no IO, every step is explicit.
//!
//! A resource's body is text: `TAG` or `TAG;REFERENCE,REFERENCE`. The client rejects tags that begin with `bad`.
//! Listeners refer to routes, and routes to clusters.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Response, Session};
use crate::config::Limits;
use crate::fleet::Fleet;
use crate::resource::{FleetId, Resource, ResourceType, Update};
use crate::wire::{DeltaRequest, ErrorDetail};

pub(super) use ResourceType::{Cluster, Endpoint, Listener, Route};

pub(super) fn resource(name: &str, body: &str) -> Resource {
    Resource::new(name, body.as_bytes().to_vec())
}

pub(super) fn update(
    revision: u64,
    upserts: &[(ResourceType, &str, &str)],
    removals: &[(ResourceType, &str)],
) -> Update {
    Update {
        upserts: upserts
            .iter()
            .map(|(ty, name, body)| (*ty, resource(name, body)))
            .collect(),
        removals: removals
            .iter()
            .map(|(ty, name)| (*ty, Arc::from(*name)))
            .collect(),
        revision,
    }
}

pub(super) fn references(body: &str) -> impl Iterator<Item = &str> {
    let list = body.split_once(';').map_or("", |(_, list)| list);
    list.split(',').filter(|name| !name.is_empty())
}

pub(super) fn is_bad(body: &str) -> bool {
    body.starts_with("bad")
}

pub(super) fn limits() -> Limits {
    Limits {
        removal_delay: Duration::ZERO,
        scope_removal_delay: Duration::ZERO,
        ..Limits::default()
    }
}

pub(super) fn fleet() -> Fleet {
    Fleet::new(FleetId::new("fleet"))
}

/// One client and its session.
pub(super) struct Client {
    pub(super) id: u64,
    pub(super) session: Session,
    pub(super) now: Instant,
    /// The accepted resources: type and name to body.
    pub(super) has: BTreeMap<(ResourceType, String), String>,
    /// Accepted clusters whose response has been acknowledged or rejected.
    pub(super) acked_clusters: BTreeSet<String>,
    /// Clusters waiting for endpoints.
    warming: BTreeSet<String>,
    /// The subscribed endpoints and routes.
    subscribed: BTreeSet<(ResourceType, String)>,
    /// Types for which a response has arrived on this stream.
    answered: BTreeSet<ResourceType>,
    /// Responses not yet processed.
    pub(super) inbox: VecDeque<Response>,
    /// Processed but unacknowledged responses, with the error if rejected.
    pub(super) unacked: Vec<(Response, Option<String>)>,
    /// All responses, as `type +name +name -name`.
    pub(super) log: Vec<String>,
    /// Number of resources sent although the client already had that version.
    pub(super) repeated: usize,
    limits: Limits,
    /// Whether the client has reconnected.
    reconnected: bool,
}

impl Client {
    /// A client that has subscribed to clusters and listeners.
    pub(super) fn connect(fleet: &mut Fleet, id: u64, limits: Limits) -> Client {
        let mut client = Client::new(fleet, id, limits);
        client.first_requests(fleet);
        client
    }

    /// A client that has subscribed to clusters, but not to listeners.
    pub(super) fn starting(fleet: &mut Fleet, id: u64, limits: Limits) -> Client {
        let mut client = Client::new(fleet, id, limits);
        client.send(fleet, request(Cluster));
        client
    }

    fn new(fleet: &mut Fleet, id: u64, limits: Limits) -> Client {
        fleet.join(id, "node".into());
        Client {
            id,
            session: Session::new(id, limits.clone(), Instant::now()),
            now: Instant::now(),
            has: BTreeMap::new(),
            acked_clusters: BTreeSet::new(),
            warming: BTreeSet::new(),
            subscribed: BTreeSet::new(),
            answered: BTreeSet::new(),
            inbox: VecDeque::new(),
            unacked: Vec::new(),
            log: Vec::new(),
            repeated: 0,
            limits,
            reconnected: false,
        }
    }

    /// Ends the stream and opens another, reporting the versions that the client has.
    pub(super) fn reconnect(&mut self, fleet: &mut Fleet) {
        fleet.leave(self.id);
        self.id += 1000;
        fleet.join(self.id, "node".into());
        self.session = Session::new(self.id, self.limits.clone(), self.now);
        self.reconnected = true;
        self.answered.clear();
        self.inbox.clear();
        self.unacked.clear();
        // Envoy stops waiting for endpoints after a while. The server can't tell from the initial versions that the
        // client was waiting when its stream broke.
        self.warming.clear();
        self.first_requests(fleet);
    }

    fn first_requests(&mut self, fleet: &mut Fleet) {
        for ty in [Cluster, Endpoint, Listener, Route] {
            let names: Vec<String> = self.subscribed_names(ty);
            if names.is_empty() && matches!(ty, Endpoint | Route) {
                continue;
            }
            let mut request = request(ty);
            request.resource_names_subscribe = names;
            request.initial_resource_versions = self
                .has
                .iter()
                .filter(|((of, _), _)| *of == ty)
                .map(|((_, name), body)| (name.clone(), resource(name, body).version().to_string()))
                .collect::<HashMap<_, _>>();
            self.send(fleet, request);
        }
    }

    /// Marks a name as subscribed after the test itself has sent the request.
    pub(super) fn mark_subscribed(&mut self, ty: ResourceType, name: &str) {
        self.subscribed.insert((ty, name.to_owned()));
    }

    fn subscribed_names(&self, ty: ResourceType) -> Vec<String> {
        let subscribed = self.subscribed.iter().filter(|(of, _)| *of == ty);
        subscribed.map(|(_, name)| name.clone()).collect()
    }

    pub(super) fn send(&mut self, fleet: &mut Fleet, request: DeltaRequest) {
        self.session.request(fleet, &request).unwrap();
        self.pump(fleet);
    }

    /// Polls the session for all responses, and checks the invariants of each.
    pub(super) fn pump(&mut self, fleet: &mut Fleet) {
        while let Some(response) = self.session.poll(fleet, self.now) {
            let waiting = self.inbox.iter().chain(self.unacked.iter().map(|(r, _)| r));
            for earlier in waiting {
                assert_ne!(earlier.ty, response.ty, "two of a type in flight");
            }
            let empty = response.upserts.is_empty() && response.removals.is_empty();
            let first = self.answered.insert(response.ty);
            if empty {
                assert!(first && matches!(response.ty, Cluster | Listener));
                self.inbox.push_back(response);
                continue;
            }
            if response.ty == Cluster {
                self.check_removals(&response);
            }
            let mut line = response.ty.to_string();
            for resource in &response.upserts {
                line += &format!(" +{}", resource.name());
            }
            for name in &response.removals {
                line += &format!(" -{name}");
            }
            self.log.push(line);
            self.inbox.push_back(response);
        }
        assert!(
            self.session.poll(fleet, self.now).is_none(),
            "`None`, but there was something to send: {:#?}",
            self.log
        );
    }

    /// Checks that no removed cluster is used by any of the client's routes.
    fn check_removals(&self, response: &Response) {
        if self.reconnected && self.limits.removal_delay.is_zero() {
            // Clusters may be removed before the client has listed its routes.
            return;
        }
        for cluster in &response.removals {
            for (route, body) in self.held(Route) {
                assert!(
                    !references(body).any(|name| *name == **cluster),
                    "cluster {cluster} was removed before route {route}: {:#?}",
                    self.log
                );
            }
        }
    }

    /// Processes the next response as Envoy would, and subscribes to what it refers to.
    pub(super) fn receive(&mut self, fleet: &mut Fleet) -> bool {
        let Some(response) = self.inbox.pop_front() else {
            return false;
        };
        let ty = response.ty;
        let isolates = matches!(ty, Cluster | Listener);
        let mut errors = Vec::new();
        for resource in &response.upserts {
            let name = resource.name().to_string();
            let body = String::from_utf8(resource.body().to_vec()).unwrap();
            if matches!(ty, Endpoint | Route) && !self.subscribed.contains(&(ty, name.clone())) {
                // No longer subscribed to.
                continue;
            }
            if is_bad(&body) {
                errors.push(format!("{name}: is bad"));
                if isolates {
                    continue;
                }
                // Envoy stops waiting for endpoints when some are rejected.
                for resource in response.upserts.iter().filter(|_| ty == Endpoint) {
                    self.warming.remove(&**resource.name());
                }
                break;
            }
            let before = self.has.insert((ty, name.clone()), body.clone());
            if before.as_ref() == Some(&body) && !self.warming.contains(&name) {
                self.repeated += 1;
            }
            match ty {
                Cluster => _ = self.warming.insert(name),
                Endpoint => _ = self.warming.remove(&name),
                _ => {}
            }
        }
        for name in &response.removals {
            match ty {
                Cluster => {
                    self.warming.remove(&**name);
                    self.acked_clusters.remove(&**name);
                }
                Endpoint => _ = self.warming.remove(&**name),
                _ => {}
            }
            self.has.remove(&(ty, name.to_string()));
        }
        let error = (!errors.is_empty()).then(|| match ty {
            Cluster => format!("Error adding/updating cluster(s) {}", errors.join(", ")),
            Listener => format!("Error adding/updating listener(s) {}\n", errors.join("\n")),
            _ => "something in it is bad".to_owned(),
        });
        self.unacked.push((response, error));
        match ty {
            Cluster => self.subscribe(fleet, Endpoint, |client| {
                client.held(Cluster).map(|(name, _)| name.clone()).collect()
            }),
            Listener => self.subscribe(fleet, Route, |client| {
                let bodies = client.held(Listener).map(|(_, body)| body);
                bodies
                    .flat_map(|body| references(body))
                    .map(str::to_owned)
                    .collect()
            }),
            _ => {}
        }
        true
    }

    pub(super) fn held(&self, ty: ResourceType) -> impl Iterator<Item = (&String, &String)> {
        let held = self.has.iter().filter(move |((of, _), _)| *of == ty);
        held.map(|((_, name), body)| (name, body))
    }

    fn subscribe(
        &mut self,
        fleet: &mut Fleet,
        ty: ResourceType,
        wanted: impl Fn(&Client) -> BTreeSet<String>,
    ) {
        let wanted = wanted(self);
        let subscribed: BTreeSet<String> = self.subscribed_names(ty).into_iter().collect();
        if wanted == subscribed {
            return;
        }
        let mut request = request(ty);
        request.resource_names_subscribe = wanted.difference(&subscribed).cloned().collect();
        request.resource_names_unsubscribe = subscribed.difference(&wanted).cloned().collect();
        for name in &request.resource_names_unsubscribe {
            self.subscribed.remove(&(ty, name.clone()));
            self.has.remove(&(ty, name.clone()));
        }
        for name in &request.resource_names_subscribe {
            self.subscribed.insert((ty, name.clone()));
        }
        self.send(fleet, request);
    }

    /// Acknowledges or rejects a processed response. Clusters are acknowledged when warm.
    pub(super) fn respond(&mut self, fleet: &mut Fleet, which: usize) -> bool {
        let ready: Vec<usize> = (0..self.unacked.len())
            .filter(|&i| self.unacked[i].0.ty != Cluster || self.warming.is_empty())
            .collect();
        if ready.is_empty() {
            return false;
        }
        let (response, error) = self.unacked.remove(ready[which % ready.len()]);
        if response.ty == Cluster {
            for resource in &response.upserts {
                if self
                    .has
                    .contains_key(&(Cluster, resource.name().to_string()))
                {
                    self.acked_clusters.insert(resource.name().to_string());
                }
            }
        }
        let mut request = request(response.ty);
        request.response_nonce = response.nonce;
        request.error_detail = error.map(|message| ErrorDetail { message });
        self.send(fleet, request);
        true
    }

    /// Runs until nothing is left to do.
    pub(super) fn settle(&mut self, fleet: &mut Fleet) {
        for _ in 0..10_000 {
            self.pump(fleet);
            if !self.receive(fleet) && !self.respond(fleet, 0) {
                return;
            }
        }
        panic!("does not settle: {:#?}", self.log);
    }

    pub(super) fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    pub(super) fn body(&self, ty: ResourceType, name: &str) -> Option<&str> {
        self.has.get(&(ty, name.to_owned())).map(String::as_str)
    }
}

pub(super) fn request(ty: ResourceType) -> DeltaRequest {
    DeltaRequest {
        type_url: ty.type_url().to_owned(),
        ..DeltaRequest::default()
    }
}
