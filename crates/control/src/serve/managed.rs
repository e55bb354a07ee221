//! A cluster as a place for fleets: Sesame has Kubernetes run the Envoys.
//!
//! In: what Gateways ask for, and what has become of it in the cluster. Out: states for translation; what there should be,
//! for whoever makes it so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use sesame_api::AddressType;
use sesame_envoy::{Admin, BootstrapOptions, MAX_CONNECTIONS, XdsAddress, XdsTls};
use sesame_fleet::kube::identity::Handle;
use sesame_fleet::kube::{FleetSpec, Observation, Port, Problem, Provisioner, layout};
use sesame_model::{FleetId, FleetParameters};
use sesame_translate::fleet::{AddressProblem, FleetAddress, FleetRequest, FleetState};
use tokio::sync::watch;

use super::inbox::Inbox;
use crate::place::{Place, Requests};

/// The place.
pub(super) struct ManagedPlace {
    provisioner: Provisioner,
    /// `None`: somebody else gives Envoys their certificates.
    identities: Option<Handle>,
    news: Arc<Inbox<Observation>>,
    observed: BTreeMap<FleetId, Observation>,
    end: EnvoyEnd,
    /// Becomes true when every fleet that there should be has been looked at: before that, nobody should be told that an
    /// address is missing.
    looked: watch::Sender<bool>,
    /// The last parameters of each fleet that could be read, with its Gateway's uid: what runs goes on by them while newer
    /// ones can't be.
    parameters: BTreeMap<FleetId, (String, FleetParameters)>,
    /// Fleets that wait for parameters that can be read: nobody knows how they should run, nor that they shouldn't.
    unreadable: BTreeSet<FleetId>,
    /// All fleets that there should be are asked for.
    complete: bool,
    /// They have been said once.
    settled: bool,
}

/// What Envoys are told of Sesame.
#[derive(Clone, Debug)]
pub(super) struct EnvoyEnd {
    /// A name that pods can look up, which is in Sesame's certificate.
    pub(super) host: String,
    /// The port.
    pub(super) port: u16,
    /// They have its module.
    pub(super) module: bool,
}

impl ManagedPlace {
    pub(super) fn new(
        provisioner: Provisioner,
        identities: Option<Handle>,
        news: Arc<Inbox<Observation>>,
        end: EnvoyEnd,
        looked: watch::Sender<bool>,
    ) -> Self {
        Self {
            provisioner,
            identities,
            news,
            observed: BTreeMap::new(),
            end,
            looked,
            parameters: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            complete: false,
            settled: false,
        }
    }
}

impl Place for ManagedPlace {
    fn plan(
        &mut self,
        requests: &Requests,
        changed: &BTreeSet<FleetId>,
        _now: Instant,
    ) -> Vec<(FleetId, Option<FleetState>)> {
        let mut fleets = changed.clone();
        for (fleet, observation) in self.news.take() {
            match observation {
                Some(observation) => drop(self.observed.insert(fleet.clone(), observation)),
                None => drop(self.observed.remove(&fleet)),
            }
            fleets.insert(fleet);
        }
        if !*self.looked.borrow() {
            // Of one that nobody can make there is nothing to see.
            let all = requests.iter().all(|(fleet, request)| {
                self.observed.contains_key(fleet) || request.parameters.is_none()
            });
            self.looked
                .send_if_modified(|looked| std::mem::replace(looked, all) != all);
        }
        let states = fleets.into_iter().map(|fleet| {
            let state = requests
                .contains_key(&fleet)
                .then(|| self.observed.get(&fleet).map(state).unwrap_or_default());
            (fleet, state)
        });
        states.collect()
    }

    fn follow(&mut self, requests: &Requests, changed: &BTreeSet<FleetId>) {
        for fleet in changed {
            match requests.get(fleet) {
                Some(request) => self.want(fleet, request),
                None => self.forget(fleet),
            }
        }
        if self.complete
            && self.unreadable.is_empty()
            && !std::mem::replace(&mut self.settled, true)
        {
            self.provisioner.settled();
            if let Some(identities) = &self.identities {
                identities.settled();
            }
        }
    }

    fn complete(&mut self) {
        self.complete = true;
    }

    fn awaited(&self) -> BTreeSet<FleetId> {
        BTreeSet::new()
    }
}

impl ManagedPlace {
    fn want(&mut self, fleet: &FleetId, request: &FleetRequest) {
        let uid = &request.gateway_uid;
        if let Some(parameters) = &request.parameters {
            let known = (uid.clone(), parameters.clone());
            self.parameters.insert(fleet.clone(), known);
        } else if self.parameters.get(fleet).is_some_and(|(of, _)| of != uid) {
            // Another Gateway of the same name: what was chosen for the one before, and what runs for it, isn't its own.
            self.forget(fleet);
        }
        let known = self.parameters.get(fleet).map(|(_, known)| known.clone());
        let readable = known.is_some();
        let spec = spec(fleet, request, known.unwrap_or_default(), &self.end);
        // Whatever its Envoys run as, they have to show who they are.
        if let Some(identities) = &self.identities {
            let owner = self.provisioner.secret_owner(fleet, &spec);
            identities.fleet(fleet.clone(), Some(owner));
        }
        if readable {
            self.unreadable.remove(fleet);
            self.provisioner.want(fleet.clone(), Some(spec));
        } else {
            self.unreadable.insert(fleet.clone());
        }
    }

    fn forget(&mut self, fleet: &FleetId) {
        self.parameters.remove(fleet);
        self.unreadable.remove(fleet);
        if let Some(identities) = &self.identities {
            identities.fleet(fleet.clone(), None);
        }
        self.provisioner.want(fleet.clone(), None);
    }
}

/// What translation is to know.
fn state(observation: &Observation) -> FleetState {
    let addresses = observation.addresses.iter();
    FleetState {
        addresses: addresses
            .map(|address| match address.value.parse() {
                Ok(ip) if address.type_ == AddressType::IpAddress => FleetAddress::Ip(ip),
                _ => FleetAddress::Hostname(address.value.clone()),
            })
            .collect(),
        problem: observation.problem.clone().map(|problem| match problem {
            Problem::UnsupportedAddress(why) => AddressProblem::Unsupported(why),
            Problem::NoResources(why) => AddressProblem::NoResources(why),
            Problem::AddressNotUsable(why) => AddressProblem::NotUsable(why),
            Problem::AddressNotAssigned(why) => AddressProblem::NotAssigned(why),
        }),
        ready: observation.available > 0,
        ..FleetState::default()
    }
}

/// What the cluster is to run.
fn spec(
    fleet: &FleetId,
    request: &FleetRequest,
    parameters: FleetParameters,
    end: &EnvoyEnd,
) -> FleetSpec {
    let tls = tls(&end.host);
    FleetSpec {
        gateway: request.gateway.clone(),
        gateway_uid: request.gateway_uid.clone(),
        gateway_class: Arc::clone(&request.class),
        labels: request.labels.clone(),
        annotations: request.annotations.clone(),
        ports: request.ports.iter().copied().map(Port::tcp).collect(),
        addresses: request.addresses.clone(),
        files: sesame_envoy::xds_secrets(&tls),
        bootstrap: bootstrap(fleet, &parameters, end, tls),
        module: end.module,
        parameters,
    }
}

/// The files by which an Envoy and Sesame know each other, as the Envoy sees them.
fn tls(server_name: &str) -> XdsTls {
    let file = |name: &str| Path::new(layout::CERTIFICATES).join(name);
    XdsTls {
        certificate: file("tls.crt"),
        private_key: file("tls.key"),
        authority: file("ca.crt"),
        server_name: server_name.to_owned(),
        secrets: Some(layout::CONFIG.into()),
    }
}

/// What the fleet's Envoys start with. The name of each is its pod's, which is given to it elsewhere.
fn bootstrap(
    fleet: &FleetId,
    parameters: &FleetParameters,
    end: &EnvoyEnd,
    tls: XdsTls,
) -> Arc<str> {
    let options = BootstrapOptions {
        fleet: fleet.clone(),
        node_id: String::new(),
        xds: XdsAddress::Tcp {
            host: end.host.clone(),
            port: end.port,
            tls: Some(tls),
        },
        admin: Admin::Unix(layout::ADMIN_SOCKET.into()),
        max_connections: parameters.max_connections.unwrap_or(MAX_CONNECTIONS),
        memory_limit: layout::heap_limit(parameters),
        module: end.module,
    };
    let bootstrap = sesame_envoy::to_json(&sesame_envoy::bootstrap(&options))
        .expect("a bootstrap of ours has a form in JSON");
    bootstrap.to_string().into()
}

#[cfg(test)]
mod tests {
    use sesame_api::NamespacedName;

    use super::*;

    /// A place in a cluster that doesn't answer.
    fn place() -> ManagedPlace {
        let nowhere = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = kube::Client::try_from(nowhere).unwrap();
        let settings = sesame_fleet::kube::Config::new("sesame", "envoy:test", "sesame:test");
        let (provisioner, _) = sesame_fleet::kube::start(client, settings);
        let end = EnvoyEnd {
            host: "sesame".to_owned(),
            port: 18000,
            module: true,
        };
        let looked = watch::channel(false).0;
        ManagedPlace::new(provisioner, None, Arc::default(), end, looked)
    }

    fn request(name: &str, uid: &str, readable: bool) -> FleetRequest {
        let mut request = FleetRequest::new(NamespacedName::new("ns", name));
        request.gateway_uid = uid.to_owned();
        request.parameters = readable.then(FleetParameters::default);
        request
    }

    fn all(requests: &Requests) -> BTreeSet<FleetId> {
        requests.keys().cloned().collect()
    }

    #[tokio::test]
    async fn nothing_is_left_over_before_all_are_known() {
        let mut place = place();
        let a = FleetId::of_gateway("ns", "a");
        // Its class may not have been read yet, as that of every other one.
        place.follow(&Requests::new(), &BTreeSet::new());
        assert!(!place.settled);
        place.complete();
        let mut requests = Requests::from([(a.clone(), request("a", "1", false))]);
        place.follow(&requests, &all(&requests));
        // Nobody knows how it should run, and it may run.
        assert!(!place.settled);
        requests.insert(a, request("a", "1", true));
        place.follow(&requests, &all(&requests));
        assert!(place.settled);
    }

    #[tokio::test]
    async fn one_that_can_not_be_made_is_not_waited_for() {
        let mut place = place();
        let (a, b) = (
            FleetId::of_gateway("ns", "a"),
            FleetId::of_gateway("ns", "b"),
        );
        let requests = Requests::from([
            (a, request("a", "1", false)),
            (b.clone(), request("b", "2", true)),
        ]);
        let none = BTreeSet::new();
        place.plan(&requests, &none, Instant::now());
        assert!(!*place.looked.borrow());
        place.news.put(b, Some(Observation::default()));
        place.plan(&requests, &none, Instant::now());
        assert!(*place.looked.borrow());
    }

    #[tokio::test]
    async fn parameters_hold_while_newer_ones_can_not_be_read_but_not_for_another_gateway() {
        let mut place = place();
        let a = FleetId::of_gateway("ns", "a");
        for (uid, readable, unreadable) in [
            ("1", false, true),
            ("1", true, false),
            ("1", false, false),
            ("2", false, true),
        ] {
            let requests = Requests::from([(a.clone(), request("a", uid, readable))]);
            place.follow(&requests, &all(&requests));
            assert_eq!(
                place.unreadable.contains(&a),
                unreadable,
                "{uid} {readable}"
            );
        }
    }
}
