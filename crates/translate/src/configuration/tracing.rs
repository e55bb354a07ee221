//! The section `tracing`: how requests are traced, unless a Gateway's policy says otherwise.

use std::sync::Arc;

use sesame_api::{CustomTag, TracingConfiguration};
use sesame_engine::{Builder, Reader, Table};
use sesame_model::{
    ClusterKey, FleetId, ListenerSettings, PartsPerMillion, Sampling, SpanAttribute, SpanValue,
    Target, Tracing,
};

use crate::gateway_api::telemetry::OwnTracing;
use crate::http_proxy::extensions;
use crate::inputs::Inputs;
use crate::settings::TracingSettings;
use crate::shared::client_certificates::{self, ClientCertificates};

/// The service name in the spans of Envoys without a Gateway.
const SERVICE: &str = "sesame";

/// The Envoy's environment variables with its pod's names, and their attributes.
const POD: [(&str, &str); 2] = [
    ("k8s.pod.name", "POD_NAME"),
    ("k8s.namespace.name", "POD_NAMESPACE"),
];

/// Reads the section. The schema has all rules, so reading it can't fail.
pub(super) fn settings(section: &TracingConfiguration) -> TracingSettings {
    let tags = &section.custom_tags;
    let named = |name: &str| tags.iter().any(|tag| *tag.tag_name == *name);
    let pod = POD.into_iter().filter(|(name, _)| {
        let included = section.include_pod_detail.unwrap_or(true);
        included && !named(name)
    });
    let pod = pod.map(|(name, variable)| SpanAttribute {
        name: name.into(),
        value: SpanValue::Environment(variable),
    });
    TracingSettings {
        collector: section.extension_service.key(),
        rate: PartsPerMillion(section.sampling()),
        service: section.service_name.clone(),
        max_path: section.max_path_tag_length,
        attributes: pod.chain(tags.iter().filter_map(attribute)).collect(),
    }
}

fn attribute(tag: &CustomTag) -> Option<SpanAttribute> {
    let value = match (&tag.literal, &tag.request_header_name) {
        (Some(text), _) => SpanValue::Literal(Arc::clone(text)),
        (None, Some(name)) => SpanValue::RequestHeader(Arc::clone(name)),
        (None, None) => return None,
    };
    Some(SpanAttribute {
        name: Arc::clone(&tag.tag_name),
        value,
    })
}

/// Declares the cluster that gets the spans, if its ExtensionService is valid.
pub(crate) fn collector(
    b: &mut Builder,
    inputs: &Inputs,
    extensions: extensions::Read,
) -> Table<(), ClusterKey> {
    let inputs = *inputs;
    b.derive("collector", inputs.settings, move |reader, ()| {
        let settings = reader.get(inputs.settings, &())?;
        let name = &settings.tracing.as_ref()?.collector;
        extensions::best_effort(reader, extensions, name)
    })
}

/// The tables that the tracing of fleets depends on.
#[derive(Clone, Copy)]
pub(crate) struct TracingSources {
    /// The settings from Gateways' own policies.
    pub(crate) own: Table<FleetId, OwnTracing>,
    /// The default collector.
    pub(crate) collector: Table<(), ClusterKey>,
    /// A row for each fleet.
    pub(crate) fleets: Table<FleetId, ListenerSettings>,
    /// The client certificates of fleets.
    pub(crate) client_certificates: ClientCertificates,
}

/// Declares how each fleet traces requests.
pub(crate) fn tracing(
    b: &mut Builder,
    inputs: &Inputs,
    sources: TracingSources,
) -> Table<FleetId, Tracing> {
    let inputs = *inputs;
    b.derive(
        "tracing",
        sources.fleets,
        move |reader, fleet: &FleetId| match reader.get(sources.own, fleet) {
            Some(own) => own.0.clone(),
            None => default(reader, inputs, sources, fleet),
        },
    )
}

fn default(
    reader: &mut Reader<'_>,
    inputs: Inputs,
    sources: TracingSources,
    fleet: &FleetId,
) -> Option<Tracing> {
    let settings = reader.get(inputs.settings, &())?;
    let settings = settings.tracing.as_ref()?;
    let collector = reader.get(sources.collector, &())?;
    let collector = Target::Cluster(ClusterKey::clone(&collector));
    let certificates = sources.client_certificates;
    let service = settings.service.clone().unwrap_or_else(|| match fleet {
        FleetId::Gateway { namespace, name } => format!("{name}.{namespace}").into(),
        FleetId::Default | FleetId::Unmanaged => SERVICE.into(),
    });
    Some(Tracing {
        collector: client_certificates::of_target(reader, certificates, fleet, collector),
        headers: Vec::new(),
        sampling: Sampling {
            rate: settings.rate,
            parents: None,
        },
        service,
        span: None,
        max_path: settings.max_path,
        attributes: settings.attributes.clone(),
    })
}
