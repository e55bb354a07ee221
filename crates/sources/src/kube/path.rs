//! Names and paths of resources in the Kubernetes API.

use sesame_api::Kind;

/// The name of a resource with its group, as in RBAC rules and CRDs: `httproutes.gateway.networking.k8s.io`.
pub(super) fn full_resource(kind: Kind) -> String {
    match kind.group() {
        "" => kind.plural().to_owned(),
        group => format!("{}.{group}", kind.plural()),
    }
}

/// The path of a collection: all objects of a kind, or those in one namespace.
pub(super) fn collection(kind: Kind, version: &str, namespace: Option<&str>) -> String {
    let root = match kind.group() {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    let resource = kind.plural();
    match namespace {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{resource}"),
        None => format!("{root}/{resource}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_the_kubernetes_api() {
        assert_eq!(
            collection(Kind::Secret, "v1", Some("a")),
            "/api/v1/namespaces/a/secrets"
        );
        assert_eq!(
            collection(Kind::TLSRoute, "v1alpha2", None),
            "/apis/gateway.networking.k8s.io/v1alpha2/tlsroutes"
        );
        assert_eq!(full_resource(Kind::Namespace), "namespaces");
        assert_eq!(
            full_resource(Kind::EndpointSlice),
            "endpointslices.discovery.k8s.io"
        );
    }
}
