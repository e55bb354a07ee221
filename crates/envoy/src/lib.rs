//! The model as Envoy resources.
