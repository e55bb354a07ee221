//! The access log of a listener, on standard output.
//!
//! In: [`ListenerSettings`]. Out: `AccessLog`. It must not depend on what is logged.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::accesslog::v3 as pb;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::{
    StdoutAccessLog, stdout_access_log,
};
use envoy_types::util::pack_any;
use pb::access_log_filter::FilterSpecifier;
use sesame_model::{AccessLogFormat, AccessLogLevel, ListenerSettings};

use crate::wire;

/// The default fields of JSON entries.
const FIELDS: &[(&str, &str)] = &[
    ("authority", "%REQ(:AUTHORITY)%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    (
        "connection_termination_details",
        "%CONNECTION_TERMINATION_DETAILS%",
    ),
    ("downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("duration", "%DURATION%"),
    ("method", "%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("protocol", "%PROTOCOL%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("start_time", "%START_TIME%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    (
        "upstream_transport_failure_reason",
        "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
    ),
    ("user_agent", "%REQ(USER-AGENT)%"),
    ("x_forwarded_for", "%REQ(X-FORWARDED-FOR)%"),
];

/// The access logs of a listener's requests or connections, if any.
pub(crate) fn access_log(settings: &ListenerSettings) -> Vec<pb::AccessLog> {
    let from = match settings.access_log {
        None | Some(AccessLogLevel::Disabled) => return Vec::new(),
        Some(AccessLogLevel::All) => None,
        Some(AccessLogLevel::Errors) => Some(400),
        Some(AccessLogLevel::Critical) => Some(500),
    };
    let config = match &settings.access_log_format {
        None | Some(AccessLogFormat::Text(None)) => pack_any(StdoutAccessLog::default()),
        Some(AccessLogFormat::Text(Some(text))) => pack_any(of_text(text)),
        Some(AccessLogFormat::Json(Some(fields))) => wire::json_access_log(fields),
        Some(AccessLogFormat::Json(None)) => {
            let fields = FIELDS.iter();
            let fields = fields.map(|&(name, format)| (name.to_owned(), format.to_owned()));
            wire::json_access_log(&BTreeMap::from_iter(fields))
        }
    };
    vec![pb::AccessLog {
        name: "stdout".to_owned(),
        filter: from.map(status_from),
        config_type: Some(pb::access_log::ConfigType::TypedConfig(config)),
    }]
}

/// One line per entry.
fn of_text(format: &str) -> StdoutAccessLog {
    let end = if format.ends_with('\n') { "" } else { "\n" };
    let text = core::DataSource {
        specifier: Some(core::data_source::Specifier::InlineString(format!(
            "{format}{end}"
        ))),
        ..Default::default()
    };
    let format = core::SubstitutionFormatString {
        format: Some(core::substitution_format_string::Format::TextFormatSource(
            text,
        )),
        ..Default::default()
    };
    StdoutAccessLog {
        access_log_format: Some(stdout_access_log::AccessLogFormat::LogFormat(format)),
    }
}

/// Only entries with a status of at least this.
fn status_from(status: u32) -> pb::AccessLogFilter {
    pb::AccessLogFilter {
        filter_specifier: Some(FilterSpecifier::StatusCodeFilter(pb::StatusCodeFilter {
            comparison: Some(pb::ComparisonFilter {
                op: pb::comparison_filter::Op::Ge.into(),
                value: Some(core::RuntimeUInt32 {
                    default_value: status,
                    runtime_key: "sesame.access_log.status".to_owned(),
                }),
            }),
        })),
    }
}
