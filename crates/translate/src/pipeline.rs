//! The stages in order, from objects to the model and statuses.
//!
//! A stage reads tables that are declared above it, by key or by index, and reruns when a row that it read changes, so
//! its reads determine the cost of a change.

mod authorities;
mod clusters;
mod gateways;
mod reach;
mod statuses;

use sesame_api::{
    DefaultScope, GRPCRoute, HTTPRoute, ObjectKey, ObjectStatus, TCPRoute, TLSRoute, UDPRoute,
};
use sesame_engine::{Builder, Index, Table};
use sesame_model::{
    Certificate, CertificateKey, Cluster, ClusterKey, Datagrams, DestinationKey, Endpoints,
    FleetId, FleetRequest, Listener, ListenerKey, ListenerSettings, PodServiceChange, RouteTable,
    RouteTableKey, TrustBundle, TrustBundleKey, VirtualHost, VirtualHostKey,
};

use self::reach::{certificates_of, listener_clusters_of, trust_bundles_of, valid_certificates};
use crate::configuration::{self, client_certificate};
use crate::gateway_api::route::{self, RouteKind, attach, backends};
use crate::gateway_api::{
    ancestors, backend_tls, backend_traffic, class_in_use, l4_route, listener_state, telemetry,
    xbackend,
};
use crate::http_proxy;
use crate::http_proxy::extensions;
use crate::ingress;
use crate::inputs::Inputs;
use crate::problem::Notices;
use crate::shared::connections::{self, ChainKey, ServedChain};
use crate::shared::datagrams;
use crate::shared::default_fleet;
use crate::shared::expiry;
use crate::shared::held;
use crate::shared::host_findings::HostFindings;
use crate::shared::hosts::{self, Attachments, RouteRules};
use crate::shared::open_listeners;
use crate::shared::overlaps;
use crate::shared::ports::{self, Bind};
use crate::shared::scans;
use crate::shared::service_annotations;
use crate::shared::wildcard_budget;

/// The declared stages of a translation.
#[derive(Clone, Copy)]
pub struct Pipeline {
    /// The input tables.
    pub inputs: Inputs,
    /// The output tables.
    pub outputs: Outputs,
}

/// The output tables: the model, the fleets to run, and statuses.
#[derive(Clone, Copy)]
pub struct Outputs {
    /// The fleets that should exist.
    pub fleets: Table<FleetId, FleetRequest>,
    /// The settings of each fleet's listeners.
    pub listener_settings: Table<FleetId, ListenerSettings>,
    /// The listener of each port.
    pub listeners: Table<ListenerKey, Listener>,
    /// Route tables, without their virtual hosts.
    pub route_tables: Table<RouteTableKey, RouteTable>,
    /// Virtual hosts.
    pub virtual_hosts: Table<VirtualHostKey, VirtualHost>,
    /// Service ports and XBackends that routes refer to.
    pub clusters: Table<ClusterKey, Cluster>,
    /// The clusters of forwarded connections.
    pub destinations: Table<DestinationKey, ClusterKey>,
    /// The backends of each UDP port.
    pub datagrams: Table<ListenerKey, Datagrams>,
    /// Endpoints of the clusters.
    pub endpoints: Table<ClusterKey, Endpoints>,
    /// Certificates that listeners and Gateways refer to.
    pub certificates: Table<CertificateKey, Certificate>,
    /// CA certificates that verify backends and clients.
    pub trust_bundles: Table<TrustBundleKey, TrustBundle>,
    /// The clusters that each fleet may get.
    pub fleet_clusters: Table<(FleetId, ClusterKey), ()>,
    /// The clusters of each fleet's destinations.
    pub fleet_destinations: Table<(FleetId, ClusterKey), ()>,
    /// The certificates that each fleet may get.
    pub fleet_certificates: Table<(FleetId, CertificateKey), ()>,
    /// The trust bundles that each fleet may get.
    pub fleet_trust_bundles: Table<(FleetId, TrustBundleKey), ()>,
    /// Messages about certificates that expire soon, have expired, or aren't valid yet.
    pub expiring: Table<CertificateKey, String>,
    /// Pending changes to the Services of XBackends, by XBackend. Always empty outside a cluster.
    pub pod_services: Table<ObjectKey, PodServiceChange>,
    /// This instance's GatewayClasses, and whether Gateways refer to them.
    pub classes_in_use: Table<ObjectKey, class_in_use::ClassInUse>,
    /// Statuses of all kinds of objects.
    pub statuses: Table<ObjectKey, ObjectStatus>,
    /// Problems of objects whose status can't hold them.
    pub notices: Table<ObjectKey, Notices>,
    /// For each fleet with port conflicts between Gateways and Ingresses or HTTPProxies, a message about them.
    pub port_conflicts: Table<FleetId, String>,
}

/// Declares all stages.
pub fn stages(b: &mut Builder) -> Pipeline {
    let inputs = Inputs::declare(b);
    let ingresses = ingress::read(b, &inputs);
    let proxies = http_proxy::read(b, &inputs);
    let extensions = extensions::read(b, &inputs);
    let secrets = [proxies.by_authority.into(), extensions.by_authority.into()];
    let authorities = authorities::states(b, &inputs, secrets);
    let collector = configuration::collector(b, &inputs, extensions);
    let by_collector = b.index(collector, "collectors by cluster", |(), cluster| {
        vec![cluster.clone()]
    });
    let http_by_backend = by_backend(b, "http_routes by backend", inputs.http_routes);
    let grpc_by_backend = by_backend(b, "grpc_routes by backend", inputs.grpc_routes);
    let tls_by_backend = by_backend(b, "tls_routes by backend", inputs.tls_routes);
    let tcp_by_backend = by_backend(b, "tcp_routes by backend", inputs.tcp_routes);
    let udp_by_backend = by_backend(b, "udp_routes by backend", inputs.udp_routes);
    let gateways_by_backend = b.index(inputs.gateways, "gateways by backend", |_, gateway| {
        let namespace = &gateway.meta.namespace;
        listener_state::referenced_services(namespace, &gateway.spec.listeners)
    });
    let sets_by_backend = b.index(
        inputs.listener_sets,
        "listener_sets by backend",
        |_, set| listener_state::referenced_services(&set.meta.namespace, &set.spec.listeners),
    );
    let telemetry_by_backend = b.index(
        inputs.telemetry_policies,
        "telemetry_policies by backend",
        telemetry::referenced,
    );
    let referenced = b.union_keys(
        "referenced clusters",
        [
            http_by_backend.into(),
            grpc_by_backend.into(),
            tls_by_backend.into(),
            tcp_by_backend.into(),
            udp_by_backend.into(),
            gateways_by_backend.into(),
            sets_by_backend.into(),
            telemetry_by_backend.into(),
            ingresses.by_backend.into(),
            proxies.by_backend.into(),
            extensions.by_cluster.into(),
            by_collector.into(),
        ],
    );
    let policies = backend_tls::policies(b, &inputs, authorities);
    let traffic_policies = backend_traffic::policies(b, &inputs);
    // Most backends have no policy, so reading both indexes for each would waste memory.
    let targets = b.union_keys(
        "targets of policies",
        [policies.by_target.into(), traffic_policies.by_target.into()],
    );
    let of_settings = client_certificate::by_secret(b, &inputs);
    let certificate_states = gateways::certificate_states(
        b,
        &inputs,
        [
            ingresses.by_secret.into(),
            proxies.by_secret.into(),
            of_settings.into(),
        ],
    );
    let own_certificate = client_certificate::stages(b, &inputs, certificate_states);
    let xbackends = xbackend::stages(b, &inputs, authorities, certificate_states);
    let backends = clusters::backends(
        b,
        &inputs,
        referenced,
        (xbackends, authorities),
        (targets, policies, traffic_policies),
    );
    let backends = backends::Sources {
        grants: inputs.grants_by_namespace,
        backends,
    };
    let expiring = expiry::stage(b, &inputs, certificate_states);
    let gateways = gateways::stages(
        b,
        &inputs,
        authorities,
        certificate_states,
        own_certificate.by_fleet,
        backends,
    );
    let listener = default_fleet::http_listener(b, &inputs);
    let of_default_fleet = default_fleet::Sources {
        listener,
        gateways: open_listeners::stages(b, gateways.points, inputs.namespaces),
        backends: backends.backends,
        certificates: certificate_states,
        client_certificate: own_certificate.unusable,
        expiring,
        authorities,
        revocations: authorities::revocations(b, &inputs, proxies.by_revoked.into()),
        jwks: authorities::jwks(b, &inputs, proxies.by_jwks.into()),
        extensions: extensions::states(
            b,
            &inputs,
            extensions,
            authorities,
            own_certificate.unusable,
        ),
    };
    let addresses = default_fleet::addresses(b, &inputs);
    let ingress_stages = ingress::stages(b, &inputs, ingresses, of_default_fleet, addresses);
    let ingress = ingress_stages.contribution;
    let proxy_stages = http_proxy::stages(b, &inputs, proxies, of_default_fleet);
    let http_proxy = proxy_stages.contribution;
    let default_fleet =
        default_fleet::stages(b, &inputs, listener, gateways.points, [ingress, http_proxy]);
    let points = b.union("listeners", [gateways.points, default_fleet.points]);

    let sources = route::Sources {
        attach: attach::Sources {
            points: gateways.points,
            default_gateways: b.index(inputs.gateways, "default gateways", |_, gateway| {
                let default = gateway.spec.default_scope == Some(DefaultScope::All);
                default.then_some(()).into_iter().collect()
            }),
            namespaces: inputs.namespaces,
        },
        backends,
    };
    let http = route::stages::<HTTPRoute>(
        b,
        [
            "our http_routes",
            "http rules",
            "http refused",
            "http attachments",
        ],
        inputs.http_routes,
        sources,
    );
    let grpc = route::stages::<GRPCRoute>(
        b,
        [
            "our grpc_routes",
            "grpc rules",
            "grpc refused",
            "grpc attachments",
        ],
        inputs.grpc_routes,
        sources,
    );
    let tls = l4_route::stages::<TLSRoute>(
        b,
        ["our tls_routes", "tls backends", "tls attachments"],
        inputs.tls_routes,
        sources,
    );
    let tcp = l4_route::stages::<TCPRoute>(
        b,
        ["our tcp_routes", "tcp backends", "tcp attachments"],
        inputs.tcp_routes,
        sources,
    );
    let udp = l4_route::stages::<UDPRoute>(
        b,
        ["our udp_routes", "udp backends", "udp attachments"],
        inputs.udp_routes,
        sources,
    );
    let rules: Table<ObjectKey, RouteRules> = b.union(
        "route rules",
        [http.rules, grpc.rules, ingress.rules, http_proxy.rules],
    );
    let attachments: Table<ObjectKey, Attachments> = b.union(
        "attachments",
        [
            http.attachments,
            grpc.attachments,
            tls.attachments,
            tcp.attachments,
            udp.attachments,
            ingress.attachments,
            http_proxy.attachments,
        ],
    );
    let by_host = b.index(attachments, "attachments by host", |_, attachments| {
        attachments.host_keys()
    });
    let by_listener = b.index(attachments, "attachments by listener", |_, attachments| {
        attachments.listener_ids()
    });

    let of_chains = connections::Sources {
        by_chain: b.index(attachments, "attachments by chain", |_, attachments| {
            attachments.chain_keys()
        }),
        backends: b.union(
            "connection backends",
            [
                tls.backends,
                tcp.backends,
                udp.backends,
                ingress.backends,
                http_proxy.backends,
            ],
        ),
    };
    let chains: Table<ChainKey, ServedChain> =
        b.derive("chain", of_chains.by_chain, move |reader, key| {
            connections::chain(reader, of_chains, key)
        });

    let points_by_port = b.index(points, "attach points by port", |_, points| points.ports());
    let points_by_domain = b.index(points, "attach points by domain", |_, points| {
        points.domains()
    });
    let of_destinations = connections::Destinations {
        points_by_domain,
        chains,
    };
    let by_destination = b.index(
        attachments,
        "attachments by destination",
        |_, attachments| attachments.destinations().collect(),
    );
    let destinations = b.derive("destination", by_destination, move |reader, key| {
        connections::destination(reader, of_destinations, key)
    });
    let (left_out, left_out_by_object) = wildcard_budget::stages(b, attachments, by_host, rules);
    let of_hosts = hosts::Sources {
        points_by_domain,
        by_host,
        rules,
        left_out,
        checks: gateways.checks,
        client_certificates: gateways.client_certificates,
    };
    let checked_hosts = b.index(gateways.checks, "checked hosts", |_, checks| {
        vec![checks.host.clone()]
    });
    let hosts = b.union_keys("hosts", [by_host.into(), checked_hosts.into()]);
    let virtual_hosts = b.derive("virtual host", hosts, move |reader, key| {
        hosts::virtual_host(reader, of_hosts, key)
    });
    let refusals = scans::stages(b, of_hosts, virtual_hosts);
    let (held, held_by_fleet) = held::stages(b, inputs.rejected_hosts, of_hosts);
    let host_findings = HostFindings {
        overlaps: overlaps::stages(b, of_hosts, attachments),
        refusals,
        left_out: left_out_by_object,
        held,
    };
    let route_tables = b.derive_many("route table", points_by_port, move |reader, key| {
        let table = ports::route_table(reader, points_by_port, key);
        table.into_iter().collect()
    });
    let telemetry = telemetry::stages(
        b,
        &inputs,
        telemetry::Sources {
            gateways: gateways.states,
            backends: sources.backends,
            client_certificates: gateways.client_certificates,
        },
    );
    let listener_settings = configuration::listener_settings(b, &inputs, gateways.parameters);
    let tracing = configuration::tracing(
        b,
        &inputs,
        configuration::TracingSources {
            own: telemetry.own,
            collector,
            fleets: listener_settings,
            client_certificates: gateways.client_certificates,
        },
    );
    let of_ports = ports::Sources {
        points_by_port,
        terminations: b.union(
            "all terminations",
            [
                gateways.terminations,
                ingress.terminations,
                http_proxy.terminations,
            ],
        ),
        chains: b.index(chains, "chains by listener", |key: &ChainKey, _| {
            vec![key.listener.clone()]
        }),
        own_chains: b.index(chains, "own chains by listener", |key: &ChainKey, chain| {
            let own = ports::may_need_chain(key, chain);
            own.then(|| key.listener.clone()).into_iter().collect()
        }),
        client_certificates: gateways.client_certificates,
        tracing,
        settings: listener_settings,
    };
    let listeners = b.derive(
        "listener",
        points_by_port,
        move |reader, key: &ListenerKey| {
            let settings = reader.get(inputs.settings, &())?;
            if settings.in_cluster() {
                let bind = Bind::Everywhere {
                    ipv6: settings.ipv6,
                };
                return ports::listener(reader, of_ports, key, bind);
            }
            let fleet = reader.get(inputs.fleets, &key.fleet)?;
            ports::listener(reader, of_ports, key, Bind::Fleet(&fleet))
        },
    );

    let hosts_by_cluster = reach::hosts_by_cluster(b, virtual_hosts);
    let listeners_by_cluster = b.index(listeners, "listeners by cluster", listener_clusters_of);
    let fleet_clusters = b.union_keys(
        "fleet's clusters",
        [hosts_by_cluster, listeners_by_cluster.into()],
    );
    let destinations_by_cluster = b.index(
        destinations,
        "destinations by cluster",
        |key: &DestinationKey, cluster| vec![(key.listener.fleet.clone(), cluster.clone())],
    );
    let fleet_destinations = b.union_keys("fleet's destinations", [destinations_by_cluster.into()]);
    let clusters_by_policy = b.index(fleet_clusters, "fleet's clusters by policy", |key, ()| {
        let (fleet, cluster): &(FleetId, ClusterKey) = key;
        let bundle = cluster.trust_bundle();
        let bundle = bundle.map(|bundle| (fleet.clone(), bundle));
        bundle.into_iter().collect()
    });
    let listeners_by_bundle = b.index(listeners, "listeners by trust bundle", trust_bundles_of);
    let fleet_trust_bundles = b.union_keys(
        "fleet's trust bundles",
        [clusters_by_policy.into(), listeners_by_bundle.into()],
    );
    let listeners_by_certificate = b.index(listeners, "listeners by certificate", certificates_of);
    let clusters_by_certificate = b.index(
        fleet_clusters,
        "fleet's clusters by certificate",
        |(fleet, cluster): &(FleetId, ClusterKey), ()| {
            let certificate = cluster.client_certificate();
            let certificate = certificate.map(|certificate| (fleet.clone(), certificate.clone()));
            certificate.into_iter().collect()
        },
    );
    let fleet_certificates = b.union_keys(
        "fleet's certificates",
        [
            listeners_by_certificate.into(),
            clusters_by_certificate.into(),
        ],
    );

    let (clusters, endpoints) = clusters::stages(
        b,
        &inputs,
        backends.backends,
        (xbackends, extensions),
        (targets, traffic_policies),
        fleet_clusters,
    );
    let of_datagrams = datagrams::Sources {
        points_by_port,
        chains,
        endpoints,
    };
    let datagrams = b.derive("datagrams", points_by_port, move |reader, key| {
        datagrams::datagrams(reader, of_datagrams, key)
    });

    let (gateway_status, set_status) =
        gateways::statuses(b, &inputs, &gateways, by_listener, expiring);
    let route_status = statuses::of_routes(
        b,
        &inputs,
        statuses::Sources {
            routes: (http, grpc, tls, tcp, udp),
            hosts: host_findings,
            held_by_fleet,
            chains,
            fleet_clusters,
            backends: backends.backends,
            client_certificates: gateways.client_certificates,
        },
    );
    let uses = ancestors::uses(
        b,
        &inputs,
        targets,
        xbackends,
        attachments,
        gateways.checked,
        gateways.states,
    );
    let policy_status = backend_tls::statuses(b, &inputs, policies, uses);
    let traffic_policy_status =
        backend_traffic::statuses(b, &inputs, traffic_policies, xbackends, uses);
    let pod_services = xbackend::pod_service_changes(b, &inputs, xbackends, uses);
    let xbackend_status = xbackend::statuses(b, &inputs, xbackends, pod_services, uses);
    let proxy_status = http_proxy::statuses(b, &inputs, proxy_stages, host_findings, addresses);
    let extension_status = extensions::statuses(b, &inputs, of_default_fleet.extensions);
    let classes_in_use = class_in_use::classes_in_use(b, &inputs);
    let configuration_status = configuration::statuses(
        b,
        &inputs,
        of_default_fleet.extensions,
        own_certificate.unusable,
    );
    let statuses = b.union(
        "statuses",
        [
            gateways.class_status,
            gateway_status,
            set_status,
            route_status,
            policy_status,
            traffic_policy_status,
            xbackend_status,
            telemetry.statuses,
            ingress_stages.statuses,
            proxy_status,
            extension_status,
            configuration_status,
        ],
    );

    let ingress_notices = ingress::notices(b, ingress_stages, host_findings, points_by_domain);
    let service_notices = service_annotations::notices(b, inputs.services);
    let [gateway_notices, set_notices] = gateways::notices(b, &gateways, expiring);
    let notices = b.union(
        "notices",
        [
            ingress_notices,
            service_notices,
            gateway_notices,
            set_notices,
        ],
    );

    let gateway_fleets = gateways::fleets(b, &inputs, &gateways);
    let port_conflicts = default_fleet.conflicts;
    let fleets = default_fleet::fleets(b, gateway_fleets, default_fleet);
    let bundles_of_secrets = authorities::of_secrets(b, authorities);
    let trust_bundles = b.union(
        "trust bundles",
        [
            policies.trust_bundles,
            xbackends.trust_bundles,
            gateways.trust_bundles,
            bundles_of_secrets,
            proxy_stages.trust_bundles,
        ],
    );
    Pipeline {
        inputs,
        outputs: Outputs {
            fleets,
            listener_settings,
            listeners,
            destinations,
            datagrams,
            route_tables,
            virtual_hosts,
            clusters,
            endpoints,
            certificates: valid_certificates(b, certificate_states),
            trust_bundles,
            fleet_clusters,
            fleet_destinations,
            fleet_certificates,
            fleet_trust_bundles,
            pod_services,
            classes_in_use,
            statuses,
            notices,
            port_conflicts,
            expiring,
        },
    }
}

fn by_backend<R: RouteKind>(
    b: &mut Builder,
    name: &'static str,
    routes: Table<ObjectKey, R>,
) -> Index<ObjectKey, R, ClusterKey> {
    b.index(routes, name, |_, route| route::referenced(route))
}
