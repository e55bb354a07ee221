//! What a gateway does, as plain data: the interface between `translate`, which decides what objects mean, and `envoy`, which
//! encodes it in protobuf.
//!
//! In: nothing. Out: types without behaviour beyond their own consistency.
//! It depends on neither Kubernetes nor Envoy: a term that only one of them uses doesn't belong here.
//!
//! The keys are chosen so that a change of one object affects few values:
//!
//! | value | key | changes when |
//! |---|---|---|
//! | [`Listener`] | [`ListenerKey`] | ports, hostnames of TLS listeners, names of certificates change |
//! | [`RouteTable`] | [`RouteTableKey`] | a listener comes, goes or changes its hostname |
//! | [`VirtualHost`] | [`VirtualHostKey`] | a route of that host changes |
//! | [`Cluster`] | [`ClusterKey`] | a Service port or its policy changes |
//! | [`Endpoints`] | [`ClusterKey`] | Pods come and go |
//! | [`Certificate`] | [`CertificateKey`] | a certificate is rotated |

mod backend;
mod fleet;
mod listener;
mod port;
mod route;
mod tls;

pub use backend::{Cluster, ClusterKey, ClusterPolicy, Endpoint, Endpoints, Protocol, UpstreamTls};
pub use fleet::{
    AddressRequest, Autoscaling, FleetAddress, FleetId, FleetLogLevel, FleetParameters,
    FleetProblem, FleetRequest, FleetState, GatewayOwner, ParseFleetIdError, ServiceType,
    TaintEffect, Toleration, TrafficPolicy, Workload,
};
pub use listener::{Chain, ChainTarget, ChainTls, Listener, ListenerKey, TlsMode, WeightedCluster};
pub use port::{Port, Transport};
pub use route::{
    Action, Cors, Forward, HeaderChanges, HeaderLists, HeaderMatch, List, Mirror, OriginMatch,
    PartsPerMillion, PathMatch, PathRewrite, QueryMatch, Redirect, RedirectPort, Retry, Route,
    RouteMatch, RouteTable, RouteTableKey, Session, Target, ValueMatch, VirtualHost,
    VirtualHostKey, WeightedTarget,
};
pub use tls::{Certificate, CertificateKey};
