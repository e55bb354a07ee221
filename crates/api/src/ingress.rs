//! Ingress and IngressClass, without the fields that Sesame doesn't read.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::decode::DecodeError;
use crate::http_proxy::LoadBalancerStatus;
use crate::key::NamespacedName;
use crate::meta::Meta;
use crate::named::{self, Named};
use crate::object::resource;
use crate::open_enum::open_enum;

/// An Ingress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ingress {
    /// The metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// The spec.
    #[serde(default)]
    pub spec: IngressSpec,
    /// The status.
    #[serde(default, skip_serializing_if = "IngressStatus::is_empty")]
    pub status: IngressStatus,
}

resource! { Ingress {
    fn check(&self) -> Check {
        check::at("spec", check::ingress::spec(&self.spec))
    }

    fn references(&self, named: &mut Named) {
        named.by_ingress(self);
    }
} }

impl Ingress {
    /// The annotation with the namespace of the Secrets that `spec.tls` refers to.
    pub const TLS_NAMESPACE: &str = "projectsesame.io/tls-cert-namespace";

    /// The Secret that an entry of `spec.tls` refers to; `None` if it is not a valid name.
    pub fn tls_secret(&self, name: &str) -> Option<NamespacedName> {
        let name = NamespacedName::new(self.tls_namespace(), name);
        named::is_valid(&name).then_some(name)
    }

    /// The namespace of the Secrets that `spec.tls` refers to: the Ingress's own, unless an annotation sets another.
    fn tls_namespace(&self) -> Arc<str> {
        match self.meta.annotations.get(Self::TLS_NAMESPACE) {
            Some(namespace) if !namespace.is_empty() => namespace.as_str().into(),
            _ => Arc::clone(&self.meta.namespace),
        }
    }
}

/// The spec of an Ingress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressSpec {
    /// The IngressClass; an annotation may set it instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_class_name: Option<Arc<str>>,
    /// The backend for requests that no rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_backend: Option<IngressBackend>,
    /// The certificates for hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls: Vec<IngressTls>,
    /// The rules, one or more for each host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<IngressRule>,
    /// The limit that the spec exceeded when it was decoded, with the field. Its paths then have no backends; if that wasn't
    /// enough, it has no paths, and the default backend is empty.
    #[serde(skip)]
    pub exceeded: Option<Arc<DecodeError>>,
}

/// The certificate for some hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressTls {
    /// The hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Arc<str>>,
    /// The Secret with the certificate and its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<Arc<str>>,
}

/// The paths of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IngressRule {
    /// The host, which may start with `*.`; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
    /// The paths; without them, all requests go to the default backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<IngressHttp>,
}

/// The paths of a rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IngressHttp {
    /// The paths; at least one.
    pub paths: Vec<IngressPath>,
}

/// A path and its backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressPath {
    /// The path; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Arc<str>>,
    /// How the path is compared with request paths.
    pub path_type: IngressPathType,
    /// The backend.
    pub backend: IngressBackend,
}

open_enum! {
    /// How request paths are compared.
    pub enum IngressPathType {
        /// The whole path.
        Exact = "Exact",
        /// The leading segments.
        Prefix = "Prefix",
        /// As the controller decides.
        ImplementationSpecific = "ImplementationSpecific",
    }
}

/// A backend: exactly one of `service` and `resource`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IngressBackend {
    /// A Service in the Ingress's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<IngressService>,
    /// An object of any other kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Box<IngressResource>>,
}

/// A backend Service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IngressService {
    /// The name.
    pub name: Arc<str>,
    /// The port.
    #[serde(default)]
    pub port: IngressServicePort,
}

/// The port of a Service: exactly one of its number and its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IngressServicePort {
    /// The number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i32>,
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
}

/// A backend that is not a Service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressResource {
    /// The API group; the core group if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<Arc<str>>,
    /// The kind.
    pub kind: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// The status of an Ingress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressStatus {
    /// Addresses that clients connect to.
    #[serde(default)]
    pub load_balancer: LoadBalancerStatus,
}

impl IngressStatus {
    /// Whether every field is empty.
    pub fn is_empty(&self) -> bool {
        *self == IngressStatus::default()
    }
}

/// An IngressClass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IngressClass {
    /// The metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// The spec.
    #[serde(default)]
    pub spec: IngressClassSpec,
}

resource! { IngressClass {
    fn check(&self) -> Check {
        check::at("spec", check::ingress::class(&self.spec))
    }
} }

impl IngressClass {
    /// The annotation that marks the default class, for Ingresses without a class.
    pub const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
}

/// The spec of an IngressClass, without its parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IngressClassSpec {
    /// The name of the controller that serves the class; immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<Arc<str>>,
}
