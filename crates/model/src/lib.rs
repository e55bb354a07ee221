//! What a gateway does, in plain data: the language between `translate`, which decides what objects mean,
//! and `envoy`, which says it in protobuf.
//!
//! In: nothing. Out: types without behaviour beyond their own consistency.
//! It must know neither Kubernetes nor Envoy: a word that only one of them uses does not belong here.
//!
//! Everything is keyed so that a change of one object touches few values:
//!
//! | value | key | changes when |
//! |---|---|---|
//! | [`Listener`] | [`ListenerKey`] | ports, hostnames of TLS listeners, names of certificates change |
//! | [`RouteTable`] | [`RouteTableKey`] | a listener comes, goes or changes its hostname |
//! | [`VirtualHost`] | [`VirtualHostKey`] | a route of that host changes |
//! | [`Cluster`] | [`ClusterKey`] | a Service port changes its protocol |
//! | [`Endpoints`] | [`ClusterKey`] | Pods come and go |
//! | [`Certificate`] | [`CertificateKey`] | a certificate is rotated |

mod backend;
mod fleet;
mod listener;
mod route;
mod tls;

pub use backend::{Cluster, ClusterKey, Endpoint, Endpoints, Protocol, UpstreamTls};
pub use fleet::{
    Autoscaling, FleetId, FleetLogLevel, FleetParameters, ServiceType, TaintEffect, Toleration,
    TrafficPolicy, Workload,
};
pub use listener::{Listener, ListenerKey, ListenerKind, TlsChain};
pub use route::{
    Action, Cors, Forward, HeaderChanges, HeaderLists, HeaderMatch, List, Mirror, OriginMatch,
    PartsPerMillion, PathMatch, PathRewrite, QueryMatch, Redirect, RedirectPort, Retry, Route,
    RouteMatch, RouteTable, RouteTableKey, Session, Target, ValueMatch, VirtualHost,
    VirtualHostKey, WeightedTarget,
};
pub use tls::{Certificate, CertificateKey};
