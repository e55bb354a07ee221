//! The stages in order, from objects to the model and statuses.
//!
//! A stage reads tables declared above it, by key or by index, and reruns when a row that it read changes. So its
//! reads determine the cost of a change.

mod reach;

use std::sync::Arc;

use sesame_api::{
    GRPCRoute, HTTPRoute, NamespacedName, ObjectKey, ObjectStatus, TCPRoute, TLSRoute,
};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{
    Certificate, CertificateKey, Cluster, ClusterKey, Endpoints, FleetId, FleetRequest, Listener,
    ListenerKey, RouteTable, RouteTableKey, TlsPolicyKey, TrustBundle, VirtualHost, VirtualHostKey,
};

use self::reach::{certificates_of, clusters_of, tcp_clusters_of};
use crate::gateway_api::backend_tls;
use crate::gateway_api::class::{self, ClassState};
use crate::gateway_api::gateway::{self, GatewayState, Obstacles};
use crate::gateway_api::parameters::{self, Chosen, GatewayParameters};
use crate::gateway_api::route::status::{Findings, Rejections};
use crate::gateway_api::route::{self, RouteKind, attach, backends};
use crate::gateway_api::unmanaged::Served;
use crate::gateway_api::{fleet_request, gateway_status, l4_route, listener};
use crate::inputs::Inputs;
use crate::settings::Settings;
use crate::shared::certificates::{self, CertificateState};
use crate::shared::connections::{self, ChainKey, ServedChain};
use crate::shared::hosts::{self, Attachments, RouteRules};
use crate::shared::listeners::{AttachPoints, ListenerId};
use crate::shared::ports::{self, Bind};
use crate::shared::services::{self, Backend};

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
    /// The listener of each port.
    pub listeners: Table<ListenerKey, Listener>,
    /// Route tables, without their virtual hosts.
    pub route_tables: Table<RouteTableKey, RouteTable>,
    /// Virtual hosts.
    pub virtual_hosts: Table<VirtualHostKey, VirtualHost>,
    /// Service ports that routes refer to.
    pub clusters: Table<ClusterKey, Cluster>,
    /// Endpoints of the clusters.
    pub endpoints: Table<ClusterKey, Endpoints>,
    /// Certificates that listeners refer to.
    pub certificates: Table<CertificateKey, Certificate>,
    /// CA certificates of TLS policies for backends.
    pub trust_bundles: Table<TlsPolicyKey, TrustBundle>,
    /// The clusters that each fleet may get.
    pub fleet_clusters: Table<(FleetId, ClusterKey), ()>,
    /// The certificates that each fleet may get.
    pub fleet_certificates: Table<(FleetId, CertificateKey), ()>,
    /// The trust bundles that each fleet may get.
    pub fleet_trust_bundles: Table<(FleetId, TlsPolicyKey), ()>,
    /// Statuses of all kinds of objects.
    pub statuses: Table<ObjectKey, ObjectStatus>,
}

/// Declares all stages.
pub fn stages(b: &mut Builder) -> Pipeline {
    let inputs = Inputs::declare(b);
    let certificate_states = certificate_states(b, &inputs);
    let gateways = gateways(b, &inputs, certificate_states);

    let http_by_backend = by_backend(b, "http_routes by backend", inputs.http_routes);
    let grpc_by_backend = by_backend(b, "grpc_routes by backend", inputs.grpc_routes);
    let tls_by_backend = by_backend(b, "tls_routes by backend", inputs.tls_routes);
    let tcp_by_backend = by_backend(b, "tcp_routes by backend", inputs.tcp_routes);
    let referenced = b.union_keys(
        "referenced clusters",
        [
            http_by_backend.into(),
            grpc_by_backend.into(),
            tls_by_backend.into(),
            tcp_by_backend.into(),
        ],
    );
    let policies = backend_tls::policies(b, &inputs);
    let backends: Table<ClusterKey, Backend> =
        b.derive("backend", referenced, move |reader, key: &ClusterKey| {
            let name = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(&key.service));
            let service = reader.get(inputs.services, &name);
            let service = service.as_deref();
            let backend = services::backend(key, &name, service);
            Some(backend_tls::secured(
                reader, policies, key, &name, service, backend,
            ))
        });
    let clusters = b.derive_many("cluster", backends, move |reader, key: &ClusterKey| {
        let backend = reader.get(backends, key);
        backend.map_or_else(Vec::new, |backend| backend.clusters(key))
    });
    let endpoints = b.derive("endpoints", clusters, move |reader, key: &ClusterKey| {
        let name = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(&key.service));
        let service = reader.get(inputs.services, &name)?;
        let slices = reader.by(inputs.slices_by_service, &name);
        Some(services::endpoints(
            key.port,
            &service,
            slices.iter().map(|(_, slice)| &**slice),
        ))
    });

    let sources = route::Sources {
        attach: attach::Sources {
            points: gateways.points,
            namespaces: inputs.namespaces,
        },
        backends: backends::Sources {
            grants: inputs.grants_by_namespace,
            backends,
        },
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
    let rules: Table<ObjectKey, RouteRules> = b.union("route rules", [http.rules, grpc.rules]);
    let attachments: Table<ObjectKey, Attachments> = b.union(
        "attachments",
        [
            http.attachments,
            grpc.attachments,
            tls.attachments,
            tcp.attachments,
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
        backends: b.union("connection backends", [tls.backends, tcp.backends]),
    };
    let chains: Table<ChainKey, ServedChain> =
        b.derive("chain", of_chains.by_chain, move |reader, key| {
            connections::chain(reader, of_chains, key)
        });

    let points_by_port = b.index(gateways.points, "attach points by port", |_, points| {
        points.ports()
    });
    let of_hosts = hosts::Sources {
        points_by_port,
        by_host,
        rules,
    };
    let virtual_hosts = b.derive("virtual host", by_host, move |reader, key| {
        hosts::virtual_host(reader, of_hosts, key)
    });
    let route_tables = b.derive_many("route table", points_by_port, move |reader, key| {
        ports::route_tables(reader, points_by_port, key)
    });
    let served_certificates = b.derive(
        "served certificates",
        gateways.states,
        move |reader, key| {
            Some(gateway::served_certificates(
                &*reader.get(gateways.states, key)?,
            ))
        },
    );
    let of_ports = ports::Sources {
        points_by_port,
        certificates: served_certificates,
        chains: b.index(chains, "chains by listener", |key: &ChainKey, _| {
            vec![key.listener.clone()]
        }),
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

    let hosts_by_cluster = b.index(virtual_hosts, "virtual hosts by cluster", clusters_of);
    let listeners_by_cluster = b.index(listeners, "listeners by cluster", tcp_clusters_of);
    let fleet_clusters = b.union_keys(
        "fleet's clusters",
        [hosts_by_cluster.into(), listeners_by_cluster.into()],
    );
    let clusters_by_policy = b.index(fleet_clusters, "fleet's clusters by policy", |key, ()| {
        let (fleet, cluster): &(FleetId, ClusterKey) = key;
        let policy = cluster.tls().map(|policy| (fleet.clone(), policy.clone()));
        policy.into_iter().collect()
    });
    let fleet_trust_bundles = b.union_keys("fleet's trust bundles", [clusters_by_policy.into()]);
    let listeners_by_certificate = b.index(listeners, "listeners by certificate", certificates_of);
    let fleet_certificates =
        b.union_keys("fleet's certificates", [listeners_by_certificate.into()]);

    let gateway_status = gateway_statuses(b, &inputs, &gateways, by_listener);
    let rejections = Rejections {
        rejections: inputs.rejections,
        fleets: b.union_keys(
            "fleets that reject backends",
            [inputs.rejected_backends_by_fleet.into()],
        ),
        backends,
    };
    let of_requests = |stages: route::Stages| {
        move |reader: &mut Reader<'_>, key: &ObjectKey, _: &Attachments| {
            Some(Findings::of(&*reader.get(stages.rules, key)?))
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
            Some(l4_route::findings(
                reader,
                chains,
                key,
                attachments,
                &backends,
            ))
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
    let policy_status = backend_tls::statuses(b, &inputs, policies, attachments);
    let statuses = b.union(
        "statuses",
        [
            gateways.class_status,
            gateway_status,
            http_status,
            grpc_status,
            tls_status,
            tcp_status,
            policy_status,
        ],
    );

    Pipeline {
        inputs,
        outputs: Outputs {
            fleets: fleets(b, &inputs, &gateways),
            listeners,
            route_tables,
            virtual_hosts,
            clusters,
            endpoints,
            certificates: certificates(b, certificate_states),
            trust_bundles: policies.trust_bundles,
            fleet_clusters,
            fleet_certificates,
            fleet_trust_bundles,
            statuses,
        },
    }
}

fn certificate_states(b: &mut Builder, inputs: &Inputs) -> Table<CertificateKey, CertificateState> {
    let secrets = inputs.secrets;
    let by_secret = b.index(inputs.gateways, "gateways by secret", |_, gateway| {
        gateway::referenced_secrets(gateway)
    });
    b.derive(
        "certificate state",
        by_secret,
        move |reader, key: &CertificateKey| {
            let secret = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(&key.name));
            Some(match reader.get(secrets, &secret) {
                Some(secret) => certificates::read(&secret),
                None => CertificateState::Missing,
            })
        },
    )
}

fn certificates(
    b: &mut Builder,
    states: Table<CertificateKey, CertificateState>,
) -> Table<CertificateKey, Certificate> {
    b.derive("certificate", states, move |reader, key| {
        match &*reader.get(states, key)? {
            CertificateState::Valid { certificate, .. } => Some(certificate.clone()),
            CertificateState::Missing | CertificateState::Invalid(_) => None,
        }
    })
}

/// The tables of GatewayClasses and Gateways.
#[derive(Clone, Copy)]
struct Gateways {
    class_status: Table<ObjectKey, ObjectStatus>,
    parameters: Table<ObjectKey, GatewayParameters>,
    states: Table<ObjectKey, GatewayState>,
    points: Table<ObjectKey, AttachPoints>,
}

fn gateways(
    b: &mut Builder,
    inputs: &Inputs,
    certificates: Table<CertificateKey, CertificateState>,
) -> Gateways {
    let inputs = *inputs;
    let served = Served::declare(b, &inputs);
    let chosen: Table<NamespacedName, Chosen> =
        b.derive("parameters", inputs.config_maps, move |reader, name| {
            Some(parameters::chosen(&*reader.get(inputs.config_maps, name)?))
        });
    let classes: Table<ObjectKey, ClassState> =
        b.derive("class", inputs.gateway_classes, move |reader, key| {
            let class = reader.get(inputs.gateway_classes, key)?;
            let settings = reader.get(inputs.settings, &())?;
            class::read(reader, chosen, &settings, served, &class)
        });
    let class_status = b.derive("class status", classes, move |reader, key| {
        let class = reader.get(inputs.gateway_classes, key)?;
        let state = reader.get(classes, key)?;
        let api = reader.get(inputs.api_version, &());
        let api = api.as_deref().map(String::as_str);
        let settings = reader.get(inputs.settings, &())?;
        let status = class::status(&class, &state, &settings.mode, api);
        Some(ObjectStatus::GatewayClass(Arc::new(status)))
    });
    let parameters: Table<ObjectKey, GatewayParameters> =
        b.derive("gateway parameters", inputs.gateways, move |reader, key| {
            let gateway = reader.get(inputs.gateways, key)?;
            let class = reader.get(classes, &class::key(&gateway.spec.gateway_class_name))?;
            Some(parameters::of_gateway(reader, chosen, &class, &gateway))
        });
    let of_listeners = listener::Sources {
        grants: inputs.grants_by_namespace,
        certificates,
    };
    let states: Table<ObjectKey, GatewayState> =
        b.derive("gateway state", parameters, move |reader, key| {
            let gateway = reader.get(inputs.gateways, key)?;
            let settings = reader.get(inputs.settings, &())?;
            let obstacles = Obstacles {
                parameters: reader.get(parameters, key)?.wrong.clone(),
                elsewhere: served.refusal(reader, &settings.mode, key),
            };
            Some(gateway::read(
                reader,
                of_listeners,
                &gateway,
                obstacles,
                settings.in_cluster(),
            ))
        });
    let points = b.derive("attach points", states, move |reader, key: &ObjectKey| {
        let state = reader.get(states, key)?;
        let settings = reader.get(inputs.settings, &())?;
        let fleet = settings.fleet_of(&key.namespaced_name());
        Some(gateway::attach_points(&fleet, key, &state))
    });
    Gateways {
        class_status,
        parameters,
        states,
        points,
    }
}

fn fleets(b: &mut Builder, inputs: &Inputs, gateways: &Gateways) -> Table<FleetId, FleetRequest> {
    let (inputs, gateways) = (*inputs, *gateways);
    b.derive_many("fleet", gateways.states, move |reader, key: &ObjectKey| {
        let (Some(settings), Some(gateway), Some(state), Some(parameters)) = (
            reader.get(inputs.settings, &()),
            reader.get(inputs.gateways, key),
            reader.get(gateways.states, key),
            reader.get(gateways.parameters, key),
        ) else {
            return Vec::new();
        };
        fleet_request::request(&settings, &gateway, &state, &parameters)
            .into_iter()
            .collect()
    })
}

fn gateway_statuses(
    b: &mut Builder,
    inputs: &Inputs,
    gateways: &Gateways,
    attached: Index<ObjectKey, Attachments, ListenerId>,
) -> Table<ObjectKey, ObjectStatus> {
    let (inputs, gateways) = (*inputs, *gateways);
    b.derive("gateway status", gateways.states, move |reader, key| {
        let gateway = reader.get(inputs.gateways, key)?;
        let state = reader.get(gateways.states, key)?;
        let points = reader.get(gateways.points, key)?;
        let fleet = reader.get(inputs.fleets, &points.fleet);
        let settings = reader.get(inputs.settings, &())?;
        let sources = gateway_status::Sources {
            inputs: &inputs,
            mode: &settings.mode,
            asked: &gateway.spec.addresses,
            state: &state,
            points: &points,
            fleet: fleet.as_deref(),
            attached,
        };
        let status = gateway_status::status(reader, &sources, key, &gateway);
        Some(ObjectStatus::Gateway(Arc::new(status)))
    })
}

fn by_backend<R: RouteKind>(
    b: &mut Builder,
    name: &'static str,
    routes: Table<ObjectKey, R>,
) -> Index<ObjectKey, R, ClusterKey> {
    b.index(routes, name, |_, route| route::referenced(route))
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
        let rejected =
            route::status::rejected_backend(reader, rejections, attachments.fleets(), clusters);
        let generation = route.meta().generation;
        let status = route::status::status(
            &reader.get(settings, &())?.controller_name,
            &attachments,
            &findings,
            rejected.as_ref(),
            generation,
        );
        Some(ObjectStatus::Route(Arc::new(status)))
    })
}
