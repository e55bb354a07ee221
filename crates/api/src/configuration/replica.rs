//! Settings for the replicas of Sesame itself: their servers, leader election and logs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::open_enum::open_enum;
use crate::skip::is_default;

/// The xDS server, from which Envoys get their configuration over mutual TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct XdsConfiguration {
    /// The IP address that the server listens on; all addresses by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub address: Option<Arc<str>>,
    /// The port that the server listens on; 18000 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 65535)))]
    pub port: Option<u16>,
    /// The DNS name at which the Envoys that Sesame runs reach the server; by default, that of the Service `sesame-xds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub advertised_host: Option<Arc<str>>,
    /// The port at which they reach it; `port` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 65535)))]
    pub advertised_port: Option<u16>,
}

/// A server for Sesame's metrics alone. Without this section, `/metrics` is on the port of the probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MetricsConfiguration {
    /// The IP address that the server listens on; all addresses by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub address: Option<Arc<str>>,
    /// The port that the server listens on.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 65535)))]
    pub port: u16,
}

/// The election of the replica that writes statuses and manages Envoys. The others take over when its Lease expires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderElectionConfiguration {
    /// Whether there is no election, and every replica leads. This requires a single replica.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disabled: bool,
    /// The time after which another replica takes over a Lease that isn't renewed, in whole seconds; `10s` by default, `60s`
    /// at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub lease_duration: Option<Duration>,
    /// The time after which a leader that can't renew its Lease stops leading; `8s` by default. At least a second shorter
    /// than `leaseDuration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub renew_deadline: Option<Duration>,
    /// The time between two renewals; `2s` by default. At most half of `renewDeadline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub retry_period: Option<Duration>,
}

/// The logs of Sesame, on standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LoggingConfiguration {
    /// The format; by default, as the flag `--log-format` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<LoggingFormat>,
    /// The level; by default, as the flag `--log-level` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LoggingLevel>,
}

open_enum! {
    /// A log format of Sesame.
    pub enum LoggingFormat {
        /// A JSON object per line.
        Json = "json",
        /// Lines of text.
        Text = "text",
    }
}

open_enum! {
    /// A log level of Sesame.
    pub enum LoggingLevel {
        /// Errors.
        Error = "error",
        /// Possible problems.
        Warn = "warn",
        /// Normal events.
        Info = "info",
        /// Details for debugging.
        Debug = "debug",
        /// All messages.
        Trace = "trace",
    }
}

open_enum! {
    /// Whether Contour's objects and annotations are read as Sesame's own.
    pub enum ContourCompatMode {
        /// No.
        Disabled = "Disabled",
        /// Yes, but their statuses, and those of Ingresses, are left to Contour.
        Read = "Read",
        /// Yes, and their statuses are written.
        Write = "Write",
    }
}
