//! The Secrets and ConfigMaps that an object refers to.
//!
//! In: an object. Out: keys. Purely syntactic: ignores ReferenceGrants and whether targets exist.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::backend_tls_policy::{BackendTLSPolicy, BackendTlsValidation};
use crate::check::{self, is_precise_hostname};
use crate::configuration::SesameConfiguration;
use crate::extension_service::ExtensionService;
use crate::gateway::{Gateway, GatewayTls};
use crate::gateway_class::GatewayClass;
use crate::http_proxy::{HTTPProxy, HttpProxyVirtualHost, UpstreamValidation};
use crate::ingress::Ingress;
use crate::key::{NamespacedName, ObjectKey};
use crate::kind::{Kind, Object};
use crate::listener::{FrontendTls, Listener};
use crate::xbackend::XBackend;

/// Every Secret and ConfigMap that an object refers to: listener certificates, the client certificate for backends, CA
/// certificates and parameters. Sorted and unique, with namespaces filled in.
///
/// Omits references to other kinds, and references without a namespace in cluster-scoped objects.
pub fn references(object: &Object) -> Vec<ObjectKey> {
    let mut named = Named::default();
    object.resource().references(&mut named);
    named.0.into_iter().collect()
}

/// The Secret that a reference names: `name`, in the given namespace, or `namespace/name`. `None` if it is not a valid name.
pub fn secret_name(namespace: &Arc<str>, reference: &str) -> Option<NamespacedName> {
    let (namespace, name) = match reference.split_once('/') {
        Some((namespace, name)) => (namespace.into(), name),
        None => (Arc::clone(namespace), reference),
    };
    let name = NamespacedName::new(namespace, name);
    is_valid(&name).then_some(name)
}

/// Whether an object can have this name. Names become parts of URLs.
pub(crate) fn is_valid(name: &NamespacedName) -> bool {
    check::is_label(&name.namespace) && is_precise_hostname(&name.name)
}

/// The Secrets and ConfigMaps found so far.
#[derive(Default)]
pub(crate) struct Named(BTreeSet<ObjectKey>);

impl Named {
    pub(crate) fn by_class(&mut self, class: &GatewayClass) {
        if let Some(parameters) = &class.spec.parameters_ref
            && let Some(namespace) = &parameters.namespace
        {
            self.add(parameters.known_kind(), parameters.resolve(namespace));
        }
    }

    pub(crate) fn by_configuration(&mut self, configuration: &SesameConfiguration) {
        let spec = &configuration.spec;
        let proxies = spec.http_proxy.as_ref();
        let fallback = proxies.and_then(|proxies| proxies.fallback_certificate.as_ref());
        for secret in fallback.into_iter().chain(&spec.client_certificate) {
            self.add(Some(Kind::Secret), secret.key());
        }
    }

    pub(crate) fn by_gateway(&mut self, gateway: &Gateway) {
        let namespace = &gateway.meta.namespace;
        self.by_listeners(namespace, &gateway.spec.listeners);
        if let Some(tls) = &gateway.spec.tls {
            self.by_tls(namespace, tls);
        }
        let infrastructure = gateway.spec.infrastructure.as_ref();
        if let Some(parameters) = infrastructure.and_then(|i| i.parameters_ref.as_ref()) {
            let name = NamespacedName::new(namespace.clone(), parameters.name.clone());
            self.add(parameters.known_kind(), name);
        }
    }

    pub(crate) fn by_listeners(&mut self, namespace: &Arc<str>, listeners: &[Listener]) {
        for tls in listeners
            .iter()
            .filter_map(|listener| listener.tls.as_ref())
        {
            for certificate in &tls.certificate_refs {
                self.add(certificate.known_kind(), certificate.resolve(namespace));
            }
        }
    }

    fn by_tls(&mut self, namespace: &Arc<str>, tls: &GatewayTls) {
        let client = tls.backend.as_ref();
        if let Some(certificate) = client.and_then(|b| b.client_certificate_ref.as_ref()) {
            self.add(certificate.known_kind(), certificate.resolve(namespace));
        }
        if let Some(frontend) = &tls.frontend {
            self.by_frontend(namespace, frontend);
        }
    }

    fn by_frontend(&mut self, namespace: &Arc<str>, frontend: &FrontendTls) {
        let of_ports = frontend.per_port.iter().map(|port| &port.tls);
        let validations = std::iter::once(&frontend.default)
            .chain(of_ports)
            .filter_map(|tls| tls.validation.as_ref());
        for authority in validations.flat_map(|validation| &validation.ca_certificate_refs) {
            self.add(authority.known_kind(), authority.resolve(namespace));
        }
    }

    pub(crate) fn by_policy(&mut self, policy: &BackendTLSPolicy) {
        self.by_validation(&policy.meta.namespace, &policy.spec.validation);
    }

    pub(crate) fn by_backend(&mut self, backend: &XBackend) {
        let (namespace, tls) = (&backend.meta.namespace, &backend.spec.tls);
        if let Some(validation) = &tls.validation {
            self.by_validation(namespace, validation);
        }
        if let Some(certificate) = &tls.client_certificate_ref {
            self.add(certificate.known_kind(), certificate.resolve(namespace));
        }
    }

    pub(crate) fn by_http_proxy(&mut self, proxy: &HTTPProxy) {
        let (namespace, spec) = (&proxy.meta.namespace, &proxy.spec);
        if let Some(host) = &spec.virtual_host {
            self.by_virtual_host(namespace, host);
        }
        let of_routes = spec.routes.iter().flat_map(|route| &route.services);
        let of_connections = spec.tcp_proxy.iter().flat_map(|tcp| &tcp.services);
        for service in of_routes.chain(of_connections) {
            self.by_upstream_validation(namespace, service.validation.as_deref());
        }
    }

    pub(crate) fn by_extension_service(&mut self, extension: &ExtensionService) {
        let validation = extension.spec.validation.as_deref();
        self.by_upstream_validation(&extension.meta.namespace, validation);
    }

    fn by_virtual_host(&mut self, namespace: &Arc<str>, host: &HttpProxyVirtualHost) {
        if let Some(tls) = &host.tls {
            let clients = tls.client_validation.as_deref();
            let authority = clients.and_then(|clients| clients.ca_secret.as_deref());
            let revoked = clients.and_then(|clients| clients.crl_secret.as_deref());
            let secrets = [tls.secret_name.as_deref(), authority, revoked];
            for secret in secrets.into_iter().flatten() {
                self.secret(namespace, secret);
            }
        }
        for provider in &host.jwt_providers {
            if let Some(local) = &provider.local_jwks {
                self.secret(namespace, &local.secret_name);
            }
            let remote = provider.remote_jwks.as_deref();
            let validation = remote.and_then(|remote| remote.validation.as_deref());
            self.by_upstream_validation(namespace, validation);
        }
    }

    pub(crate) fn by_ingress(&mut self, ingress: &Ingress) {
        let entries = ingress.spec.tls.iter();
        let names = entries.filter_map(|tls| tls.secret_name.as_deref());
        for secret in names.filter_map(|name| ingress.tls_secret(name)) {
            self.add(Some(Kind::Secret), secret);
        }
    }

    fn by_upstream_validation(
        &mut self,
        namespace: &Arc<str>,
        validation: Option<&UpstreamValidation>,
    ) {
        if let Some(validation) = validation {
            self.secret(namespace, &validation.ca_secret);
        }
    }

    /// Adds a Secret that is named as `name` or `namespace/name`.
    fn secret(&mut self, namespace: &Arc<str>, reference: &str) {
        if let Some(name) = secret_name(namespace, reference) {
            self.add(Some(Kind::Secret), name);
        }
    }

    fn by_validation(&mut self, namespace: &Arc<str>, validation: &BackendTlsValidation) {
        for authority in &validation.ca_certificate_refs {
            let name = NamespacedName::new(namespace.clone(), authority.name.clone());
            self.add(authority.known_kind(), name);
        }
    }

    fn add(&mut self, kind: Option<Kind>, name: NamespacedName) {
        if let Some(kind @ (Kind::Secret | Kind::ConfigMap)) = kind
            && is_valid(&name)
        {
            self.0.insert(name.of_kind(kind));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    fn of(kind: &str, changes: &[(&str, serde_json::Value)]) -> Vec<String> {
        let object = fixtures::decode(fixtures::with(kind, changes)).unwrap();
        references(&object)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn all_references_of_a_gateway_are_found() {
        let parameters = json!({"group": "", "kind": "ConfigMap", "name": "small"});
        assert_eq!(
            of("Gateway", &[]),
            [
                "Secret/certs/cert",
                "Secret/certs/client",
                "ConfigMap/certs/ca"
            ]
        );
        assert_eq!(
            of(
                "Gateway",
                &[("/spec/infrastructure/parametersRef", parameters)]
            ),
            [
                "Secret/certs/cert",
                "Secret/certs/client",
                "ConfigMap/certs/ca",
                "ConfigMap/infra/small"
            ]
        );
        // For one port, in the Gateway's own namespace.
        let authority = json!([{"group": "", "kind": "ConfigMap", "name": "own"}]);
        let of_port = "/spec/tls/frontend/perPort/0/tls/validation/caCertificateRefs";
        assert!(of("Gateway", &[(of_port, authority)]).contains(&"ConfigMap/infra/own".to_owned()));
    }

    #[test]
    fn references_of_other_kinds_are_found() {
        assert_eq!(of("ListenerSet", &[]), ["Secret/shop/shop"]);
        assert_eq!(of("XListenerSet", &[]), ["Secret/shop/shop"]);
        assert_eq!(of("BackendTLSPolicy", &[]), ["ConfigMap/shop/ca"]);
        assert_eq!(
            of("XBackend", &[]),
            ["Secret/certs/client", "ConfigMap/shop/ca"]
        );
        assert_eq!(
            of("HTTPProxy", &[]),
            [
                "Secret/certs/revoked",
                "Secret/certs/shop",
                "Secret/shop/backend-ca",
                "Secret/shop/clients",
                "Secret/shop/db-ca",
                "Secret/shop/issuer-ca",
                "Secret/shop/keys"
            ]
        );
        assert_eq!(of("ExtensionService", &[]), ["Secret/auth/check-ca"]);
        assert_eq!(of("Ingress", &[]), ["Secret/shop/shop"]);
        let annotations = json!({"projectsesame.io/tls-cert-namespace": "certs"});
        assert_eq!(
            of("Ingress", &[("/metadata/annotations", annotations)]),
            ["Secret/certs/shop"]
        );
        assert_eq!(of("HTTPRoute", &[]), [""; 0]);
        let reference = |value| [("/spec/parametersRef", value)];
        assert_eq!(of("GatewayClass", &[]), [""; 0]);
        let there = json!({"group": "", "kind": "ConfigMap", "name": "p", "namespace": "ns"});
        assert_eq!(of("GatewayClass", &reference(there)), ["ConfigMap/ns/p"]);
        let nowhere = json!({"group": "", "kind": "ConfigMap", "name": "p"});
        assert_eq!(of("GatewayClass", &reference(nowhere)), [""; 0]);
    }

    #[test]
    fn a_reference_to_a_secret_may_have_a_namespace() {
        let of = |reference| secret_name(&"shop".into(), reference).map(|name| name.to_string());
        assert_eq!(of("a").as_deref(), Some("shop/a"));
        assert_eq!(of("certs/a").as_deref(), Some("certs/a"));
        for invalid in [
            "",
            "/a",
            "certs/",
            "certs/a/b",
            "certs/a?b",
            "A",
            "..",
            "a.b/c",
        ] {
            assert_eq!(of(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn names_that_no_object_can_have_are_not_references() {
        let paths = json!({"projectsesame.io/tls-cert-namespace": "victim/services/shop?x="});
        let of_annotation = of("Ingress", &[("/metadata/annotations", paths)]);
        assert_eq!(of_annotation, [""; 0]);
        for name in ["../../nodes", "a?watch=true", "a/b", "a#", "A"] {
            let certificate = [("/spec/tls/0/secretName", json!(name))];
            assert_eq!(of("Ingress", &certificate), [""; 0], "{name}");
            let certificates = json!([{ "name": name }]);
            let certificates = [("/spec/listeners/0/tls/certificateRefs", certificates)];
            assert_eq!(of("ListenerSet", &certificates), [""; 0], "{name}");
        }
    }

    #[test]
    fn repeated_references_are_found_once_and_other_kinds_are_left_out() {
        let certificates = json!([
            {"name": "b"}, {"name": "a"}, {"name": "b"}, {"group": "example.com", "kind": "Vault", "name": "c"},
            {"group": "example.com", "kind": "Secret", "name": "d"}, {"kind": "Service", "name": "e"},
        ]);
        assert_eq!(
            of(
                "ListenerSet",
                &[("/spec/listeners/0/tls/certificateRefs", certificates)]
            ),
            ["Secret/shop/a", "Secret/shop/b"]
        );
    }
}
