//! The runner of managed fleets: Kubernetes runs the Envoys.
//!
//! In: fleet requests, and the observed state of each fleet's objects. Out: states for the translator, specs for the
//! provisioner.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use sesame_envoy::{Admin, BootstrapOptions, HeapLimit, MAX_CONNECTIONS, XdsAddress, XdsTls};
use sesame_fleet::kube::identity::Handle;
use sesame_fleet::kube::{FleetSpec, Provisioner, layout};
use sesame_model::{FleetId, FleetParameters, FleetRequest, FleetState};
use tokio::sync::watch;

use super::fleet_updates::FleetUpdates;
use crate::runner::{FleetRunner, Requests};

pub(super) struct ManagedRunner {
    provisioner: Provisioner,
    /// `None` if the Envoys' certificates are issued outside Sesame.
    identities: Option<Handle>,
    updates: Arc<FleetUpdates<FleetState>>,
    observed: BTreeMap<FleetId, FleetState>,
    target: XdsTarget,
    /// Whether every requested fleet has been observed. Before that, no status should report a missing address.
    all_observed: watch::Sender<bool>,
    parameters: LastValid,
    /// All requests are known.
    complete: bool,
    /// Whether the provisioner has all specs, so that it may delete orphans.
    settled: bool,
}

/// How Envoys reach Sesame.
#[derive(Clone, Debug)]
pub(super) struct XdsTarget {
    /// A DNS name that pods can resolve, and a SAN of Sesame's certificate.
    pub(super) host: String,
    pub(super) port: u16,
    /// Whether Envoys have Sesame's module.
    pub(super) module: bool,
}

impl ManagedRunner {
    pub(super) fn new(
        provisioner: Provisioner,
        identities: Option<Handle>,
        updates: Arc<FleetUpdates<FleetState>>,
        target: XdsTarget,
        all_observed: watch::Sender<bool>,
    ) -> Self {
        Self {
            provisioner,
            identities,
            updates,
            observed: BTreeMap::new(),
            target,
            all_observed,
            parameters: LastValid::default(),
            complete: false,
            settled: false,
        }
    }
}

impl FleetRunner for ManagedRunner {
    fn plan(
        &mut self,
        requests: &Requests,
        changed: &BTreeSet<FleetId>,
        _now: Instant,
    ) -> Vec<(FleetId, Option<FleetState>)> {
        let mut fleets = changed.clone();
        for (fleet, state) in self.updates.take() {
            match state {
                Some(state) => drop(self.observed.insert(fleet.clone(), state)),
                None => drop(self.observed.remove(&fleet)),
            }
            fleets.insert(fleet);
        }
        if !*self.all_observed.borrow() {
            // A fleet without valid parameters isn't created, so it isn't observed.
            let all = requests.iter().all(|(fleet, request)| {
                self.observed.contains_key(fleet) || request.parameters.is_none()
            });
            self.all_observed
                .send_if_modified(|before| std::mem::replace(before, all) != all);
        }
        let states = fleets.into_iter().map(|fleet| {
            let state = requests
                .contains_key(&fleet)
                .then(|| self.observed.get(&fleet).cloned().unwrap_or_default());
            (fleet, state)
        });
        states.collect()
    }

    fn apply(&mut self, requests: &Requests, changed: &BTreeSet<FleetId>) {
        for fleet in changed {
            match requests.get(fleet) {
                Some(request) => self.apply_fleet(fleet, request),
                None => self.forget(fleet),
            }
        }
        if self.complete
            && self.parameters.missing.is_empty()
            && !std::mem::replace(&mut self.settled, true)
        {
            self.provisioner.mark_complete();
            if let Some(identities) = &self.identities {
                identities.mark_complete();
            }
        }
    }

    fn requests_complete(&mut self) {
        self.complete = true;
    }

    fn required_for_ready(&self) -> BTreeSet<FleetId> {
        BTreeSet::new()
    }
}

impl ManagedRunner {
    fn apply_fleet(&mut self, fleet: &FleetId, request: &FleetRequest) {
        if self.parameters.replaced(fleet, request) {
            self.forget(fleet);
        }
        let parameters = self.parameters.update(fleet, request);
        let valid = parameters.is_some();
        let spec = spec(fleet, request, parameters.unwrap_or_default(), &self.target);
        // Existing Envoys need a certificate even if their parameters are invalid.
        if let Some(identities) = &self.identities {
            let secret = self.provisioner.fleet_secret(fleet, &spec);
            identities.set_fleet(fleet.clone(), Some(secret));
        }
        if valid {
            self.provisioner.set_fleet(fleet.clone(), Some(spec));
        }
    }

    fn forget(&mut self, fleet: &FleetId) {
        self.parameters.forget(fleet);
        if let Some(identities) = &self.identities {
            identities.set_fleet(fleet.clone(), None);
        }
        self.provisioner.set_fleet(fleet.clone(), None);
    }
}

/// The last valid parameters of each fleet, which stay in effect while newer ones are invalid.
#[derive(Default)]
struct LastValid {
    /// The UID of the Gateway, and its parameters.
    parameters: BTreeMap<FleetId, (Option<String>, FleetParameters)>,
    /// Fleets whose parameters have never been valid. Their objects are left unchanged.
    missing: BTreeSet<FleetId>,
}

impl LastValid {
    /// The parameters in effect; `None` if the fleet has never had valid ones.
    fn update(&mut self, fleet: &FleetId, request: &FleetRequest) -> Option<FleetParameters> {
        if let Some(parameters) = &request.parameters {
            let valid = (uid(request), parameters.clone());
            self.parameters.insert(fleet.clone(), valid);
        }
        let parameters = self.parameters.get(fleet).map(|(_, valid)| valid.clone());
        match parameters {
            Some(_) => self.missing.remove(fleet),
            None => self.missing.insert(fleet.clone()),
        };
        parameters
    }

    /// Whether the parameters belong to an earlier Gateway of the same name, while those of the new one are invalid.
    fn replaced(&self, fleet: &FleetId, request: &FleetRequest) -> bool {
        let last_valid = self.parameters.get(fleet);
        request.parameters.is_none() && last_valid.is_some_and(|(owner, _)| *owner != uid(request))
    }

    fn forget(&mut self, fleet: &FleetId) {
        self.parameters.remove(fleet);
        self.missing.remove(fleet);
    }
}

fn uid(request: &FleetRequest) -> Option<String> {
    request.owner.as_ref().map(|owner| owner.uid.clone())
}

/// The spec of a fleet.
fn spec(
    fleet: &FleetId,
    request: &FleetRequest,
    parameters: FleetParameters,
    target: &XdsTarget,
) -> FleetSpec {
    let tls = tls(&target.host);
    FleetSpec {
        request: FleetRequest {
            // The parameters in effect may differ from the requested ones.
            parameters: None,
            ..request.clone()
        },
        files: sesame_envoy::xds_secrets(&tls),
        bootstrap: bootstrap(fleet, &parameters, target, tls),
        module: target.module,
        parameters,
    }
}

/// Paths of the files for mutual TLS between an Envoy and Sesame, in the Envoy's container.
fn tls(server_name: &str) -> XdsTls {
    let file = |name: &str| Path::new(layout::CERTIFICATES_DIR).join(name);
    XdsTls {
        certificate: file("tls.crt"),
        private_key: file("tls.key"),
        authority: file("ca.crt"),
        server_name: server_name.to_owned(),
        secrets: Some(layout::CONFIG_DIR.into()),
    }
}

/// The bootstrap of the fleet's Envoys. The pod template sets the node ID to the pod's name.
fn bootstrap(
    fleet: &FleetId,
    parameters: &FleetParameters,
    target: &XdsTarget,
    tls: XdsTls,
) -> Arc<str> {
    let options = BootstrapOptions {
        fleet: fleet.clone(),
        node_id: String::new(),
        xds: XdsAddress::Tcp {
            host: target.host.clone(),
            port: target.port,
            tls: Some(tls),
        },
        admin: Admin::Unix(layout::ADMIN_SOCKET.into()),
        readiness: Some(layout::READINESS_SOCKET.into()),
        max_connections: parameters.max_connections.unwrap_or(MAX_CONNECTIONS),
        heap_limit: Some(heap_limit(parameters)),
        module: target.module,
    };
    let bootstrap = sesame_envoy::to_json(&sesame_envoy::bootstrap(&options))
        .expect("every generated bootstrap has a JSON form");
    bootstrap.to_string().into()
}

/// The limit on the heap of a fleet's Envoys: 80% of the container's memory limit. The rest is for stacks, kernel buffers and
/// the executable.
fn heap_limit(parameters: &FleetParameters) -> HeapLimit {
    match parameters.memory_limit {
        Some(limit) => HeapLimit::Bytes(limit / 10 * 8),
        None => HeapLimit::HalfOfMemory,
    }
}

#[cfg(test)]
mod tests {
    use sesame_model::GatewayOwner;

    use super::*;

    /// A runner whose API server doesn't respond.
    fn runner() -> ManagedRunner {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let settings = sesame_fleet::kube::FleetsConfig::new("sesame", "envoy:test", "sesame:test");
        let (provisioner, _) = sesame_fleet::kube::start(client, settings);
        let target = XdsTarget {
            host: "sesame".to_owned(),
            port: 18000,
            module: true,
        };
        let all_observed = watch::channel(false).0;
        ManagedRunner::new(provisioner, None, Arc::default(), target, all_observed)
    }

    fn request(name: &str, uid: &str, valid: bool) -> FleetRequest {
        FleetRequest {
            owner: Some(GatewayOwner {
                name: name.into(),
                uid: uid.to_owned(),
                class: "sesame".into(),
            }),
            parameters: valid.then(FleetParameters::default),
            ..FleetRequest::new()
        }
    }

    fn all(requests: &Requests) -> BTreeSet<FleetId> {
        requests.keys().cloned().collect()
    }

    #[tokio::test]
    async fn orphans_are_not_deleted_before_all_specs_are_known() {
        let mut runner = runner();
        let a = FleetId::of_gateway("ns", "a");
        // The GatewayClass may not have been read yet.
        runner.apply(&Requests::new(), &BTreeSet::new());
        assert!(!runner.settled);
        runner.requests_complete();
        let mut requests = Requests::from([(a.clone(), request("a", "1", false))]);
        runner.apply(&requests, &all(&requests));
        // The fleet may run, but its parameters are unknown.
        assert!(!runner.settled);
        requests.insert(a, request("a", "1", true));
        runner.apply(&requests, &all(&requests));
        assert!(runner.settled);
    }

    #[tokio::test]
    async fn fleets_without_valid_parameters_need_not_be_observed() {
        let mut runner = runner();
        let (a, b) = (
            FleetId::of_gateway("ns", "a"),
            FleetId::of_gateway("ns", "b"),
        );
        let requests = Requests::from([
            (a, request("a", "1", false)),
            (b.clone(), request("b", "2", true)),
        ]);
        let none = BTreeSet::new();
        runner.plan(&requests, &none, Instant::now());
        assert!(!*runner.all_observed.borrow());
        runner.updates.put(b, Some(FleetState::default()));
        runner.plan(&requests, &none, Instant::now());
        assert!(*runner.all_observed.borrow());
    }

    #[tokio::test]
    async fn the_last_valid_parameters_stay_in_effect_for_the_same_gateway() {
        let mut runner = runner();
        let a = FleetId::of_gateway("ns", "a");
        for (uid, valid, missing) in [
            ("1", false, true),
            ("1", true, false),
            ("1", false, false),
            ("2", false, true),
        ] {
            let requests = Requests::from([(a.clone(), request("a", uid, valid))]);
            runner.apply(&requests, &all(&requests));
            assert_eq!(
                runner.parameters.missing.contains(&a),
                missing,
                "{uid} {valid}"
            );
        }
    }
}
