//! The ports whose certificates Envoys request on demand, and their secrets.
//!
//! In: listeners. Out: certificates by server name, and which of them changed. It must not depend on other resources.
//!
//! The name of a requested secret is a server name without a port, so at most one port per fleet has this form.
//! Switching a port between the two forms replaces its filter chains and drains their connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_model::{CertificateKey, FleetId, Listener, ListenerKey};

use crate::on_demand::shared;

/// A port's certificates are requested on demand once this many of its listeners can share a chain.
const MANY: usize = 256;
/// With fewer than this, a port with certificates on demand gets a chain for each listener again.
const FEW: usize = 128;

/// At most one port per fleet.
#[derive(Debug, Default)]
pub(super) struct OnDemand {
    ports: BTreeMap<FleetId, Port>,
    /// Server names whose certificate changed since [`OnDemand::take_changed`].
    changed: BTreeSet<(FleetId, Arc<str>)>,
}

#[derive(Debug)]
struct Port {
    listener: ListenerKey,
    by_name: BTreeMap<Arc<str>, CertificateKey>,
    by_certificate: BTreeSet<(CertificateKey, Arc<str>)>,
}

impl OnDemand {
    /// Applies a change to a listener; `None` removes it. Costs O(the port's listeners).
    pub(super) fn listener(&mut self, key: &ListenerKey, listener: Option<&Listener>) {
        let fleet = &key.fleet;
        let current = self.ports.get(fleet);
        if current.is_some_and(|port| port.listener != *key) {
            return;
        }
        let enough = if current.is_some() { FEW } else { MANY };
        let shared = listener.and_then(shared).map(|shared| shared.certificates);
        let shared = shared.filter(|shared| shared.len() >= enough);
        let port = self.ports.entry(fleet.clone()).or_insert_with(|| Port {
            listener: key.clone(),
            by_name: BTreeMap::new(),
            by_certificate: BTreeSet::new(),
        });
        let changed = port.replace(&shared.unwrap_or_default());
        if port.by_name.is_empty() {
            self.ports.remove(fleet);
        }
        let changed = changed.into_iter().map(|name| (fleet.clone(), name));
        self.changed.extend(changed);
    }

    /// Applies a change to a fleet's certificate.
    pub(super) fn certificate(&mut self, fleet: &FleetId, key: &CertificateKey) {
        let Some(port) = self.ports.get(fleet) else {
            return;
        };
        let from = (key.clone(), Arc::from(""));
        let names = port.by_certificate.range(from..);
        let names = names.take_while(|(certificate, _)| certificate == key);
        let names = names.map(|(_, name)| (fleet.clone(), Arc::clone(name)));
        self.changed.extend(names);
    }

    /// Whether certificates for this port are requested on demand.
    pub(super) fn covers(&self, key: &ListenerKey) -> bool {
        let port = self.ports.get(&key.fleet);
        port.is_some_and(|port| port.listener == *key)
    }

    /// The certificate for a server name; `None` if it isn't requested on demand.
    pub(super) fn get(&self, fleet: &FleetId, name: &str) -> Option<&CertificateKey> {
        self.ports.get(fleet)?.by_name.get(name)
    }

    /// The server names of a fleet.
    pub(super) fn names(&self, fleet: &FleetId) -> impl Iterator<Item = &Arc<str>> {
        let port = self.ports.get(fleet).into_iter();
        port.flat_map(|port| port.by_name.keys())
    }

    /// The server names whose certificate changed since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<(FleetId, Arc<str>)> {
        std::mem::take(&mut self.changed)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }
}

impl Port {
    /// Replaces all certificates, given by server name in order. Returns the names whose certificate differs.
    fn replace(&mut self, wanted: &[(&str, &CertificateKey)]) -> Vec<Arc<str>> {
        let mut wanted = wanted.iter().copied().peekable();
        let (mut changed, mut set) = (Vec::new(), Vec::new());
        for (name, before) in &self.by_name {
            while let Some((new, certificate)) = wanted.next_if(|(new, _)| **new < **name) {
                set.push((Arc::from(new), certificate));
            }
            match wanted.next_if(|(same, _)| **same == **name) {
                Some((_, certificate)) if certificate == before => {}
                Some((_, certificate)) => set.push((Arc::clone(name), certificate)),
                None => changed.push(Arc::clone(name)),
            }
        }
        set.extend(wanted.map(|(new, certificate)| (Arc::from(new), certificate)));
        for name in changed.iter().chain(set.iter().map(|(name, _)| name)) {
            if let Some(before) = self.by_name.remove(name) {
                self.by_certificate.remove(&(before, Arc::clone(name)));
            }
        }
        for (name, certificate) in set {
            self.by_certificate
                .insert((certificate.clone(), Arc::clone(&name)));
            self.by_name.insert(Arc::clone(&name), certificate.clone());
            changed.push(name);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use sesame_model::{
        Chain, ChainTarget, ChainTls, Port as ModelPort, RouteTableKey, Termination, TlsMode,
    };

    use super::*;
    use crate::testing::fleet;

    fn key(port: u16) -> ListenerKey {
        ListenerKey {
            fleet: fleet(),
            port: ModelPort::tcp(port),
        }
    }

    fn certificate(name: &str) -> CertificateKey {
        CertificateKey {
            namespace: "ns".into(),
            name: name.into(),
        }
    }

    fn chain(server_name: Option<&str>, certificates: &[&str]) -> Chain {
        Chain {
            tls: Some(ChainTls {
                server_name: server_name.map(Into::into),
                mode: TlsMode::Terminate(Arc::new(Termination {
                    certificates: certificates.iter().map(|name| certificate(name)).collect(),
                    clients: None,
                    versions: None,
                })),
            }),
            target: ChainTarget::Http(RouteTableKey {
                fleet: fleet(),
                port: 443,
            }),
        }
    }

    /// A listener with this many hosts, and other chains.
    fn listener(hosts: usize, others: Vec<Chain>) -> Listener {
        let hosts = (0..hosts).map(|number| chain(Some(&format!("h{number}.org")), &["all"]));
        let mut chains: Vec<Chain> = hosts.chain(others).collect();
        chains.sort_by(|a, b| a.server_name().cmp(&b.server_name()));
        Listener {
            bind: vec![],
            chains,
            tracing: None,
            settings: Arc::default(),
        }
    }

    fn changed(on_demand: &mut OnDemand) -> Vec<String> {
        let changed = on_demand.take_changed().into_iter();
        changed.map(|(_, name)| name.to_string()).collect()
    }

    #[test]
    fn a_port_changes_its_form_at_two_thresholds() {
        let mut on_demand = OnDemand::default();
        for (hosts, expected) in [
            (MANY - 1, false),
            (MANY, true),
            (FEW, true),
            (FEW - 1, false),
            (FEW, false),
        ] {
            on_demand.listener(&key(443), Some(&listener(hosts, vec![])));
            assert_eq!(on_demand.covers(&key(443)), expected, "{hosts}");
        }
        changed(&mut on_demand);
        on_demand.listener(&key(443), Some(&listener(MANY, vec![])));
        assert_eq!(changed(&mut on_demand).len(), MANY);
        on_demand.listener(&key(443), None);
        assert_eq!(changed(&mut on_demand).len(), MANY);
        assert!(on_demand.is_empty());
    }

    #[test]
    fn only_one_port_of_a_fleet_has_this_form() {
        let mut on_demand = OnDemand::default();
        let many = listener(MANY, vec![]);
        on_demand.listener(&key(443), Some(&many));
        on_demand.listener(&key(8443), Some(&many));
        assert!(on_demand.covers(&key(443)) && !on_demand.covers(&key(8443)));
    }

    #[test]
    fn only_names_whose_certificate_changed_change() {
        let mut on_demand = OnDemand::default();
        on_demand.listener(&key(443), Some(&listener(MANY, vec![])));
        changed(&mut on_demand);
        let own = chain(Some("own.org"), &["own"]);
        on_demand.listener(&key(443), Some(&listener(MANY, vec![own.clone()])));
        assert_eq!(changed(&mut on_demand), ["own.org"]);
        on_demand.listener(&key(443), Some(&listener(MANY - 1, vec![own])));
        assert_eq!(changed(&mut on_demand), [format!("h{}.org", MANY - 1)]);
        on_demand.certificate(&fleet(), &certificate("own"));
        assert_eq!(changed(&mut on_demand), ["own.org"]);
        let other = chain(Some("own.org"), &["other"]);
        on_demand.listener(&key(443), Some(&listener(MANY - 1, vec![other])));
        assert_eq!(changed(&mut on_demand), ["own.org"]);
        on_demand.certificate(&fleet(), &certificate("own"));
        assert!(changed(&mut on_demand).is_empty());
    }

    #[test]
    fn chains_that_differ_are_not_shared() {
        let mut on_demand = OnDemand::default();
        let others = vec![
            chain(Some("two.org"), &["rsa", "ecdsa"]),
            chain(Some("*.wild.org"), &["all"]),
            chain(Some("a.b.wild.org"), &["all"]),
        ];
        on_demand.listener(&key(443), Some(&listener(MANY, others)));
        assert!(on_demand.covers(&key(443)));
        assert_eq!(changed(&mut on_demand).len(), MANY);
        // This listener would get connections with unknown names.
        let any = vec![chain(None, &["all"])];
        on_demand.listener(&key(443), Some(&listener(MANY, any)));
        assert!(!on_demand.covers(&key(443)));
    }
}
