//! The stages of GatewayClasses, Gateways and ListenerSets: listeners, fleets, statuses.

use std::sync::Arc;

use sesame_api::{Kind, NamespacedName, ObjectKey, ObjectStatus};
use sesame_engine::{Builder, Index, Keys, Table};
use sesame_model::{CertificateKey, FleetId, FleetRequest, TrustBundle, TrustBundleKey};

use crate::configuration::references::{self, GatewayParameters};
use crate::gateway_api::class::{self, ClassState};
use crate::gateway_api::frontend::{self, FrontendState};
use crate::gateway_api::gateway::{self, GatewayState, Obstacles};
use crate::gateway_api::listener_set::{self, Parent, Parents, SetState};
use crate::gateway_api::listener_set_status::{self, ParentStatus};
use crate::gateway_api::merge::{self, Claims, Merged};
use crate::gateway_api::route::backends;
use crate::gateway_api::unmanaged::Served;
use crate::gateway_api::{
    assigned_ports, certificate_ref, fleet_request, gateway_status, listener, listener_state,
    listener_status, xbackend,
};
use crate::inputs::Inputs;
use crate::problem::Notices;
use crate::shared::authorities::AuthorityState;
use crate::shared::certificates::{self, CertificateState};
use crate::shared::client_certificates::{ClientCertificate, ClientCertificates};
use crate::shared::hosts::Attachments;
use crate::shared::listeners::{AttachPoints, ListenerChecks, ListenerId};
use crate::shared::ports::Terminations;

/// The tables of GatewayClasses, Gateways and ListenerSets.
#[derive(Clone, Copy)]
pub(super) struct Gateways {
    pub(super) class_status: Table<ObjectKey, ObjectStatus>,
    pub(super) parameters: Table<ObjectKey, GatewayParameters>,
    pub(super) states: Table<ObjectKey, GatewayState>,
    sets: Table<ObjectKey, SetState>,
    merged: Merged,
    /// Listeners by owner.
    pub(super) points: Table<ObjectKey, AttachPoints>,
    /// TLS settings of listeners by owner.
    pub(super) terminations: Table<ObjectKey, Terminations>,
    /// The CA certificates that verify clients.
    pub(super) trust_bundles: Table<TrustBundleKey, TrustBundle>,
    /// The owners of listeners with checks.
    pub(super) checked: Index<ObjectKey, AttachPoints, ObjectKey>,
    /// The checks for listeners' requests.
    pub(super) checks: Table<ListenerId, ListenerChecks>,
    /// The client certificates of fleets.
    pub(super) client_certificates: ClientCertificates,
}

/// Declares the stages up to the merged listeners.
pub(super) fn stages(
    b: &mut Builder,
    inputs: &Inputs,
    authorities: Table<ObjectKey, AuthorityState>,
    certificates: Table<CertificateKey, CertificateState>,
    of_instance: ClientCertificates,
    backends: backends::Sources,
) -> Gateways {
    let inputs = *inputs;
    let served = Served::declare(b, &inputs);
    let chosen = references::stages(b, &inputs);
    let classes: Table<ObjectKey, ClassState> =
        b.derive("class", inputs.gateway_classes, move |reader, key| {
            let class = reader.get(inputs.gateway_classes, key)?;
            let settings = reader.get(inputs.settings, &())?;
            class::read(reader, chosen, &settings, served, &class)
        });
    let class_status = b.derive("class status", classes, move |reader, key| {
        let class = reader.get(inputs.gateway_classes, key)?;
        let state = reader.get(classes, key)?;
        let release = reader.get(inputs.release, &());
        let api = class::Api {
            release: release.as_deref(),
            trust_bundles: !inputs.is_absent(reader, Kind::ClusterTrustBundle),
        };
        let settings = reader.get(inputs.settings, &())?;
        let status = class::status(&class, &state, &settings.mode, api);
        Some(ObjectStatus::GatewayClass(Arc::new(status)))
    });
    let parameters: Table<ObjectKey, GatewayParameters> =
        b.derive("gateway parameters", inputs.gateways, move |reader, key| {
            let gateway = reader.get(inputs.gateways, key)?;
            let class = reader.get(classes, &class::key(&gateway.spec.gateway_class_name))?;
            references::of_gateway(reader, chosen, &inputs, &class, &gateway)
        });
    let validating = b.index(
        inputs.gateways,
        "gateways with client validation",
        |key: &ObjectKey, gateway| {
            let validates = frontend::validates(gateway);
            Vec::from_iter(validates.then(|| key.clone()))
        },
    );
    let of_frontends = frontend::Sources {
        grants: inputs.grants_by_namespace,
        authorities,
    };
    let frontends: Table<ObjectKey, FrontendState> =
        b.derive("frontend", validating, move |reader, key| {
            reader.get(parameters, key)?;
            let gateway = reader.get(inputs.gateways, key)?;
            Some(frontend::read(reader, of_frontends, &gateway))
        });
    let trust_bundles = b.derive_many("client trust bundle", frontends, move |reader, key| {
        let frontend = reader.get(frontends, key);
        frontend.map_or_else(Vec::new, |frontend| {
            frontend.trust_bundles(reader, authorities)
        })
    });
    let of_listeners = listener::Sources {
        grants: inputs.grants_by_namespace,
        certificates,
        frontends,
        backends,
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
                key,
                &gateway,
                obstacles,
                settings.in_cluster(),
            ))
        });
    let parents = b.derive("listener_set parent", states, move |reader, key| {
        let gateway = reader.get(inputs.gateways, key)?;
        Some(Parent::of(&gateway, &*reader.get(states, key)?))
    });
    let parents = Parents {
        parents,
        namespaces: inputs.namespaces,
    };
    let of_sets = listener_set::Sources {
        parents,
        assigned: assigned_ports::stages(b, &inputs, parents),
        listeners: of_listeners,
    };
    let own_sets: Table<ObjectKey, SetState> = b.derive(
        "own listener_set",
        inputs.listener_sets,
        move |reader, key| {
            let set = reader.get(inputs.listener_sets, key)?;
            listener_set::read(reader, of_sets, key, &set)
        },
    );
    let gateway_claims = b.derive("gateway claims", states, move |reader, key: &ObjectKey| {
        let state = reader.get(states, key)?;
        Some(Claims::of(key.clone(), None, &state.listeners))
    });
    let set_claims = b.derive("listener_set claims", own_sets, move |reader, key| {
        let set = reader.get(inputs.listener_sets, key)?;
        listener_set::claims(&set, &*reader.get(own_sets, key)?)
    });
    let claims = b.union("claims", [gateway_claims, set_claims]);
    let merged = merge::stages(b, claims);
    let sets = b.derive("listener_set", own_sets, move |reader, key| {
        let own = reader.get(own_sets, key)?;
        Some(listener_set::merged(reader, merged, key, &own))
    });
    let gateway_points = b.derive("gateway points", states, move |reader, key: &ObjectKey| {
        let state = reader.get(states, key)?;
        let settings = reader.get(inputs.settings, &())?;
        let fleet = settings.fleet_of(&key.namespaced_name());
        let served = state.refused.is_none();
        let closed = state.elsewhere().cloned();
        Some(listener_state::attach_points(
            fleet,
            key,
            &state.listeners,
            served,
            closed,
        ))
    });
    let set_points = b.derive("listener_set points", sets, move |reader, key| {
        let state = reader.get(sets, key)?;
        let settings = reader.get(inputs.settings, &())?;
        let fleet = settings.fleet_of(&state.gateway.namespaced_name());
        let served = state.refused.is_none();
        let closed = state.closed.clone();
        Some(listener_state::attach_points(
            fleet,
            key,
            &state.listeners,
            served,
            closed,
        ))
    });
    let points = b.union("attach points", [gateway_points, set_points]);
    let checked = b.index(
        points,
        "owners of listeners with checks",
        |key: &ObjectKey, points| {
            let checks = points.listeners.iter().any(|point| point.checks);
            Vec::from_iter(checks.then(|| key.clone()))
        },
    );
    let checks = b.derive_many(
        "listener checks",
        checked,
        move |reader, key: &ObjectKey| {
            let Some(points) = reader.get(points, key) else {
                return Vec::new();
            };
            match key.kind {
                Kind::Gateway => reader.get(states, key).map_or_else(Vec::new, |state| {
                    listener_state::checks(&points, &state.listeners)
                }),
                _ => reader.get(sets, key).map_or_else(Vec::new, |state| {
                    listener_state::checks(&points, &state.listeners)
                }),
            }
        },
    );
    let gateway_terminations = b.derive("gateway terminations", states, move |reader, key| {
        let state = reader.get(states, key)?;
        Some(listener_state::terminations(&state.listeners))
    });
    let set_terminations = b.derive("listener_set terminations", sets, move |reader, key| {
        let state = reader.get(sets, key)?;
        Some(listener_state::terminations(&state.listeners))
    });
    let of_gateways = b.derive_many("client certificate", states, move |reader, key| {
        let (Some(state), Some(settings)) =
            (reader.get(states, key), reader.get(inputs.settings, &()))
        else {
            return Vec::new();
        };
        let presented = state.presented().map(|certificate| {
            let fleet = settings.fleet_of(&key.namespaced_name());
            (fleet, certificate)
        });
        presented.into_iter().collect()
    });
    // Unmanaged Envoys may have both. Backends with a policy get the Gateway's, as in other fleets.
    let presenting = b.union_keys(
        "fleets with client certificate",
        [of_gateways.into(), of_instance.into()],
    );
    let client_certificates = b.derive(
        "fleet's client certificate",
        presenting,
        move |reader, fleet| {
            let of_gateway = reader.get(of_gateways, fleet);
            let of_instance = reader.get(of_instance, fleet);
            let mut both = [of_gateway.as_deref(), of_instance.as_deref()]
                .into_iter()
                .flatten();
            let without_policy = of_instance.as_deref();
            Some(ClientCertificate {
                with_policy: both.find_map(|of| of.with_policy.clone()),
                without_policy: without_policy.and_then(|of| of.without_policy.clone()),
            })
        },
    );
    Gateways {
        class_status,
        parameters,
        states,
        sets,
        merged,
        points,
        checked,
        checks,
        terminations: b.union("terminations", [gateway_terminations, set_terminations]),
        trust_bundles,
        client_certificates,
    }
}

/// Declares the fleets of accepted Gateways.
pub(super) fn fleets(
    b: &mut Builder,
    inputs: &Inputs,
    gateways: &Gateways,
) -> Table<ObjectKey, (FleetId, FleetRequest)> {
    let (inputs, gateways) = (*inputs, *gateways);
    b.derive(
        "gateway fleet",
        gateways.states,
        move |reader, key: &ObjectKey| {
            let settings = reader.get(inputs.settings, &())?;
            let gateway = reader.get(inputs.gateways, key)?;
            let state = reader.get(gateways.states, key)?;
            let parameters = reader.get(gateways.parameters, key)?;
            let ports = reader.by(gateways.merged.by_gateway, key);
            let ports = ports.iter().map(|(key, claim)| (key.port, &**claim));
            fleet_request::request(&settings, &gateway, &state, &parameters, ports)
        },
    )
}

/// Declares the statuses of Gateways and of ListenerSets.
pub(super) fn statuses(
    b: &mut Builder,
    inputs: &Inputs,
    gateways: &Gateways,
    attached: Index<ObjectKey, Attachments, ListenerId>,
    expiring: Table<CertificateKey, String>,
) -> (
    Table<ObjectKey, ObjectStatus>,
    Table<ObjectKey, ObjectStatus>,
) {
    let (inputs, gateways) = (*inputs, *gateways);
    let sets = b.index(gateways.sets, "listener_sets by gateway", |_, set| {
        vec![set.gateway.clone()]
    });
    let attached_sets = b.index(gateways.sets, "attached listener_sets", |_, set| {
        let attached = set.attached().then(|| set.gateway.clone());
        Vec::from_iter(attached)
    });
    let of_gateways = b.derive("gateway status", gateways.states, move |reader, key| {
        let gateway = reader.get(inputs.gateways, key)?;
        let state = reader.get(gateways.states, key)?;
        let points = reader.get(gateways.points, key)?;
        let fleet = reader.get(inputs.fleets, &points.fleet);
        let settings = reader.get(inputs.settings, &())?;
        let sources = gateway_status::Sources {
            listeners: listener_status::Sources {
                inputs: &inputs,
                mode: &settings.mode,
                points: &points,
                fleet: fleet.as_deref(),
                client_certificates: gateways.client_certificates,
                attached,
                expiring,
            },
            asked: &gateway.spec.addresses,
            routability: class::has_routability(
                &settings.mode,
                reader.get(inputs.release, &()).as_deref(),
            ),
            state: &state,
            sets,
            attached_sets,
        };
        let status = gateway_status::status(reader, &sources, key, &gateway);
        Some(ObjectStatus::Gateway(Arc::new(status)))
    });
    // A separate row, so that a new count in the Gateway's status doesn't rerun the statuses of its sets.
    let parents = b.derive(
        "listener_set parent status",
        sets,
        move |reader, key| match &*reader.get(of_gateways, key)? {
            ObjectStatus::Gateway(status) => Some(ParentStatus::of(status)),
            _ => None,
        },
    );
    let of_sets = b.derive("listener_set status", gateways.sets, move |reader, key| {
        let set = reader.get(inputs.listener_sets, key)?;
        let state = reader.get(gateways.sets, key)?;
        let points = reader.get(gateways.points, key)?;
        let fleet = reader.get(inputs.fleets, &points.fleet);
        let settings = reader.get(inputs.settings, &())?;
        let sources = listener_status::Sources {
            inputs: &inputs,
            mode: &settings.mode,
            points: &points,
            fleet: fleet.as_deref(),
            client_certificates: gateways.client_certificates,
            attached,
            expiring,
        };
        let parent = *reader.get(parents, &state.gateway)?;
        let status = listener_set_status::status(reader, &sources, parent, key, &set, &state);
        Some(ObjectStatus::ListenerSet(Arc::new(status)))
    });
    (of_gateways, of_sets)
}

/// Declares the notices of Gateways and of ListenerSets.
pub(super) fn notices(
    b: &mut Builder,
    gateways: &Gateways,
    expiring: Table<CertificateKey, String>,
) -> [Table<ObjectKey, Notices>; 2] {
    let (states, sets) = (gateways.states, gateways.sets);
    let of_gateways = b.derive("gateway notices", states, move |reader, key| {
        let state = reader.get(states, key)?;
        listener_status::notices(reader, &state.listeners, expiring)
    });
    let of_sets = b.derive("listener_set notices", sets, move |reader, key| {
        let state = reader.get(sets, key)?;
        listener_status::notices(reader, &state.listeners, expiring)
    });
    [of_gateways, of_sets]
}

/// Declares the certificates that listeners, Gateways, XBackends and `others` refer to.
pub(super) fn certificate_states(
    b: &mut Builder,
    inputs: &Inputs,
    others: [Keys<CertificateKey>; 3],
) -> Table<CertificateKey, CertificateState> {
    let secrets = inputs.secrets;
    let gateways_by_secret = b.index(inputs.gateways, "gateways by secret", |_, gateway| {
        let listeners = &gateway.spec.listeners;
        let mut secrets = listener_state::referenced_secrets(&gateway.meta.namespace, listeners);
        secrets.extend(certificate_ref::client_secret(gateway));
        secrets
    });
    let sets_by_secret = b.index(inputs.listener_sets, "listener_sets by secret", |_, set| {
        listener_state::referenced_secrets(&set.meta.namespace, &set.spec.listeners)
    });
    let backends_by_secret = b.index(inputs.xbackends, "xbackends by secret", |_, backend| {
        Vec::from_iter(xbackend::client_secret(backend))
    });
    let by_secret = b.union_keys(
        "referenced certificates",
        [
            gateways_by_secret.into(),
            sets_by_secret.into(),
            backends_by_secret.into(),
        ]
        .into_iter()
        .chain(others),
    );
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
