//! A map of Secrets instead of an API server, processes that read their Secrets late, and handshakes in memory.

use std::sync::Arc;

use kube::api::ObjectMeta;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};
use sesame_xds::tls as discovery;

use super::*;
use crate::kube::identity::read::Leaf;

/// Does jobs in a map, as the store does them at an API server.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) secrets: BTreeMap<Place, Secret>,
    /// How many Secrets were written.
    pub(super) writes: usize,
}

impl Cluster {
    pub(super) fn write(&mut self, place: Place, fill: impl FnOnce(&mut Secret)) -> Secret {
        let secret = self.secrets.entry(place.clone()).or_default();
        secret.metadata.namespace = Some(place.0);
        secret.metadata.name = Some(place.1);
        fill(secret);
        self.writes += 1;
        secret.clone()
    }

    pub(super) fn own(name: &str) -> Place {
        (NAMESPACE.to_owned(), name.to_owned())
    }

    /// A replica that has just started, and has seen all there is.
    pub(super) fn join(&self) -> State {
        self.join_as(&config())
    }

    /// The same for a replica of another configuration.
    pub(super) fn join_as(&self, config: &Config) -> State {
        let mut state = State::new(config);
        for source in [Source::Authority, Source::Server, Source::Fleets(0)] {
            state.see(Seen::Begin(source));
            for (place, secret) in &self.secrets {
                let of = match place.1.as_str() {
                    secret::AUTHORITY => Source::Authority,
                    secret::SERVER => Source::Server,
                    _ => Source::Fleets(0),
                };
                if of == source {
                    state.see(Seen::Is(source, Box::new(secret.clone())));
                }
            }
            state.see(Seen::Complete(source));
        }
        state
    }

    /// Does everything that a leader has to do now. Gives the steps of the authorities.
    pub(super) fn work(&mut self, state: &mut State, now: Timestamp) -> usize {
        let mut steps = 0;
        for turn in 0.. {
            assert!(turn < 1_000, "the work has no end");
            match state.next(now).unwrap() {
                None => break,
                Some(Job::Authorities { to, .. }) => {
                    let place = Self::own(secret::AUTHORITY);
                    let written = self.write(place, |s| secret::write_authorities(s, &to));
                    state.see_authorities(Some(&written));
                    assert_eq!(state.authorities(), Some(&*to), "what is written is read");
                    steps += 1;
                }
                Some(Job::Server) => {
                    let place = Self::own(secret::SERVER);
                    let subject = state.server_subject().clone();
                    let written = self.fill(state, now, &subject, place, |_| {});
                    state.see_server(Some(&written));
                }
                Some(Job::Fleets(batch)) => {
                    for (id, owner) in batch {
                        let place = (owner.namespace.clone(), owner.secret_name.clone());
                        let subject = Subject::Fleet(id.clone());
                        let written = self.fill(state, now, &subject, place, |metadata| {
                            secret::write_owner(metadata, NAMESPACE, &id, &owner);
                        });
                        state.wrote(now, &id);
                        state.done(&id, &written);
                    }
                }
                Some(Job::Remove(id, owner)) => {
                    self.secrets.remove(&(owner.namespace, owner.secret_name));
                    state.removed(&id);
                }
            }
        }
        steps
    }

    pub(super) fn fill(
        &mut self,
        state: &State,
        now: Timestamp,
        subject: &Subject,
        place: Place,
        mark: impl FnOnce(&mut ObjectMeta),
    ) -> Secret {
        let authorities = state.authorities().unwrap();
        let files = self.secrets.get(&place).map(secret::read_files);
        let due = plan::due(now, &state.periods, authorities, subject, files).unwrap();
        self.write(place, |s| {
            if let Some(files) = due {
                secret::write_files(s, &files);
            }
            mark(&mut s.metadata);
        })
    }

    pub(super) fn files(&self, place: &Place) -> Files {
        secret::read_files(&self.secrets[place])
    }
}

/// A process that reads its files some time after they were written.
pub(super) struct Process {
    pub(super) place: Place,
    pub(super) subject: Subject,
    /// In seconds. What is written in between isn't seen.
    pub(super) late: i64,
    pub(super) read_at: i64,
    pub(super) files: Files,
    pub(super) leaf: Leaf,
}

impl Process {
    pub(super) fn new(cluster: &Cluster, place: Place, subject: Subject, late: i64) -> Self {
        let files = cluster.files(&place);
        let leaf = read::leaf(&files, &subject).unwrap();
        Self {
            place,
            subject,
            late,
            read_at: 0,
            files,
            leaf,
        }
    }

    pub(super) fn run(&mut self, cluster: &Cluster, now: i64) {
        if now - self.read_at < self.late {
            return;
        }
        self.read_at = now;
        let files = cluster.files(&self.place);
        if files != self.files {
            self.leaf = read::leaf(&files, &self.subject).unwrap();
            self.files = files;
        }
    }

    pub(super) fn takes(&self, other: &Process, now: Timestamp) -> bool {
        self.leaf.trusts.contains(&other.leaf.issuer)
            && other.leaf.begin <= now
            && now < other.leaf.end
    }
}

#[derive(Debug)]
pub(super) struct At(Timestamp);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// A real handshake at that time, in memory.
pub(super) fn shake_hands(server: &Files, client: &Files, now: Timestamp) -> Result<(), String> {
    let identity = discovery::Identity::new(&discovery::Pem {
        chain: server.certified.certificate.clone(),
        private_key: server.certified.private_key.clone(),
        authorities: server.authorities.clone(),
    })
    .map_err(|error| error.to_string())?;
    let mut server = (*identity.config().unwrap()).clone();
    server.time_provider = Arc::new(At(now));
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(client.authorities.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_details(provider, Arc::new(At(now)))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(client.certified.certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(client.certified.private_key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from(NAME).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server
            .process_new_packets()
            .map_err(|error| format!("the server: {error}"))?;
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client
            .process_new_packets()
            .map_err(|error| format!("the client: {error}"))?;
    }
    Ok(())
}

/// Replicas and Envoys of a cluster, with how late each gets its files.
pub(super) fn processes(cluster: &Cluster, fleets: &[&str]) -> (Vec<Process>, Vec<Process>) {
    let server = Subject::Server(vec![NAME.to_owned()]);
    let replicas = [0, 13 * HOUR]
        .map(|late| Process::new(cluster, Cluster::own(secret::SERVER), server.clone(), late));
    let envoys = fleets.iter().zip([0, HOUR, 20 * HOUR]).map(|(name, late)| {
        let place = ("apps".to_owned(), format!("{name}-xds"));
        Process::new(cluster, place, Subject::Fleet(fleet(name)), late)
    });
    let envoys = envoys.collect();
    (replicas.into(), envoys)
}
