//! Certificates, keys and kubeconfigs for a cluster, generated on each start.
//!
//! In: the API server's address and the node's name. Out: files; secret ones are readable only by their owner.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use super::layout::{API_SERVICE, Layout, NODE_ADDRESS};

/// Users with a kubeconfig: file name, user, group.
const CLIENTS: &[(&str, &str, Option<&str>)] = &[
    ("admin", "admin", Some("system:masters")),
    ("controller-manager", "system:kube-controller-manager", None),
    ("scheduler", "system:kube-scheduler", None),
    ("kube-proxy", "system:kube-proxy", None),
    ("coredns", "sesame:coredns", None),
    ("load-balancer", "sesame:load-balancer", None),
];

/// Writes all files.
pub(super) fn write(layout: &Layout) -> Result<()> {
    let node = layout.name();
    let shelf = Shelf {
        folder: layout.pki(),
    };
    fs::create_dir_all(&shelf.folder)?;
    let authority = shelf.authority("ca")?;
    let proxies = shelf.authority("front-proxy-ca")?;

    // Signs service account tokens.
    let tokens = KeyPair::generate()?;
    shelf.secret("service-accounts.key", &tokens.serialize_pem())?;
    shelf.write("service-accounts.pub", &tokens.public_key_pem(), 0o644)?;

    let api_server = [
        NODE_ADDRESS,
        API_SERVICE,
        "127.0.0.1",
        "localhost",
        node,
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let kubelet = format!("system:node:{node}");
    shelf.pair(
        "apiserver",
        &authority.server("kube-apiserver", &api_server)?,
    )?;
    shelf.pair(
        "kubelet-server",
        &authority.server(&kubelet, &[NODE_ADDRESS, node, "127.0.0.1"])?,
    )?;
    shelf.pair(
        "apiserver-kubelet-client",
        &authority.client("kube-apiserver-kubelet-client", Some("system:masters"))?,
    )?;
    shelf.pair(
        "front-proxy-client",
        &proxies.client("front-proxy-client", None)?,
    )?;

    let kubelet_client = ("kubelet", kubelet.as_str(), Some("system:nodes"));
    for (file, user, group) in CLIENTS.iter().copied().chain([kubelet_client]) {
        let text = kubeconfig(&authority.pem(), &authority.client(user, group)?);
        shelf.secret(&format!("{file}.kubeconfig"), &text)?;
    }
    let admin = shelf.folder.join("admin.kubeconfig");
    fs::copy(&admin, layout.kubeconfig()).context("cannot write the kubeconfig")?;
    Ok(())
}

/// The folder for these files.
struct Shelf {
    folder: PathBuf,
}

impl Shelf {
    /// Generates a CA and writes its files.
    fn authority(&self, name: &str) -> Result<Authority> {
        let authority = Authority::new(name)?;
        self.write(&format!("{name}.crt"), &authority.pem(), 0o644)?;
        self.secret(&format!("{name}.key"), &authority.0.key().serialize_pem())?;
        Ok(authority)
    }

    fn pair(&self, name: &str, pair: &Pair) -> Result<()> {
        self.write(&format!("{name}.crt"), &pair.certificate, 0o644)?;
        self.secret(&format!("{name}.key"), &pair.key)
    }

    fn secret(&self, name: &str, text: &str) -> Result<()> {
        self.write(name, text, 0o600)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> Result<()> {
        let path = self.folder.join(name);
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A certificate and its key, as PEM.
struct Pair {
    certificate: String,
    key: String,
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Result<Self> {
        let mut params = subject(name, None, &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self(CertifiedIssuer::self_signed(
            params,
            KeyPair::generate()?,
        )?))
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn server(&self, name: &str, hosts: &[&str]) -> Result<Pair> {
        let mut params = subject(name, None, hosts)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    fn client(&self, user: &str, group: Option<&str>) -> Result<Pair> {
        let mut params = subject(user, group, &[])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Pair> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        Ok(Pair {
            certificate: params.signed_by(&key, &self.0)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// Kubernetes reads the user from the common name and the group from the organization.
fn subject(name: &str, group: Option<&str>, hosts: &[&str]) -> Result<CertificateParams> {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    Ok(params)
}

fn kubeconfig(authority: &str, pair: &Pair) -> String {
    let encoded = |pem: &str| BASE64_STANDARD.encode(pem);
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: sesame\n\
         clusters:\n- name: sesame\n  cluster:\n    server: https://{server}:6443\n    \
         certificate-authority-data: {authority}\n\
         users:\n- name: sesame\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n\
         contexts:\n- name: sesame\n  context: {{cluster: sesame, user: sesame}}\n",
        server = NODE_ADDRESS,
        authority = encoded(authority),
        certificate = encoded(&pair.certificate),
        key = encoded(&pair.key),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn secrets_are_private_and_kubeconfigs_are_valid() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::below(dir.path(), "a").unwrap();
        write(&layout).unwrap();
        let mut kubeconfigs = 0;
        for entry in fs::read_dir(layout.pki()).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let extension = path.extension().unwrap();
            if extension == "kubeconfig" {
                let value: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
                let key = &value["users"][0]["user"]["client-key-data"];
                let key = BASE64_STANDARD.decode(key.as_str().unwrap()).unwrap();
                assert!(key.starts_with(b"-----BEGIN PRIVATE KEY-----"));
                kubeconfigs += 1;
            }
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            let secret = extension == "kubeconfig" || extension == "key";
            assert_eq!(mode, if secret { 0o600 } else { 0o644 }, "{path:?}");
        }
        assert_eq!(kubeconfigs, CLIENTS.len() + 1);
        let mode = layout.kubeconfig().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
