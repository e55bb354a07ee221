//! Global rate limits, which a service enforces for all Envoys together.
//!
//! In: the `rateLimitPolicy.global` of a host or a route, the ExtensionService that the settings name, and their default
//! limits. Out: the descriptors of requests. A host's descriptors apply to routes without their own; the default ones, to
//! hosts without their own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sesame_api::{GlobalRateLimitPolicy, RateLimitDescriptorEntry};
use sesame_engine::Reader;
use sesame_model::{GlobalRate, RateDescriptor, RateEntry, RateService};

use super::conditions::{PSEUDO_HEADERS, header};
use super::extensions;
use super::findings::{About, Findings};
use crate::inputs::Inputs;
use crate::problem::FieldError;
use crate::settings::RateLimitSettings;
use crate::shared::default_fleet::Sources;
use crate::shared::headers::is_token;
use crate::shared::scans::ListTime;

/// The timeout of a call if the ExtensionService doesn't set one.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum length of a host's or route's descriptors as JSON, in bytes: each route has a copy of its host's.
const MAX_BYTES: usize = 4_096;

/// The maximum number of a policy's entries with the value of the same header.
const MAX_OF_HEADER: usize = 8;

/// The limits in a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Limits {
    /// Whether a route opts out of the host's limits.
    disabled: bool,
    own: Own,
    /// Whether they are the default limits of the settings.
    default: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Own {
    #[default]
    None,
    Enforced(Arc<GlobalRate>),
    /// A field is invalid, or the service can't be used.
    Unusable,
}

/// The limits are invalid or can't be enforced, so requests must not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unusable;

impl Limits {
    /// The size of the default limits on each route, in bytes.
    pub(super) fn default_bytes(&self) -> usize {
        match &self.own {
            Own::Enforced(rate) if self.default => rate.bytes(),
            _ => 0,
        }
    }

    /// The limits of a route: its own, or else those of its host.
    pub(super) fn or(&self, host: &Self) -> Result<Option<Arc<GlobalRate>>, Unusable> {
        let applied = match &self.own {
            Own::None if !self.disabled => &host.own,
            own => own,
        };
        match applied {
            Own::None => Ok(None),
            Own::Enforced(rate) => Ok(Some(Arc::clone(rate))),
            Own::Unusable => Err(Unusable),
        }
    }
}

/// The limits of a host: its own, or else the default ones of the settings, unless it disables them.
pub(super) fn of_host(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    about: (&'static str, &str),
    policy: Option<&GlobalRateLimitPolicy>,
    findings: &mut Findings,
) -> Limits {
    let inherits = policy.is_none_or(|own| !own.disabled && own.descriptors.is_empty());
    let settings = reader.get(of.0.settings, &());
    let settings = settings.as_ref().filter(|_| inherits);
    let limits = settings.and_then(|settings| settings.ingress.rate_limits.as_ref());
    let default = limits.and_then(|limits| limits.default.as_ref());
    Limits {
        default: default.is_some(),
        ..read(reader, of, about, default.or(policy), findings)
    }
}

/// The invalid fields of default limits.
pub(crate) fn check(field: &str, policy: &GlobalRateLimitPolicy) -> Vec<FieldError> {
    let mut findings = Findings::default();
    descriptors(About::HOST_RATE, field, policy, &mut findings);
    findings.into_field_errors()
}

/// Reads the global limits in the rate limit policy of a host or a route. `type_` is the type of the findings.
pub(super) fn read(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    (type_, field): (&'static str, &str),
    policy: Option<&GlobalRateLimitPolicy>,
    findings: &mut Findings,
) -> Limits {
    let Some(policy) = policy else {
        return Limits::default();
    };
    let field = format!("{field}.rateLimitPolicy.global");
    let own = match policy.descriptors.is_empty() {
        true => Own::None,
        false => own(reader, of, (type_, &field), policy, findings),
    };
    Limits {
        disabled: policy.disabled,
        own,
        default: false,
    }
}

fn own(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    (type_, field): (&'static str, &str),
    policy: &GlobalRateLimitPolicy,
    findings: &mut Findings,
) -> Own {
    let mut invalid = Findings::default();
    let descriptors = descriptors(
        About(type_, "InvalidRateLimitPolicy"),
        field,
        policy,
        &mut invalid,
    );
    let valid = invalid.refusals() == 0;
    for finding in invalid.list {
        findings.add(finding);
    }
    let about = About(type_, "RateLimitServiceNotUsable");
    let settings = reader.get(of.0.settings, &());
    let Some(settings) = settings
        .as_ref()
        .and_then(|of| of.ingress.rate_limits.as_ref())
    else {
        let message = "Sesame has no rate limit service; set rateLimitService in its configuration or start it with \
                       --rate-limit-service, or remove the field";
        findings.error(about, field, message);
        return Own::Unusable;
    };
    match service(reader, of.1, settings) {
        Ok(service) if valid => Own::Enforced(Arc::new(GlobalRate {
            service: Arc::new(service),
            descriptors,
        })),
        Ok(_) => Own::Unusable,
        Err(message) if settings.fail_open => {
            findings.warn(
                about,
                field,
                format!("{message}; requests aren't rate limited"),
            );
            match valid {
                true => Own::None,
                false => Own::Unusable,
            }
        }
        Err(message) => {
            findings.error(about, field, message);
            Own::Unusable
        }
    }
}

/// Resolves the rate limit service.
fn service(
    reader: &mut Reader<'_>,
    sources: Sources,
    settings: &RateLimitSettings,
) -> Result<RateService, String> {
    let name = &settings.service;
    let extension = extensions::usable(reader, sources.extensions, name)?;
    if !extension.speaks_grpc() {
        return Err(format!(
            "ExtensionService {name} has protocol http/1.1, but a rate limit service needs h2 or h2c"
        ));
    }
    Ok(RateService {
        cluster: extension.cluster.clone(),
        domain: Arc::clone(&settings.domain),
        timeout: extension.timeout.unwrap_or(TIMEOUT),
        fail_open: settings.fail_open,
        headers: settings.headers,
        resource_exhausted: settings.resource_exhausted,
    })
}

fn descriptors(
    about: About,
    field: &str,
    policy: &GlobalRateLimitPolicy,
    findings: &mut Findings,
) -> Vec<Arc<RateDescriptor>> {
    let field = format!("{field}.descriptors");
    let size = serde_json::to_string(&policy.descriptors).map_or(0, |text| text.len());
    if size > MAX_BYTES {
        let message = format!(
            "is {size} bytes long as JSON; the maximum is {MAX_BYTES}; shorten or remove some values"
        );
        findings.refuse(about, &field, message);
        return Vec::new();
    }
    let mut time = ListTime::default();
    let mut of_header: HashMap<String, usize> = HashMap::new();
    let mut descriptors = Vec::new();
    for (index, descriptor) in policy.descriptors.iter().enumerate() {
        let field = format!("{field}[{index}].entries");
        if descriptor.entries.is_empty() {
            findings.refuse(about, &field, "expected at least 1 entry");
        }
        let mut entries = Vec::new();
        for (index, source) in descriptor.entries.iter().enumerate() {
            let read = entry(source, &mut time).and_then(|entry| {
                if let RateEntry::Header { name, .. } = &entry {
                    let count = of_header.entry(name.clone()).or_insert(0);
                    *count += 1;
                    if *count > MAX_OF_HEADER {
                        return Err(format!(
                            "requestHeader.headerName: at most {MAX_OF_HEADER} entries of a policy may send header {name}, \
                             whose value may be long; remove some"
                        ));
                    }
                }
                Ok(entry)
            });
            match read {
                Ok(entry) => entries.push(entry),
                Err(message) => findings.refuse(about, &format!("{field}[{index}]"), message),
            }
        }
        descriptors.push(Arc::new(entries));
    }
    descriptors
}

fn entry(source: &RateLimitDescriptorEntry, time: &mut ListTime) -> Result<RateEntry, String> {
    let RateLimitDescriptorEntry {
        generic_key,
        request_header,
        request_header_value_match,
        remote_address,
    } = source;
    let some = |part: &str, text: &str| match text.is_empty() {
        true => Err(format!("{part}: must not be empty")),
        false => Ok(text.to_owned()),
    };
    match (
        generic_key,
        request_header,
        request_header_value_match.as_deref(),
        remote_address,
    ) {
        (Some(fixed), None, None, None) => {
            let key = fixed.key.as_deref().filter(|key| !key.is_empty());
            Ok(RateEntry::Fixed {
                key: key.unwrap_or("generic_key").to_owned(),
                value: some("genericKey.value", &fixed.value)?,
            })
        }
        (None, Some(of), None, None) => {
            let name = &*of.header_name;
            if !is_token(name) && !PSEUDO_HEADERS.contains(&name) {
                return Err(format!(
                    "requestHeader.headerName: {name:?} is not a valid header name"
                ));
            }
            Ok(RateEntry::Header {
                name: name.to_ascii_lowercase(),
                key: some("requestHeader.descriptorKey", &of.descriptor_key)?,
            })
        }
        (None, None, Some(of), None) => {
            if of.headers.is_empty() {
                return Err("requestHeaderValueMatch.headers: expected at least 1 condition".to_owned());
            }
            let headers = of.headers.iter().enumerate().map(|(index, condition)| {
                let read = header(condition).and_then(|found| {
                    time.add_header(&found)?;
                    Ok(found)
                });
                read.map_err(|message| format!("requestHeaderValueMatch.headers[{index}]: {message}"))
            });
            Ok(RateEntry::Matching {
                headers: headers.collect::<Result<_, _>>()?,
                expected: of.expect_match,
                value: some("requestHeaderValueMatch.value", &of.value)?,
            })
        }
        (None, None, None, Some(_)) => Ok(RateEntry::ClientAddress),
        _ => Err(
            "exactly one of genericKey, requestHeader, requestHeaderValueMatch and remoteAddress is required"
                .to_owned(),
        ),
    }
}
