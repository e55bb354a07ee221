//! XBackends of type EndpointSelector: their endpoints, and the Services through which Kubernetes finds them.
//!
//! In a cluster, each of them has a headless Service with its selector, for which Kubernetes writes EndpointSlices. The
//! Service is created once a Gateway uses the XBackend, and deleted with the XBackend or when its type changes.

use std::sync::Arc;

use sesame_api::{NamespacedName, ObjectKey, XBackend, XBackendType, reason};
use sesame_engine::{Builder, Reader, Table};
use sesame_model::{Endpoints, PodService, PodServiceChange, Session};

use super::{XBackends, invalid};
use crate::gateway_api::ancestors::Uses;
use crate::gateway_api::route::session;
use crate::inputs::Inputs;
use crate::problem::Problem;
use crate::shared::pod_services;
use crate::shared::services::{self, Service};

/// The Pods of an XBackend.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pods {
    /// The Service with the EndpointSlices.
    pub(super) service: NamespacedName,
    /// The port of every Pod.
    pub(super) port: u16,
    /// Session persistence.
    pub(super) session: Option<Arc<Session>>,
}

fn service_name(xbackend: &XBackend) -> NamespacedName {
    let namespace = Arc::clone(&xbackend.meta.namespace);
    NamespacedName::new(namespace, pod_services::name(&xbackend.meta.name))
}

/// The Pods of an XBackend of type EndpointSelector.
pub(super) fn read(
    reader: &mut Reader<'_>,
    services: Table<NamespacedName, Service>,
    xbackend: &XBackend,
) -> Result<Pods, Problem> {
    const SESSION: &str = "spec.sessionPersistence";
    let labels = xbackend.spec.endpoint_selector.as_ref();
    if labels.is_none_or(|selector| selector.match_labels.is_empty()) {
        return Err(invalid(
            "spec.endpointSelector.matchLabels is required with type EndpointSelector",
        ));
    }
    let service = service_name(xbackend);
    if let Some(found) = reader.get(services, &service)
        && !is_owned(&found, xbackend)
    {
        return Err(invalid(format!(
            "Service {service} exists, but is not owned by this XBackend, which needs a Service of that name; delete Service \
             {service}, or rename the XBackend"
        )));
    }
    let persistence = xbackend.spec.session_persistence.as_ref();
    let session = persistence.map(|persistence| {
        session::read(SESSION, persistence, || {
            session::xbackend_cookie(&xbackend.meta.namespace, &xbackend.meta.name)
        })
    });
    Ok(Pods {
        service,
        port: xbackend.spec.port.number,
        session: session
            .transpose()
            .map_err(|error| invalid(error.to_string()))?,
    })
}

/// Whether the XBackend, or an earlier one with the same name, owns a Service.
fn is_owned(service: &Service, xbackend: &XBackend) -> bool {
    let selection = service.selection.as_ref();
    selection.is_some_and(|selection| *selection.xbackend == *xbackend.meta.name)
}

/// The endpoints of the Pods: every address in the slices, with the XBackend's port.
pub(super) fn endpoints(reader: &mut Reader<'_>, inputs: &Inputs, pods: &Pods) -> Endpoints {
    let service = reader.get(inputs.services, &pods.service);
    let family = service.and_then(|service| service.family);
    let slices = reader.by(inputs.slices_by_service, &pods.service);
    let slices = slices.iter().map(|(_, slice)| &**slice);
    services::endpoints_at(family, slices, |_| Some((pods.port, None)))
}

/// Declares the table of changes to Services. It is empty outside a cluster.
pub(crate) fn changes(
    b: &mut Builder,
    inputs: &Inputs,
    xbackends: XBackends,
    uses: Uses,
) -> Table<ObjectKey, PodServiceChange> {
    let inputs = *inputs;
    b.derive(
        "pod service change",
        xbackends.states,
        move |reader, key| {
            let settings = reader.get(inputs.settings, &())?;
            let xbackend = reader.get(inputs.xbackends, key)?;
            if !settings.in_cluster() || xbackend.meta.uid.is_empty() {
                return None;
            }
            let name = service_name(&xbackend);
            let found = reader.get(inputs.services, &name);
            let Some(desired) = desired(&xbackend, &name.name) else {
                let selection = found.as_ref()?.selection.as_ref()?;
                return selection
                    .is_of(&xbackend.meta.uid)
                    .then(|| PodServiceChange::Delete {
                        name: name.name,
                        uid: selection.uid.clone(),
                    });
            };
            let change = match found {
                None => PodServiceChange::Create(desired),
                Some(found) if is_owned(&found, &xbackend) => {
                    let selection = found.selection.as_ref()?;
                    if selection.satisfies(&desired) {
                        return None;
                    }
                    PodServiceChange::Update {
                        uid: selection.uid.clone(),
                        service: desired,
                    }
                }
                Some(_) => return None,
            };
            // While the XBackend is being deleted, its Service may be deleted first.
            let needed = xbackend.meta.deletion_timestamp.is_none() && reader.count(uses, key) > 0;
            needed.then_some(change)
        },
    )
}

/// The Service of an XBackend; `None` if the XBackend doesn't need one.
fn desired(xbackend: &XBackend, name: &Arc<str>) -> Option<PodService> {
    let spec = &xbackend.spec;
    if spec.type_ != XBackendType::EndpointSelector {
        return None;
    }
    let selector = spec.endpoint_selector.as_ref()?;
    Some(PodService {
        name: Arc::clone(name),
        owner_uid: xbackend.meta.uid.clone(),
        selector: selector.match_labels.clone(),
    })
}

/// Why the API server refused the pending change to an XBackend's Service, if it did.
pub(super) fn refusal(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    changes: Table<ObjectKey, PodServiceChange>,
    key: &ObjectKey,
) -> Option<Problem> {
    // Without a pending change, an earlier refusal no longer matters.
    if !reader.exists(changes, key) {
        return None;
    }
    let message = reader.get(inputs.pod_service_failures, key)?;
    let message = format!("{message}; without this Service, Kubernetes finds no endpoints");
    Some(Problem::new(reason::gateway::NO_RESOURCES, message))
}
