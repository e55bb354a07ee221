//! XBackend (experimental, GEP-4894): a destination outside the cluster, or a set of pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::backend_tls_policy::BackendTlsValidation;
use crate::check::{self, Check};
use crate::meta::Meta;
use crate::named::Named;
use crate::object::resource;
use crate::open_enum::open_enum;
use crate::policy_status::PolicyStatus;
use crate::reference::SecretObjectReference;
use crate::session::SessionPersistence;

/// An XBackend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct XBackend {
    /// The metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// The spec.
    pub spec: XBackendSpec,
    /// The status, by ancestor; at most 32 entries.
    #[serde(default, skip_serializing_if = "PolicyStatus::is_empty")]
    pub status: PolicyStatus,
}

resource! { XBackend {
    fn check(&self) -> Check {
        check::at("spec", check::xbackend::spec(&self.spec))
    }

    fn references(&self, named: &mut Named) {
        named.by_backend(self);
    }
} }

/// The spec of an XBackend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendSpec {
    /// Which of the next two fields is set.
    #[serde(rename = "type")]
    pub type_: XBackendType,
    /// The external host; required with type ExternalHostname, not allowed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_hostname: Option<ExternalHostname>,
    /// The selected pods; required with type EndpointSelector, not allowed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_selector: Option<EndpointSelector>,
    /// The port of the host or of the pods.
    pub port: XBackendPort,
    /// The protocol; by default, the one that fits the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<BackendProtocol>,
    /// TLS for connections to the backend; none by default.
    #[serde(default)]
    pub tls: XBackendTls,
    /// Session persistence; only with type EndpointSelector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<SessionPersistence>,
}

open_enum! {
    /// The type of a backend.
    pub enum XBackendType {
        /// A host outside the cluster.
        ExternalHostname = "ExternalHostname",
        /// Pods in the XBackend's namespace.
        EndpointSelector = "EndpointSelector",
    }
}

/// A host outside the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExternalHostname {
    /// The fully qualified domain name.
    pub hostname: Arc<str>,
}

/// A selection of pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSelector {
    /// 1 to 64 labels, all of which a pod must have.
    pub match_labels: BTreeMap<String, String>,
}

/// The port of a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct XBackendPort {
    /// 1 to 65535.
    pub number: u16,
}

open_enum! {
    /// The protocol used with a backend.
    pub enum BackendProtocol {
        /// Bytes.
        Tcp = "TCP",
        /// HTTP of any version.
        Http = "HTTP",
        /// HTTP/2 over TLS.
        Http2 = "HTTP2",
        /// HTTP/1.1.
        Http11 = "HTTP11",
        /// HTTP/2 without TLS.
        H2c = "H2C",
        /// Model Context Protocol.
        Mcp = "MCP",
        /// gRPC.
        Grpc = "GRPC",
        /// WebSocket over TLS.
        Wss = "WSS",
    }
}

/// TLS for connections to a backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendTls {
    /// Whether TLS is used, and which side presents a certificate.
    pub mode: BackendTlsMode,
    /// Validation of the backend's certificate; not allowed with mode None, required otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<BackendTlsValidation>,
    /// The Secret with the client certificate; required with mode ClientAndServer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate_ref: Option<SecretObjectReference>,
}

open_enum! {
    /// Whether connections to a backend use TLS.
    #[derive(Default)]
    pub enum BackendTlsMode {
        /// No TLS.
        #[default]
        None = "None",
        /// TLS; the backend presents a certificate.
        ServerOnly = "ServerOnly",
        /// TLS; both sides present a certificate.
        ClientAndServer = "ClientAndServer",
    }
}
