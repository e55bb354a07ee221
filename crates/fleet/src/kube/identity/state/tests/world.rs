//! A map of Secrets instead of an API server, processes that read their files late, and handshakes in memory.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};
use sesame_xds::tls as discovery;

use super::*;

#[derive(Default)]
pub(super) struct Cluster {
    pub(super) secrets: BTreeMap<Name, Secret>,
    /// How often a Secret was written.
    pub(super) writes: usize,
}

impl Cluster {
    /// A replica that has just listed all Secrets.
    pub(super) fn join(&self, config: CaConfig) -> State {
        let sources = sources(&config);
        let mut state = State::new(config);
        for source in sources {
            state.see(source.clone(), Event::Init);
            for (name, secret) in &self.secrets {
                let listed = match source {
                    Source::Fleets(_) => secret.metadata.labels.iter().any(|labels| {
                        labels
                            .get(secret::KEPT_BY)
                            .is_some_and(|by| by == NAMESPACE)
                    }),
                    _ => state.covers(&source, name),
                };
                if listed {
                    state.see(source.clone(), Event::InitApply(secret.clone()));
                }
            }
            state.see(source, Event::InitDone);
        }
        state
    }

    /// The same, leading and with these fleets.
    pub(super) fn leader(&self, names: &[&str]) -> State {
        let mut state = self.join(config());
        state.lead(true);
        for name in names {
            state.want(fleet(name), Some(owner(name)));
        }
        state
    }

    pub(super) fn insert(&mut self, name: &Name, mut secret: Secret) -> Secret {
        secret.metadata.namespace = Some(name.0.clone());
        secret.metadata.name = Some(name.1.clone());
        self.secrets.insert(name.clone(), secret.clone());
        secret
    }

    /// Sends the event of a Secret.
    pub(super) fn show(&self, state: &mut State, name: &Name) {
        let source = match name.1.as_str() {
            secret::CA => Source::Ca,
            secret::SERVER => Source::Server,
            _ => Source::Fleets(None),
        };
        state.see(source, Event::Apply(self.secrets[name].clone()));
    }

    /// Reconciles all due Secrets, as the store does with an API server. Returns how often the CAs were written.
    pub(super) fn reconcile(&mut self, state: &mut State, now: Timestamp) -> usize {
        let mut cas_written = 0;
        for pass in 0.. {
            assert!(pass < 1_000, "it doesn't end");
            let names = state.next(now);
            if names.is_empty() {
                break;
            }
            for name in names {
                let found = self.secrets.get(&name).cloned();
                match state.action(now, &name, found.as_ref()) {
                    Ok(Action::Keep(_)) => state.done(now, &name, found, false),
                    Ok(Action::Write(secret)) => {
                        cas_written += usize::from(name == own(secret::CA));
                        self.writes += 1;
                        let written = self.insert(&name, *secret);
                        state.done(now, &name, Some(written), true);
                    }
                    Ok(Action::Delete) => {
                        self.secrets.remove(&name);
                        state.done(now, &name, None, true);
                    }
                    Err(error) => state.failed(now, &name, error.to_string()),
                }
            }
        }
        cas_written
    }

    pub(super) fn files(&self, name: &Name) -> TlsFiles {
        secret::read_files(&self.secrets[name])
    }
}

/// A process that reads its files some time after they were written.
pub(super) struct Process {
    name: Name,
    pub(super) subject: Subject,
    /// Seconds between two reads.
    period: i64,
    read_at: i64,
    pub(super) files: TlsFiles,
    leaf: Leaf,
    trusts: Vec<String>,
}

impl Process {
    fn new(cluster: &Cluster, name: Name, subject: Subject, period: i64) -> Self {
        let files = cluster.files(&name);
        Self {
            leaf: Leaf::read(&files).unwrap(),
            trusts: trusts(&files),
            name,
            subject,
            period,
            read_at: 0,
            files,
        }
    }

    pub(super) fn run(&mut self, cluster: &Cluster, now: i64) {
        if now - self.read_at < self.period {
            return;
        }
        self.read_at = now;
        let files = cluster.files(&self.name);
        if files != self.files {
            self.leaf = Leaf::read(&files).unwrap();
            self.trusts = trusts(&files);
            self.files = files;
        }
    }

    pub(super) fn accepts(&self, peer: &Process, now: Timestamp) -> bool {
        self.trusts.contains(&peer.leaf.issuer)
            && (peer.leaf.not_before..peer.leaf.not_after).contains(&now)
    }
}

fn trusts(files: &TlsFiles) -> Vec<String> {
    let bundle = cert::read_bundle(&files.ca_bundle);
    bundle.into_iter().map(|ca| ca.pem).collect()
}

/// Replicas, by how late each reads its files.
pub(super) fn replicas<const N: usize>(cluster: &Cluster, late: [i64; N]) -> [Process; N] {
    late.map(|late| {
        let subject = Subject::Server(vec![DNS_NAME.to_owned()]);
        Process::new(cluster, own(secret::SERVER), subject, late)
    })
}

/// An Envoy of each fleet, by how late it reads its files.
pub(super) fn envoys<const N: usize>(
    cluster: &Cluster,
    fleets: &[&str],
    late: [i64; N],
) -> Vec<Process> {
    let late = fleets.iter().zip(late);
    late.map(|(name, late)| {
        let subject = Subject::Fleet(fleet(name));
        Process::new(cluster, app(&format!("{name}-xds")), subject, late)
    })
    .collect()
}

#[derive(Debug)]
struct At(Timestamp);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// A TLS handshake at that time, in memory.
pub(super) fn handshake(
    server: &TlsFiles,
    client: &TlsFiles,
    now: Timestamp,
) -> Result<(), String> {
    let identity = discovery::Identity::new(&discovery::Pem {
        chain: server.certificate.clone(),
        private_key: server.private_key.clone(),
        ca_bundle: server.ca_bundle.clone(),
    })
    .map_err(|error| error.to_string())?;
    let mut server = (*identity.config().unwrap()).clone();
    server.time_provider = Arc::new(At(now));
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(client.ca_bundle.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_details(provider, Arc::new(At(now)))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(client.private_key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from(DNS_NAME).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server
            .process_new_packets()
            .map_err(|error| format!("server: {error}"))?;
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client
            .process_new_packets()
            .map_err(|error| format!("client: {error}"))?;
    }
    Ok(())
}
