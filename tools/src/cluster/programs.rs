//! The programs of a cluster, each built from a Go module in `tools/go`.
//!
//! Out: the list in build order. The modules' `go.mod` files define the versions.

/// A program to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Path in the programs folder.
    pub(super) name: &'static str,
    /// Folder of its module in `tools/go`.
    pub(super) module: &'static str,
    /// Its main package.
    pub(super) package: &'static str,
    pub(super) stamp: Stamp,
    /// Whether it needs cgo.
    pub(super) c: bool,
    /// Go build tags, separated by commas.
    pub(super) tags: &'static str,
}

/// How a program's version is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// Not at all.
    None,
    /// In a variable, which is set to a module's version with or without the leading `v`.
    Variable {
        module: &'static str,
        variable: &'static str,
        v: bool,
    },
    /// In Kubernetes' variables, since its programs check each other's versions.
    Kubernetes,
}

/// The programs for tests with an API server: the first ones in [`ALL`].
pub(super) const API_SERVER: &[Program] = ALL.split_at(2).0;

/// All programs.
pub(super) const ALL: &[Program] = &[
    plain("etcd", "k8s", "go.etcd.io/etcd/server/v3"),
    kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    plain("load-balancer", "k8s", "./load-balancer"),
    kubernetes(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    containerd(
        "containerd",
        "github.com/containerd/containerd/v2/cmd/containerd",
    ),
    containerd(
        "containerd-shim-runc-v2",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    ),
    containerd("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
    Program {
        stamp: Stamp::Variable {
            module: "github.com/opencontainers/runc",
            variable: "main.version",
            v: false,
        },
        c: true,
        tags: "seccomp,urfave_cli_no_docs,netgo,osusergo",
        ..plain("runc", "runc", "github.com/opencontainers/runc")
    },
    plain(
        "cni/bridge",
        "cni",
        "github.com/containernetworking/plugins/plugins/main/bridge",
    ),
    plain(
        "cni/loopback",
        "cni",
        "github.com/containernetworking/plugins/plugins/main/loopback",
    ),
    plain(
        "cni/host-local",
        "cni",
        "github.com/containernetworking/plugins/plugins/ipam/host-local",
    ),
    plain(
        "cni/portmap",
        "cni",
        "github.com/containernetworking/plugins/plugins/meta/portmap",
    ),
    plain("pause", "pause", "."),
    plain("coredns", "coredns", "."),
];

/// The module with the Gateway API's CRDs: its folder in `tools/go` and its name.
pub(super) const DEFINITIONS: (&str, &str) = ("crds", "sigs.k8s.io/gateway-api");

/// The folder with an earlier version of that module, and the file with the CRD that later ones lack.
pub(super) const EARLY_DEFINITION: (&str, &str) = (
    "early-crds",
    "gateway.networking.x-k8s.io_xlistenersets.yaml",
);

const fn plain(name: &'static str, module: &'static str, package: &'static str) -> Program {
    Program {
        name,
        module,
        package,
        stamp: Stamp::None,
        c: false,
        tags: "",
    }
}

const fn kubernetes(name: &'static str, package: &'static str) -> Program {
    Program {
        stamp: Stamp::Kubernetes,
        ..plain(name, "k8s", package)
    }
}

const fn containerd(name: &'static str, package: &'static str) -> Program {
    Program {
        stamp: Stamp::Variable {
            module: "github.com/containerd/containerd/v2",
            variable: "github.com/containerd/containerd/v2/version.Version",
            v: true,
        },
        ..plain(name, "containerd", package)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_comes_first() {
        let names: Vec<_> = API_SERVER.iter().map(|program| program.name).collect();
        assert_eq!(names, ["etcd", "kube-apiserver"]);
    }
}
