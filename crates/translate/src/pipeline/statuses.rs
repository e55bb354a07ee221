//! Statuses of routes.

use std::sync::Arc;

use sesame_api::{ObjectKey, ObjectStatus};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{ClusterKey, FleetId, VirtualHostKey};

use crate::fleet::{Rejected, RejectedKind};
use crate::gateway_api::l4_route;
use crate::gateway_api::route::status::{Findings, REJECTED, Rejections};
use crate::gateway_api::route::{self, RouteKind};
use crate::inputs::Inputs;
use crate::problem::Problem;
use crate::settings::Settings;
use crate::shared::client_certificates::ClientCertificates;
use crate::shared::connections::{ChainKey, ServedChain};
use crate::shared::held;
use crate::shared::host_findings::HostFindings;
use crate::shared::hosts::Attachments;
use crate::shared::scans;
use crate::shared::services::RoutedBackend;
use crate::shared::wildcard_budget;

/// The tables that statuses depend on.
#[derive(Clone, Copy)]
pub(super) struct Sources {
    /// HTTPRoutes, GRPCRoutes, TLSRoutes, TCPRoutes and UDPRoutes.
    pub(super) routes: (
        route::Stages,
        route::Stages,
        l4_route::Stages,
        l4_route::Stages,
        l4_route::Stages,
    ),
    /// What hosts report about routes.
    pub(super) hosts: HostFindings,
    /// Hosts that Envoys rejected, by fleet.
    pub(super) held_by_fleet: Index<VirtualHostKey, held::Held, FleetId>,
    /// The routes that get forwarded connections.
    pub(super) chains: Table<ChainKey, ServedChain>,
    /// The clusters of each fleet.
    pub(super) fleet_clusters: Table<(FleetId, ClusterKey), ()>,
    /// Backends.
    pub(super) backends: Table<ClusterKey, RoutedBackend>,
    /// The client certificates of fleets.
    pub(super) client_certificates: ClientCertificates,
}

/// Declares the statuses of all kinds of routes.
pub(super) fn of_routes(
    b: &mut Builder,
    inputs: &Inputs,
    sources: Sources,
) -> Table<ObjectKey, ObjectStatus> {
    let inputs = *inputs;
    let (http, grpc, tls, tcp, udp) = sources.routes;
    let (chains, hosts) = (sources.chains, sources.hosts);
    let clusters_by_secret = b.index(
        sources.fleet_clusters,
        "fleet's clusters by secret",
        |(fleet, cluster): &(FleetId, ClusterKey), ()| {
            Rejected::secrets_of(fleet, cluster).collect()
        },
    );
    let of_routes = b.derive(
        "rejected resource of routes",
        inputs.rejections,
        move |reader, key: &Rejected| {
            let of_routes = match key.what {
                RejectedKind::Chain | RejectedKind::Cluster | RejectedKind::Endpoints => true,
                RejectedKind::Secret => reader.count(clusters_by_secret, key) > 0,
                RejectedKind::Listener | RejectedKind::Routes => false,
            };
            of_routes.then_some(())
        },
    );
    let rejected_by_fleet = b.index(
        of_routes,
        "rejected resources of routes by fleet",
        |rejected: &Rejected, ()| vec![rejected.fleet.clone()],
    );
    let rejections = Rejections {
        rejections: inputs.rejections,
        fleets: b.union_keys(
            "fleets that reject resources of routes",
            [rejected_by_fleet.into(), sources.held_by_fleet.into()],
        ),
        backends: sources.backends,
        client_certificates: sources.client_certificates,
    };
    let of_requests = |stages: route::Stages| {
        move |reader: &mut Reader<'_>, key: &ObjectKey, attachments: &Attachments| {
            let rules = reader.get(stages.rules, key)?;
            let mut findings = Findings::of(&rules);
            // Most routes have no expressions, so reading the index for each would waste memory.
            if rules.has_scans() {
                let partial = findings.partially_invalid.take();
                findings.partially_invalid = scans::problem(reader, hosts.refusals, key, partial);
            }
            let mut problems = Vec::from_iter(wildcard_budget::problem(
                reader,
                hosts.left_out,
                key,
                (attachments, &rules),
            ));
            let mut fleets = attachments.fleets();
            if fleets.any(|fleet| reader.exists(rejections.fleets, fleet)) {
                let message = held::message(reader, hosts.held, key);
                problems.extend(message.map(|message| Problem::new(REJECTED, message)));
            }
            problems.extend(findings.partially_invalid.take());
            findings.partially_invalid = Problem::merge(problems);
            Some(findings)
        }
    };
    let http_status = route_statuses(
        b,
        "http_route status",
        inputs.http_routes,
        http.attachments,
        of_requests(http),
        inputs.settings,
        rejections,
    );
    let grpc_status = route_statuses(
        b,
        "grpc_route status",
        inputs.grpc_routes,
        grpc.attachments,
        of_requests(grpc),
        inputs.settings,
        rejections,
    );
    let of_connections = |stages: l4_route::Stages| {
        move |reader: &mut Reader<'_>, key: &ObjectKey, attachments: &Attachments| {
            let backends = reader.get(stages.backends, key)?;
            let mut findings = l4_route::findings(reader, chains, key, attachments, &backends);
            findings.partially_invalid =
                route::status::rejected_chain(reader, rejections, attachments);
            Some(findings)
        }
    };
    let tls_status = route_statuses(
        b,
        "tls_route status",
        inputs.tls_routes,
        tls.attachments,
        of_connections(tls),
        inputs.settings,
        rejections,
    );
    let tcp_status = route_statuses(
        b,
        "tcp_route status",
        inputs.tcp_routes,
        tcp.attachments,
        of_connections(tcp),
        inputs.settings,
        rejections,
    );
    let udp_status = route_statuses(
        b,
        "udp_route status",
        inputs.udp_routes,
        udp.attachments,
        of_connections(udp),
        inputs.settings,
        rejections,
    );
    b.union(
        "route statuses",
        [http_status, grpc_status, tls_status, tcp_status, udp_status],
    )
}

fn route_statuses<R: RouteKind>(
    b: &mut Builder,
    name: &'static str,
    routes: Table<ObjectKey, R>,
    attachments: Table<ObjectKey, Attachments>,
    findings: impl Fn(&mut Reader<'_>, &ObjectKey, &Attachments) -> Option<Findings>
    + Send
    + Sync
    + 'static,
    settings: Table<(), Settings>,
    rejections: Rejections,
) -> Table<ObjectKey, ObjectStatus> {
    b.derive(name, attachments, move |reader, key| {
        let route = reader.get(routes, key)?;
        let attachments = reader.get(attachments, key)?;
        let findings = findings(reader, key, &attachments)?;
        let clusters = || route::referenced(&*route);
        let rejected = route::status::rejected_backend(reader, rejections, &attachments, clusters);
        let generation = route.meta().generation;
        let status = route::status::status(
            reader.get(settings, &())?.controller_name.as_ref()?,
            &attachments,
            &findings,
            rejected.as_ref(),
            generation,
        );
        Some(ObjectStatus::Route(Arc::new(status)))
    })
}
