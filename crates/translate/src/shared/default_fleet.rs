//! The fleet and the listeners of objects without a Gateway: Ingresses and HTTPProxies.
//!
//! In: each source's listeners, rules and hosts. Out: the same, in the tables that all sources share. All these objects
//! share one HTTP listener; each host with TLS is a listener of the object that owns it. The fleet exists while an
//! object uses it.

use std::sync::Arc;

use sesame_api::{Kind, LoadBalancerIngress, LoadBalancerStatus, ObjectKey};
use sesame_engine::{Builder, Index, Keys, Reader, Table};
use sesame_model::{CertificateKey, ClusterKey, FleetAddress, FleetId, FleetRequest, ListenerKey};

use crate::configuration::publishing;
use crate::http_proxy::extensions::ExtensionState;
use crate::inputs::Inputs;
use crate::settings::{INGRESS_CLASS, Settings};
use crate::shared::authorities::AuthorityState;
use crate::shared::certificates::CertificateState;
use crate::shared::connections::Backends;
use crate::shared::hostname;
use crate::shared::hosts::{Attachments, RouteRules};
use crate::shared::jwks::{JwksEntry, JwksState};
use crate::shared::listeners::{
    AllowedNamespaces, AttachPoints, ListenerId, ListenerPoint, ListenerRef, Protocol,
};
use crate::shared::open_listeners::OpenListeners;
use crate::shared::ports::Terminations;
use crate::shared::revocations::RevocationState;
use crate::shared::services::RoutedBackend;

/// The contribution of a source, by object.
#[derive(Clone, Copy)]
pub(crate) struct Contribution {
    /// The listeners of hosts with TLS, from [`tls_listener`]. At most one object has a listener for a host.
    pub(crate) points: Table<ObjectKey, AttachPoints>,
    /// How these listeners terminate TLS.
    pub(crate) terminations: Table<ObjectKey, Terminations>,
    /// Rules.
    pub(crate) rules: Table<ObjectKey, RouteRules>,
    /// The hosts that the rules apply to, and those whose connections are forwarded.
    pub(crate) attachments: Table<ObjectKey, Attachments>,
    /// The backends of forwarded connections.
    pub(crate) backends: Table<ObjectKey, Backends>,
    /// The source's objects of our classes, from [`users`]. The fleet exists while there is at least one, valid or not:
    /// a mistake must not cost the fleet its address.
    pub(crate) users: Keys<ObjectKey>,
}

/// The tables that sources read.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    /// The HTTP listener.
    pub(crate) listener: Table<(), ListenerRef>,
    /// The listeners of Gateways that serve these objects too.
    pub(crate) gateways: OpenListeners,
    /// Backends by cluster; a row exists if an object refers to the cluster.
    pub(crate) backends: Table<ClusterKey, RoutedBackend>,
    /// Certificates that objects refer to.
    pub(crate) certificates: Table<CertificateKey, CertificateState>,
    /// Why the fleet's client certificate can't be used; no row if it can, or if there is none.
    pub(crate) client_certificate: Table<(), String>,
    /// Messages about certificates that expire soon.
    pub(crate) expiring: Table<CertificateKey, String>,
    /// The objects from which other objects take CA certificates.
    pub(crate) authorities: Table<ObjectKey, AuthorityState>,
    /// CRLs that objects refer to.
    pub(crate) revocations: Table<CertificateKey, RevocationState>,
    /// JWKS that objects refer to.
    pub(crate) jwks: Table<JwksEntry, JwksState>,
    /// ExtensionServices.
    pub(crate) extensions: Table<ObjectKey, ExtensionState>,
}

/// The contributions of all sources.
#[derive(Clone, Copy)]
pub(crate) struct DefaultFleet {
    /// All listeners.
    pub(crate) points: Table<ObjectKey, AttachPoints>,
    /// The fleet, by the owner of its HTTP listener.
    pub(crate) requests: Table<ObjectKey, (FleetId, FleetRequest)>,
    /// A message about ports that Gateways use for another protocol.
    pub(crate) conflicts: Table<FleetId, String>,
}

/// The owner of the HTTP listener: the ingress class, whether or not it exists.
fn owner() -> ObjectKey {
    ObjectKey::new(Kind::IngressClass, "", INGRESS_CLASS)
}

/// The users of the default fleet in a table.
pub(crate) fn users<T: PartialEq + Send + Sync + 'static>(
    b: &mut Builder,
    name: &'static str,
    ours: Table<ObjectKey, T>,
) -> Keys<ObjectKey> {
    b.index(ours, name, |_, _| vec![owner()]).into()
}

/// Declares the HTTP listener of the default fleet, which objects share.
pub(crate) fn http_listener(b: &mut Builder, inputs: &Inputs) -> Table<(), ListenerRef> {
    let settings = inputs.settings;
    b.derive("default listener", settings, move |reader, ()| {
        let settings = reader.get(settings, &())?;
        let port = ListenerKey {
            fleet: settings.default_fleet(),
            port: settings.ingress.http_port(),
        };
        Some(ListenerRef {
            id: ListenerId {
                owner: owner(),
                name: "http".into(),
            },
            table: Protocol::Http.table(&port),
            port,
        })
    })
}

/// The listener of a host with TLS: `Protocol::Https` to terminate TLS and serve requests, `Protocol::Tls` to forward
/// connections (without terminating TLS, if `passthrough`).
pub(crate) fn tls_listener(
    settings: &Settings,
    owner: &ObjectKey,
    domain: &Arc<str>,
    protocol: Protocol,
    passthrough: bool,
) -> ListenerPoint {
    let port = ListenerKey {
        fleet: settings.default_fleet(),
        port: settings.ingress.https_port(),
    };
    point(
        ListenerRef {
            id: ListenerId {
                owner: owner.clone(),
                name: Arc::clone(domain),
            },
            table: protocol.table(&port),
            port,
        },
        protocol,
        passthrough,
        domain,
    )
}

/// The listener for TLS connections without SNI or with an unknown server name. Its owner is the Secret with its certificate.
pub(crate) fn fallback_listener(settings: &Settings, secret: &ObjectKey) -> ListenerPoint {
    debug_assert_eq!(secret.kind, Kind::Secret);
    tls_listener(
        settings,
        secret,
        &hostname::ANY.into(),
        Protocol::Https,
        false,
    )
}

/// Whether a listener is a [`fallback_listener`].
pub(crate) fn is_fallback(point: &ListenerPoint) -> bool {
    point.listener.id.owner.kind == Kind::Secret
}

/// The listeners of an object.
pub(crate) fn attach_points(settings: &Settings, listeners: Vec<ListenerPoint>) -> AttachPoints {
    AttachPoints {
        fleet: settings.default_fleet(),
        closed: None,
        listeners,
    }
}

fn point(
    listener: ListenerRef,
    protocol: Protocol,
    passthrough: bool,
    domain: &Arc<str>,
) -> ListenerPoint {
    ListenerPoint {
        listener: Arc::new(listener),
        protocol,
        passthrough,
        domain: Arc::clone(domain),
        serving: true,
        kinds: Vec::new(),
        namespaces: AllowedNamespaces::None,
        checks: false,
        fallback: false,
    }
}

/// Declares the addresses of the default fleet, for statuses. Statuses read this one row instead of the fleet's state,
/// most of which doesn't affect them.
pub(crate) fn addresses(b: &mut Builder, inputs: &Inputs) -> Table<(), LoadBalancerStatus> {
    let inputs = *inputs;
    b.derive("default addresses", inputs.settings, move |reader, ()| {
        Some(load_balancer(reader, &inputs))
    })
}

fn load_balancer(reader: &mut Reader<'_>, inputs: &Inputs) -> LoadBalancerStatus {
    let fleet = reader.get(inputs.settings, &());
    let fleet = fleet.map(|settings| settings.default_fleet());
    let state = fleet.and_then(|fleet| reader.get(inputs.fleets, &fleet));
    let addresses = state.iter().flat_map(|state| &state.addresses);
    let ingress = addresses.map(|address| {
        let mut ingress = LoadBalancerIngress::default();
        match address {
            FleetAddress::Ip(ip) => ingress.ip = Some(ip.to_string()),
            FleetAddress::Hostname(name) => ingress.hostname = Some(name.clone()),
        }
        ingress
    });
    LoadBalancerStatus {
        ingress: ingress.collect(),
    }
}

/// Declares the listeners and the fleet. `gateways` contains the listeners of Gateways, which take precedence where
/// they share a fleet; `listener` comes from [`http_listener`].
pub(crate) fn stages<const N: usize>(
    b: &mut Builder,
    inputs: &Inputs,
    listener: Table<(), ListenerRef>,
    gateways: Table<ObjectKey, AttachPoints>,
    sources: [Contribution; N],
) -> DefaultFleet {
    let (settings, classes) = (inputs.settings, inputs.gateway_classes);
    let tls = b.union(
        "tls hosts without gateway",
        sources.map(|source| source.points),
    );
    let users = b.union_keys(
        "users of the default fleet",
        sources.map(|source| source.users),
    );
    let tls_users = b.index(tls, "tls users of the default fleet", |_, _| vec![owner()]);
    let with_tls = b.union_keys("default fleet with tls", [tls_users.into()]);
    let gateway_ports = b.index(gateways, "gateways' listeners by port", |_, points| {
        points.ports()
    });
    let http = b.derive(
        "http without gateway",
        users,
        move |reader, _: &ObjectKey| {
            let listener = reader.get(listener, &())?;
            let mut points = point(
                ListenerRef::clone(&listener),
                Protocol::Http,
                false,
                &hostname::ANY.into(),
            );
            let conflicts = conflicts(reader, gateway_ports, &listener.port, Protocol::Http);
            points.serving = conflicts.is_empty();
            let settings = reader.get(settings, &())?;
            Some(attach_points(&settings, vec![points]))
        },
    );
    let https = b.derive("https without gateway", tls, move |reader, key| {
        let mut points = AttachPoints::clone(&*reader.get(tls, key)?);
        for point in &mut points.listeners {
            let port = &point.listener.port;
            let conflicts = conflicts(reader, gateway_ports, port, point.protocol);
            point.serving &= conflicts.is_empty();
        }
        Some(points)
    });
    let requests = b.derive("default fleet", users, move |reader, owner: &ObjectKey| {
        let settings = reader.get(settings, &())?;
        let https = settings.in_cluster() || reader.exists(with_tls, owner);
        let ports = &settings.ingress;
        let ports = [Some(ports.http_port()), https.then_some(ports.https_port())];
        let parameters = &settings.fleet.parameters;
        let refusal = publishing::refusal(reader, classes, &settings, parameters);
        let request = FleetRequest {
            ports: ports.into_iter().flatten().collect(),
            parameters: refusal.is_none().then(|| parameters.clone()),
            ..FleetRequest::new()
        };
        Some((settings.default_fleet(), request))
    });
    let port_conflicts = b.derive_many(
        "port conflicts of the default fleet",
        users,
        move |reader, owner: &ObjectKey| {
            let Some(settings) = reader.get(settings, &()) else {
                return Vec::new();
            };
            let fleet = settings.default_fleet();
            let https = reader.exists(with_tls, owner);
            let ports = [
                (settings.ingress.http_port(), Protocol::Http, true),
                (settings.ingress.https_port(), Protocol::Https, https),
            ];
            let mut messages = Vec::new();
            for (port, protocol, _) in ports.into_iter().filter(|(.., used)| *used) {
                let key = ListenerKey {
                    fleet: fleet.clone(),
                    port,
                };
                if let Some(gateway) = conflicts(reader, gateway_ports, &key, protocol).first() {
                    messages.push(format!(
                        "port {port} is not served for Ingresses and HTTPProxies: a listener of {} {} uses it for another \
                         protocol; change the port of that listener",
                        gateway.kind,
                        gateway.namespaced_name()
                    ));
                }
            }
            let messages = (!messages.is_empty()).then(|| messages.join("; "));
            Vec::from_iter(messages.map(|message| (fleet, message)))
        },
    );
    DefaultFleet {
        conflicts: port_conflicts,
        points: b.union("attach points without gateway", [http, https]),
        requests,
    }
}

/// The owners of the listeners on this port whose protocol can't share the port with `protocol`.
fn conflicts(
    reader: &mut Reader<'_>,
    gateways: Index<ObjectKey, AttachPoints, ListenerKey>,
    port: &ListenerKey,
    protocol: Protocol,
) -> Vec<ObjectKey> {
    let owners = reader.by(gateways, port).into_iter();
    let conflicting = owners.filter(|(_, points)| {
        let mut points = points.serving_on(port.port);
        points.any(|point| !point.protocol.shares_port_with(protocol))
    });
    conflicting.map(|(owner, _)| owner).collect()
}

/// Declares the fleets. If several objects request the same fleet, it has the ports of all requests; for everything
/// else, a Gateway's request takes precedence.
pub(crate) fn fleets(
    b: &mut Builder,
    gateways: Table<ObjectKey, (FleetId, FleetRequest)>,
    default: DefaultFleet,
) -> Table<FleetId, FleetRequest> {
    let requests = b.union("fleet requests", [gateways, default.requests]);
    let by_fleet = b.index(requests, "fleet requests by fleet", |_, (fleet, _)| {
        vec![fleet.clone()]
    });
    b.derive("fleet", by_fleet, move |reader, fleet: &FleetId| {
        // Owners are sorted by kind, so Gateways come first.
        let requests = reader.by(by_fleet, fleet);
        let mut requests = requests.iter().map(|(_, request)| &request.1);
        let mut merged = requests.next()?.clone();
        for request in requests {
            merged.ports.extend(&request.ports);
        }
        Some(merged)
    })
}
