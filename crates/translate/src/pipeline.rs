//! The stages, in their order: from objects to the model and to statuses.
//!
//! A stage reads tables that stand above it, by key or by index, and what it reads is what makes it run again. To see what a
//! change costs, follow the reads.

mod inputs;
mod reach;

use std::sync::Arc;

use sesame_api::{GatewayClassStatus, GatewayStatus, Kind, NamespacedName, Route, RouteStatus};
use sesame_engine::{Builder, Table};
use sesame_model::{
    Certificate, CertificateKey, Cluster, ClusterKey, Endpoints, FleetId, Listener, ListenerKey,
    RouteTable, RouteTableKey, VirtualHost, VirtualHostKey,
};

pub use self::inputs::Inputs;
use self::reach::{certificates_of, clusters_of};
use crate::fleet::FleetRequest;
use crate::gateway_api::attach::{self, AttachPoints, Attaching, Attachments, gateway_of};
use crate::gateway_api::class::{self, ClassState};
use crate::gateway_api::gateway::{self, GatewayState};
use crate::gateway_api::http_route::rules::{self, RouteRules};
use crate::gateway_api::http_route::virtual_host;
use crate::gateway_api::parameters::{self, Chosen, GatewayParameters};
use crate::gateway_api::ports::Bind;
use crate::gateway_api::problem::Problem;
use crate::gateway_api::unmanaged::Served;
use crate::gateway_api::{fleet_request, gateway_status, ports, route_status};
use crate::settings::Settings;
use crate::shared::certificates::{self, CertificateState};
use crate::shared::services::{self, Backend};

/// The stages of a translation, declared.
#[derive(Clone, Copy)]
pub struct Pipeline {
    /// Where objects go in.
    pub inputs: Inputs,
    /// What comes out.
    pub outputs: Outputs,
}

/// Tables that others read: the model, the fleets that it needs, and statuses.
#[derive(Clone, Copy)]
pub struct Outputs {
    /// Fleets that there should be.
    pub fleets: Table<FleetId, FleetRequest>,
    /// Ports.
    pub listeners: Table<ListenerKey, Listener>,
    /// Route tables, without their hosts.
    pub route_tables: Table<RouteTableKey, RouteTable>,
    /// The hosts.
    pub virtual_hosts: Table<VirtualHostKey, VirtualHost>,
    /// Service ports that a route leads to.
    pub clusters: Table<ClusterKey, Cluster>,
    /// Who answers there.
    pub endpoints: Table<ClusterKey, Endpoints>,
    /// Certificates that a listener names.
    pub certificates: Table<CertificateKey, Certificate>,
    /// Which fleet may see which cluster.
    pub fleet_clusters: Table<(FleetId, ClusterKey), ()>,
    /// Which fleet may see which certificate.
    pub fleet_certificates: Table<(FleetId, CertificateKey), ()>,
    /// What owners of GatewayClasses are told.
    pub class_status: Table<Arc<str>, GatewayClassStatus>,
    /// What owners of Gateways are told.
    pub gateway_status: Table<NamespacedName, GatewayStatus>,
    /// What owners of HTTPRoutes are told.
    pub http_route_status: Table<NamespacedName, RouteStatus>,
}

/// Declares all stages.
pub fn stages(b: &mut Builder, settings: Settings) -> Pipeline {
    let settings = Arc::new(settings);
    let inputs = Inputs::declare(b);

    let served = Served::declare(b, &inputs, &settings.mode);
    let chosen: Table<NamespacedName, Chosen> =
        b.derive("parameters", inputs.config_maps, move |reader, name| {
            Some(parameters::chosen(&*reader.get(inputs.config_maps, name)?))
        });
    let turn = served.clone();
    let classes: Table<Arc<str>, ClassState> =
        b.derive("class", inputs.gateway_classes, move |reader, name| {
            let class = reader.get(inputs.gateway_classes, name)?;
            class::read(reader, chosen, &turn, &class)
        });
    let mode = settings.mode.clone();
    let class_status = b.derive("class status", classes, move |reader, name| {
        let class = reader.get(inputs.gateway_classes, name)?;
        let state = reader.get(classes, name)?;
        let api = reader.get(inputs.api_version, &());
        let api = api.as_deref().map(String::as_str);
        Some(class::status(&class, &state, &mode, api))
    });

    let certificate_states: Table<CertificateKey, CertificateState> = b.derive(
        "certificate state",
        inputs.gateways_by_secret,
        move |reader, key: &CertificateKey| {
            let secret = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(&key.name));
            Some(match reader.get(inputs.secrets, &secret) {
                Some(secret) => certificates::read(&secret),
                None => CertificateState::Missing,
            })
        },
    );
    let certificates = b.derive(
        "certificate",
        certificate_states,
        move |reader, key| match &*reader.get(certificate_states, key)? {
            CertificateState::Valid { certificate, .. } => Some(certificate.clone()),
            CertificateState::Missing | CertificateState::Invalid(_) => None,
        },
    );

    let gateway_parameters: Table<NamespacedName, GatewayParameters> = b.derive(
        "gateway parameters",
        inputs.gateways,
        move |reader, name| {
            let gateway = reader.get(inputs.gateways, name)?;
            let class = reader.get(classes, &gateway.spec.gateway_class_name)?;
            Some(parameters::of_gateway(reader, chosen, &class, &gateway))
        },
    );
    let (in_cluster, ipv6) = (settings.in_cluster(), settings.ipv6);
    let gateway_states: Table<NamespacedName, GatewayState> = b.derive(
        "gateway state",
        gateway_parameters,
        move |reader, name: &NamespacedName| {
            let gateway = reader.get(inputs.gateways, name)?;
            let wrong = reader.get(gateway_parameters, name)?.wrong.clone();
            let elsewhere = served.refusal(reader, name);
            Some(gateway::read(
                reader,
                &inputs,
                certificate_states,
                &gateway,
                elsewhere,
                wrong,
                in_cluster,
            ))
        },
    );
    let of = Arc::clone(&settings);
    let attach_points: Table<NamespacedName, AttachPoints> =
        b.derive("attach points", gateway_states, move |reader, name| {
            let state = reader.get(gateway_states, name)?;
            Some(gateway::attach_points(of.fleet_of(name), &state))
        });

    let backends: Table<ClusterKey, Backend> = b.derive(
        "backend",
        inputs.routes_by_backend,
        move |reader, key: &ClusterKey| {
            let name = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(&key.service));
            let service = reader.get(inputs.services, &name);
            Some(services::backend(&name, key.port, service.as_deref()))
        },
    );
    let clusters = b.derive("cluster", backends, move |reader, key| {
        match &*reader.get(backends, key)? {
            Backend::Serves(cluster) => Some(cluster.clone()),
            Backend::NotFound(_) | Backend::UnsupportedProtocol(_) => None,
        }
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

    // Routes of others cost this look and no more.
    let ours: Table<NamespacedName, ()> =
        b.derive("route is ours", inputs.http_routes, move |reader, name| {
            let route = reader.get(inputs.http_routes, name)?;
            let mut parents = route
                .parent_refs()
                .iter()
                .filter_map(|parent| gateway_of(parent, &name.namespace));
            parents
                .any(|gateway| reader.exists(attach_points, &gateway))
                .then_some(())
        });
    let route_rules: Table<NamespacedName, RouteRules> =
        b.derive("route rules", ours, move |reader, name| {
            let route = reader.get(inputs.http_routes, name)?;
            Some(rules::read(reader, &inputs, backends, &route))
        });
    // Whether a route can be served at all, apart from what it says: where it is attached depends on no more.
    let refusals: Table<NamespacedName, Problem> =
        b.derive("route refused", route_rules, move |reader, name| {
            reader.get(route_rules, name)?.refused.clone()
        });
    let attachments: Table<NamespacedName, Attachments> =
        b.derive("attachments", ours, move |reader, name| {
            let route = reader.get(inputs.http_routes, name)?;
            let refused = reader.get(refusals, name);
            let attaching = Attaching {
                kind: Kind::HTTPRoute,
                namespace: &name.namespace,
                parents: route.parent_refs(),
                hostnames: route.hostnames(),
                refused: refused.as_deref(),
            };
            attach::attach(reader, &inputs, attach_points, &attaching)
        });
    let by_host = b.index(attachments, "attachments by host", |_, attachments| {
        attachments.host_keys()
    });
    let by_listener = b.index(attachments, "attachments by listener", |_, attachments| {
        attachments.listener_keys()
    });

    let host_sources = virtual_host::Sources {
        points: attach_points,
        by_host,
        rules: route_rules,
    };
    let virtual_hosts: Table<VirtualHostKey, VirtualHost> =
        b.derive_many("virtual host", by_host, move |reader, key| {
            virtual_host::virtual_host(reader, host_sources, key)
        });
    let route_tables = b.derive_many("route table", attach_points, move |reader, name| {
        reader
            .get(attach_points, name)
            .map(|points| ports::route_tables(&points))
            .unwrap_or_default()
    });
    let listeners: Table<ListenerKey, Listener> = b.derive_many(
        "listener",
        gateway_states,
        move |reader, name: &NamespacedName| {
            let (Some(state), Some(points)) = (
                reader.get(gateway_states, name),
                reader.get(attach_points, name),
            ) else {
                return Vec::new();
            };
            if in_cluster {
                return ports::listeners(&state, &points, Bind::Everywhere { ipv6 });
            }
            let fleet = reader.get(inputs.fleets, &points.fleet);
            fleet
                .map(|fleet| ports::listeners(&state, &points, Bind::Fleet(&fleet)))
                .unwrap_or_default()
        },
    );

    let hosts_by_cluster = b.index(
        virtual_hosts,
        "virtual hosts by cluster",
        |key: &VirtualHostKey, host| clusters_of(key, host),
    );
    let fleet_clusters = b.derive("fleet's clusters", hosts_by_cluster, |_, _| Some(()));
    let listeners_by_certificate = b.index(listeners, "listeners by certificate", certificates_of);
    let fleet_certificates = b.derive("fleet's certificates", listeners_by_certificate, |_, _| {
        Some(())
    });
    let of = Arc::clone(&settings);
    let fleets = b.derive_many(
        "fleet",
        gateway_states,
        move |reader, name: &NamespacedName| {
            let (Some(gateway), Some(state), Some(parameters)) = (
                reader.get(inputs.gateways, name),
                reader.get(gateway_states, name),
                reader.get(gateway_parameters, name),
            ) else {
                return Vec::new();
            };
            fleet_request::request(&of, &gateway, &state, &parameters)
                .map(|request| (of.fleet_of(name), request))
                .into_iter()
                .collect()
        },
    );

    let mode = settings.mode.clone();
    let gateway_status = b.derive("gateway status", gateway_states, move |reader, name| {
        let gateway = reader.get(inputs.gateways, name)?;
        let state = reader.get(gateway_states, name)?;
        let points = reader.get(attach_points, name)?;
        let fleet = reader.get(inputs.fleets, &points.fleet);
        let sources = gateway_status::Sources {
            inputs: &inputs,
            mode: &mode,
            asked: &gateway.spec.addresses,
            state: &state,
            points: &points,
            fleet: fleet.as_deref(),
            attached: by_listener,
        };
        Some(gateway_status::status(reader, &sources, &gateway))
    });
    // Mostly none: so that a route that is refused nowhere needs no look at each of its backends.
    let refusing = b.derive(
        "fleet refuses backends",
        inputs.rejected_backends_by_fleet,
        |_, _| Some(()),
    );
    let of = Arc::clone(&settings);
    let http_route_status = b.derive("http route status", attachments, move |reader, name| {
        let route = reader.get(inputs.http_routes, name)?;
        let attachments = reader.get(attachments, name)?;
        let rules = reader.get(route_rules, name)?;
        let mut fleets: Vec<FleetId> = attachments
            .parents
            .iter()
            .map(|parent| of.fleet_of(&parent.gateway))
            .collect();
        fleets.dedup();
        let rejected = route_status::rejected_backend(reader, &inputs, refusing, fleets, &route);
        let verdict = route_status::RouteVerdict {
            partially_invalid: rules.partially_invalid.as_ref(),
            unresolved: rules.unresolved.as_ref().or(rejected.as_ref()),
        };
        Some(route_status::status(
            &attachments,
            &verdict,
            route.meta.generation,
        ))
    });

    Pipeline {
        inputs,
        outputs: Outputs {
            fleets,
            listeners,
            route_tables,
            virtual_hosts,
            clusters,
            endpoints,
            certificates,
            fleet_clusters,
            fleet_certificates,
            class_status,
            gateway_status,
            http_route_status,
        },
    }
}
