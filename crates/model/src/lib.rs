//! What a gateway does, free of Kubernetes and of Envoy.
