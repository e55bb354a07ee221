//! ReferenceGrant, BackendTLSPolicy, XTelemetryPolicy and XBackendTrafficPolicy.

use crate::backend_tls_policy::{
    BackendTlsPolicySpec, BackendTlsValidation, PolicyTargetReference, SubjectAltName,
    WellKnownCaCertificates,
};
use crate::backend_traffic_policy::{BackendTrafficPolicySpec, RetryConstraint};
use crate::reference_grant::ReferenceGrantSpec;
use crate::telemetry_policy::{
    ParentBasedSampling, SamplingMode, SpanAttributeSource, TelemetryPolicySpec, TracingConfig,
    TracingMode,
};

use super::{
    Check, at, at_index, each, each_of_some, ensure, fail, filter, optional, reference, route,
    text, unique,
};

pub(crate) fn reference_grant(spec: &ReferenceGrantSpec) -> Check {
    each_of_some("from", &spec.from, 16, |from| {
        at("group", text::group(from.group.as_str()))?;
        at("kind", text::kind(from.kind.as_str()))?;
        at("namespace", text::label(&from.namespace))
    })?;
    each_of_some("to", &spec.to, 16, |to| {
        at("group", text::group(to.group.as_str()))?;
        at("kind", text::kind(to.kind.as_str()))?;
        optional("name", to.name.as_ref(), |name| text::length(name, 1, 253))
    })
}

pub(crate) fn backend_tls(spec: &BackendTlsPolicySpec) -> Check {
    each_of_some("targetRefs", &spec.target_refs, 16, |target| {
        reference::object(&target.group, &target.kind, &target.name, None)?;
        optional("sectionName", target.section_name.as_ref(), |name| {
            text::subdomain(name)
        })
    })?;
    distinct_targets(&spec.target_refs)?;
    at("validation", validation(&spec.validation))?;
    reference::annotations("options", &spec.options, 16)
}

/// References to the same target must have different sectionNames.
fn distinct_targets(list: &[PolicyTargetReference]) -> Check {
    for (index, target) in list.iter().enumerate() {
        let clash = list[..index].iter().any(|other| {
            other.group == target.group
                && other.kind == target.kind
                && other.name == target.name
                && (other.section_name.is_none()
                    || target.section_name.is_none()
                    || other.section_name == target.section_name)
        });
        let message = "another entry refers to the same target; each needs a different sectionName";
        at("targetRefs", at_index(index, ensure(!clash, message)))?;
    }
    Ok(())
}

pub(super) fn validation(validation: &BackendTlsValidation) -> Check {
    each(
        "caCertificateRefs",
        &validation.ca_certificate_refs,
        8,
        reference::local,
    )?;
    let refs = !validation.ca_certificate_refs.is_empty();
    let well_known = validation.well_known_ca_certificates.as_ref();
    ensure(
        refs != well_known.is_some(),
        "exactly one of caCertificateRefs and wellKnownCACertificates is required",
    )?;
    if let Some(WellKnownCaCertificates::Other(name)) = well_known {
        at("wellKnownCACertificates", text::domain_path(name))?;
    }
    at("hostname", text::precise_hostname(&validation.hostname))?;
    each(
        "subjectAltNames",
        &validation.subject_alt_names,
        5,
        |name| match name {
            SubjectAltName::Hostname(hostname) => at("hostname", text::hostname(hostname)),
            SubjectAltName::Uri(uri) => at("uri", text::absolute_uri(uri)),
            SubjectAltName::Unknown(_) => Ok(()),
        },
    )
}

pub(crate) fn telemetry(spec: &TelemetryPolicySpec) -> Check {
    each_of_some("targetRefs", &spec.target_refs, 16, reference::local)?;
    let Some(config) = &spec.tracing else {
        return at("tracing", fail("is required"));
    };
    at("tracing", tracing(config))
}

fn tracing(tracing: &TracingConfig) -> Check {
    let enabled = tracing.mode == TracingMode::Enabled;
    let only_if_enabled = [
        ("samplingRate", tracing.sampling_rate.is_some()),
        (
            "parentBasedSampling",
            tracing.parent_based_sampling.is_some(),
        ),
        ("serviceName", tracing.service_name.is_some()),
        ("spanName", tracing.span_name.is_some()),
        ("attributes", !tracing.attributes.is_empty()),
    ];
    for (field, set) in only_if_enabled {
        at(field, ensure(enabled || !set, "requires mode Enabled"))?;
    }
    at(
        "provider",
        ensure(
            enabled == tracing.provider.is_some(),
            "is required with mode Enabled and not allowed otherwise",
        ),
    )?;
    optional("provider", tracing.provider.as_ref(), |provider| {
        at("backendRef", reference::backend(&provider.backend_ref))?;
        filter::headers("headers", &provider.headers)
    })?;
    let rate = tracing.sampling_rate.as_ref();
    optional("samplingRate", rate, filter::fraction)?;
    let parents = tracing.parent_based_sampling.as_ref();
    optional("parentBasedSampling", parents, parent_based_sampling)?;
    let service = tracing.service_name.as_ref();
    optional("serviceName", service, |name| text::span_text(name, 253))?;
    let span = tracing.span_name.as_ref();
    optional("spanName", span, |name| text::span_name(name))?;
    let attributes = &tracing.attributes;
    each("attributes", attributes, usize::MAX, |attribute| {
        at("name", text::span_text(&attribute.name, 256))?;
        match &attribute.source {
            SpanAttributeSource::Header(name) => at("headerName", text::header_name(name)),
            SpanAttributeSource::Literal(value) => at("literalValue", text::length(value, 1, 1024)),
            SpanAttributeSource::Attribute(key) => at("attributeKey", text::attribute_key(key)),
            SpanAttributeSource::Unknown(_) => Ok(()),
        }
    })?;
    unique(
        "attributes",
        attributes,
        "another entry has the same name",
        |attribute| Some(&attribute.name),
    )
}

fn parent_based_sampling(sampling: &ParentBasedSampling) -> Check {
    let allowed = sampling.mode == SamplingMode::Enabled || sampling.sampling_rate.is_none();
    at("samplingRate", ensure(allowed, "requires mode Enabled"))?;
    let rate = sampling.sampling_rate.as_ref();
    optional("samplingRate", rate, filter::fraction)
}

/// One hour in milliseconds.
const HOUR: u64 = 3_600_000;

pub(crate) fn backend_traffic(spec: &BackendTrafficPolicySpec) -> Check {
    each_of_some("targetRefs", &spec.target_refs, 16, reference::local)?;
    unique(
        "targetRefs",
        &spec.target_refs,
        "another entry refers to the same target",
        Some,
    )?;
    let retries = spec.retry_constraint.as_ref();
    optional("retryConstraint", retries, retry_constraint)?;
    let session = spec.session_persistence.as_ref();
    optional("sessionPersistence", session, route::session)
}

fn retry_constraint(constraint: &RetryConstraint) -> Check {
    let budget = &constraint.budget;
    let percent = ensure(budget.percent <= 100, "expected a number from 0 to 100");
    at("budget", at("percent", percent))?;
    let interval = ensure(
        (1_000..=HOUR).contains(&budget.interval.as_millis()),
        "expected a duration from 1s to 1h",
    );
    at("budget", at("interval", interval))?;
    let rate = &constraint.min_retry_rate;
    let count = ensure(
        (1..=1_000_000).contains(&rate.count),
        "expected a number from 1 to 1000000",
    );
    at("minRetryRate", at("count", count))?;
    let interval = ensure(
        (1..=HOUR).contains(&rate.interval.as_millis()),
        "expected a duration from 1ms to 1h",
    );
    at("minRetryRate", at("interval", interval))
}
