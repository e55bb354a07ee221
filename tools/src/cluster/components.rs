//! The node's components.
//!
//! In: the cluster's layout and programs. Out: command lines.

use std::path::{Path, PathBuf};

use super::layout::{LOAD_BALANCERS, Layout, NODE_ADDRESS, SERVICES};

/// A supervised program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Component {
    /// The program's name.
    pub(super) name: &'static str,
    pub(super) args: Vec<String>,
    /// Whether to wait for the API server before starting it.
    pub(super) later: bool,
}

/// The API server, which tests stop and start.
pub(super) const API_SERVER: &str = "kube-apiserver";

/// containerd's socket on the node.
pub(super) const CONTAINERD: &str = "/run/containerd/containerd.sock";

/// All components, in start order.
pub(super) fn all(layout: &Layout) -> Vec<Component> {
    let here = Here { layout };
    vec![
        here.etcd(),
        here.first(
            "containerd",
            &[("config", &here.setting("containerd.toml"))],
        ),
        here.api_server(),
        here.controller_manager(),
        here.later(
            "kube-scheduler",
            &[
                ("config", &here.setting("scheduler.yaml")),
                ("bind-address", "127.0.0.1"),
            ],
        ),
        here.later(
            "kubelet",
            &[
                ("config", &here.setting("kubelet.yaml")),
                ("kubeconfig", &here.pki("kubelet.kubeconfig")),
                ("hostname-override", layout.name()),
                ("node-ip", NODE_ADDRESS),
                ("root-dir", "/var/lib/kubelet"),
            ],
        ),
        here.later(
            "kube-proxy",
            &[("config", &here.setting("kube-proxy.yaml"))],
        ),
        here.later(
            "load-balancer",
            &[
                ("kubeconfig", &here.pki("load-balancer.kubeconfig")),
                ("pool", LOAD_BALANCERS),
            ],
        ),
        here.later("coredns", &[("conf", &here.setting("Corefile"))]),
    ]
}

struct Here<'a> {
    layout: &'a Layout,
}

impl Here<'_> {
    fn pki(&self, file: &str) -> String {
        text(self.layout.pki().join(file))
    }

    fn setting(&self, file: &str) -> String {
        text(self.layout.settings().join(file))
    }

    fn first(&self, name: &'static str, flags: &[(&str, &str)]) -> Component {
        Component {
            name,
            args: flags
                .iter()
                .map(|(flag, value)| format!("--{flag}={value}"))
                .collect(),
            later: false,
        }
    }

    fn later(&self, name: &'static str, flags: &[(&str, &str)]) -> Component {
        Component {
            later: true,
            ..self.first(name, flags)
        }
    }

    fn etcd(&self) -> Component {
        let (clients, peers) = ("http://127.0.0.1:2379", "http://127.0.0.1:2380");
        self.first(
            "etcd",
            &[
                ("name", "node"),
                ("data-dir", &text(self.layout.home().join("etcd"))),
                // The data doesn't outlive the cluster.
                ("unsafe-no-fsync", "true"),
                ("listen-client-urls", clients),
                ("advertise-client-urls", clients),
                ("listen-peer-urls", peers),
                ("initial-advertise-peer-urls", peers),
                ("initial-cluster", &format!("node={peers}")),
                ("log-level", "warn"),
            ],
        )
    }

    fn api_server(&self) -> Component {
        let key = |name: &str| self.pki(&format!("{name}.key"));
        let certificate = |name: &str| self.pki(&format!("{name}.crt"));
        self.first(
            API_SERVER,
            &[
                ("advertise-address", NODE_ADDRESS),
                ("secure-port", "6443"),
                ("allow-privileged", "true"),
                ("etcd-servers", "http://127.0.0.1:2379"),
                ("service-cluster-ip-range", SERVICES),
                ("authorization-mode", "Node,RBAC"),
                ("enable-admission-plugins", "NodeRestriction"),
                ("anonymous-auth", "false"),
                ("profiling", "false"),
                ("client-ca-file", &certificate("ca")),
                ("tls-cert-file", &certificate("apiserver")),
                ("tls-private-key-file", &key("apiserver")),
                (
                    "kubelet-client-certificate",
                    &certificate("apiserver-kubelet-client"),
                ),
                ("kubelet-client-key", &key("apiserver-kubelet-client")),
                ("kubelet-certificate-authority", &certificate("ca")),
                ("kubelet-preferred-address-types", "InternalIP"),
                (
                    "service-account-issuer",
                    "https://kubernetes.default.svc.cluster.local",
                ),
                (
                    "service-account-key-file",
                    &self.pki("service-accounts.pub"),
                ),
                ("service-account-signing-key-file", &key("service-accounts")),
                (
                    "requestheader-client-ca-file",
                    &certificate("front-proxy-ca"),
                ),
                ("requestheader-allowed-names", "front-proxy-client"),
                ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
                ("requestheader-group-headers", "X-Remote-Group"),
                ("requestheader-username-headers", "X-Remote-User"),
                ("proxy-client-cert-file", &certificate("front-proxy-client")),
                ("proxy-client-key-file", &key("front-proxy-client")),
                ("enable-aggregator-routing", "true"),
                ("audit-policy-file", &self.setting("audit.yaml")),
                ("audit-log-path", &text(self.layout.audit_log())),
                // A single file, without rotation.
                ("audit-log-maxsize", "0"),
            ],
        )
    }

    fn controller_manager(&self) -> Component {
        let kubeconfig = self.pki("controller-manager.kubeconfig");
        let authority = self.pki("ca.crt");
        self.later(
            "kube-controller-manager",
            &[
                ("kubeconfig", &kubeconfig),
                ("authentication-kubeconfig", &kubeconfig),
                ("authorization-kubeconfig", &kubeconfig),
                ("bind-address", "127.0.0.1"),
                ("leader-elect", "false"),
                ("use-service-account-credentials", "true"),
                ("profiling", "false"),
                // With lower limits, the last controller waits seconds for its first token.
                ("kube-api-qps", "200"),
                ("kube-api-burst", "400"),
                // The default is a folder on the host.
                ("flex-volume-plugin-dir", "/var/lib/kubelet/volumeplugins"),
                ("root-ca-file", &authority),
                (
                    "service-account-private-key-file",
                    &self.pki("service-accounts.key"),
                ),
                ("cluster-signing-cert-file", &authority),
                ("cluster-signing-key-file", &self.pki("ca.key")),
            ],
        )
    }
}

/// A component's log file.
pub(super) fn log(layout: &Layout, name: &str) -> PathBuf {
    layout.logs().join(format!("{name}.log"))
}

/// A path as text; `Layout` and `settings` ensure that it is UTF-8.
fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::programs;
    use super::*;

    #[test]
    fn every_component_is_built() {
        let layout = Layout::below(Path::new("/cache/run"), "a").unwrap();
        let components = all(&layout);
        for component in &components {
            let built = |program: &programs::Program| program.name == component.name;
            assert!(programs::ALL.iter().any(built), "{}", component.name);
        }
        let first: Vec<_> = components
            .iter()
            .filter(|component| !component.later)
            .map(|component| component.name)
            .collect();
        assert_eq!(first, ["etcd", "containerd", API_SERVER]);
    }
}
