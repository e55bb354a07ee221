//! A simulated cluster, processes that read their files late, and TLS handshakes in memory.

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
    /// The number of writes.
    pub(super) writes: usize,
}

impl Cluster {
    /// A replica that has just listed all Secrets.
    pub(super) fn join(&self, config: CaConfig) -> SecretsState {
        let sources = sources(&config);
        let mut state = SecretsState::new(config);
        for source in sources {
            state.handle_event(source.clone(), Event::Init);
            for (name, secret) in &self.secrets {
                let listed = match source {
                    SecretSource::Fleets(_) => secret.metadata.labels.iter().any(|labels| {
                        labels
                            .get(secret::INSTANCE_LABEL)
                            .is_some_and(|namespace| namespace == NAMESPACE)
                    }),
                    _ => state.covers(&source, name),
                };
                if listed {
                    state.handle_event(source.clone(), Event::InitApply(secret.clone()));
                }
            }
            state.handle_event(source, Event::InitDone);
        }
        state
    }

    /// A leader that has listed all Secrets and has these fleets.
    pub(super) fn leader(&self, names: &[&str]) -> SecretsState {
        let mut state = self.join(config());
        state.set_leading(true);
        for name in names {
            state.set_fleet(fleet(name), Some(desired_secret(name)));
        }
        state
    }

    pub(super) fn insert(&mut self, name: &Name, mut secret: Secret) -> Secret {
        secret.metadata.namespace = Some(name.0.clone());
        secret.metadata.name = Some(name.1.clone());
        self.secrets.insert(name.clone(), secret.clone());
        secret
    }

    /// Sends a watch event for a Secret.
    pub(super) fn send_event(&self, state: &mut SecretsState, name: &Name) {
        let source = match name.1.as_str() {
            secret::CA => SecretSource::Ca,
            secret::SERVER => SecretSource::Server,
            _ => SecretSource::Fleets(None),
        };
        state.handle_event(source, Event::Apply(self.secrets[name].clone()));
    }

    /// Reconciles all due Secrets, as the store does. Returns how many times the CAs were written.
    pub(super) fn reconcile(&mut self, state: &mut SecretsState, now: Timestamp) -> usize {
        let mut cas_written = 0;
        for pass in 0.. {
            assert!(pass < 1_000, "reconciliation does not converge");
            let names = state.next(now);
            if names.is_empty() {
                break;
            }
            for name in names {
                let found = self.secrets.get(&name).cloned();
                match state.action(now, &name, found.as_ref()) {
                    Ok(SecretAction::Keep(_)) => state.done(now, &name, found, false),
                    Ok(SecretAction::Write(secret)) => {
                        cas_written += usize::from(name == own_secret(secret::CA));
                        self.writes += 1;
                        let written = self.insert(&name, *secret);
                        state.done(now, &name, Some(written), true);
                    }
                    Ok(SecretAction::Delete) => {
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

/// A process that reads its files with a delay.
pub(super) struct Process {
    name: Name,
    pub(super) subject: Subject,
    /// Seconds between reads.
    period: i64,
    read_at: i64,
    pub(super) files: TlsFiles,
    leaf: Leaf,
    trusted_cas: Vec<String>,
}

impl Process {
    fn new(cluster: &Cluster, name: Name, subject: Subject, period: i64) -> Self {
        let files = cluster.files(&name);
        Self {
            leaf: Leaf::read(&files).unwrap(),
            trusted_cas: trusted_cas(&files),
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
            self.trusted_cas = trusted_cas(&files);
            self.files = files;
        }
    }

    pub(super) fn accepts(&self, peer: &Process, now: Timestamp) -> bool {
        self.trusted_cas.contains(&peer.leaf.issuer)
            && (peer.leaf.not_before..peer.leaf.not_after).contains(&now)
    }
}

fn trusted_cas(files: &TlsFiles) -> Vec<String> {
    let bundle = cert::read_bundle(&files.ca_bundle);
    bundle.into_iter().map(|ca| ca.pem).collect()
}

/// Replicas that read their files at these intervals.
pub(super) fn replicas<const N: usize>(cluster: &Cluster, periods: [i64; N]) -> [Process; N] {
    periods.map(|period| {
        let subject = Subject::Server(vec![DNS_NAME.to_owned()]);
        Process::new(cluster, own_secret(secret::SERVER), subject, period)
    })
}

/// One Envoy per fleet, which reads its files at this interval.
pub(super) fn envoys<const N: usize>(
    cluster: &Cluster,
    fleets: &[&str],
    periods: [i64; N],
) -> Vec<Process> {
    let fleets = fleets.iter().zip(periods);
    fleets
        .map(|(name, period)| {
            let subject = Subject::Fleet(fleet(name));
            Process::new(cluster, secret_name(name), subject, period)
        })
        .collect()
}

#[derive(Debug)]
struct FixedTime(Timestamp);

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// Performs a TLS handshake in memory, at this time.
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
    server.time_provider = Arc::new(FixedTime(now));
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(client.ca_bundle.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_details(provider, Arc::new(FixedTime(now)))
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
