//! What a cluster is made of: programs, each out of a Go module of `xtask/go`.
//!
//! In: nothing. Out: the list, in the order of building. Versions stand in the modules' `go.mod` alone.

/// A program to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Its path below the folder of programs.
    pub(super) name: &'static str,
    /// The folder of its module below `xtask/go`.
    pub(super) module: &'static str,
    /// The package that is its `main`.
    pub(super) package: &'static str,
    pub(super) stamp: Stamp,
    /// Whether it has C in it.
    pub(super) c: bool,
    /// Go's build tags, with commas.
    pub(super) tags: &'static str,
}

/// How a program comes to know its own version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// It doesn't need to.
    None,
    /// This variable is set to the version of this module, as it is or without its `v`.
    Variable {
        module: &'static str,
        variable: &'static str,
        v: bool,
    },
    /// Kubernetes' three variables. Its programs compare versions with each other and refuse to run without.
    Kubernetes,
}

/// What tests of the API alone need: a prefix of [`ALL`].
pub(super) const API_SERVER: &[Program] = ALL.split_at(2).0;

/// Everything. Those that others wait for come first; those that share most packages with them next.
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

/// The module that has the Gateway API's definitions in it, and its folder below `xtask/go`.
pub(super) const DEFINITIONS: (&str, &str) = ("crds", "sigs.k8s.io/gateway-api");

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
