//! Built-in Kubernetes kinds, with types from k8s-openapi.

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::check::{self, Check};
use crate::decode::{DecodeError, typed, without_found};
use crate::kind::Kind;
use crate::object::{Metadata, Resource};

/// Implements [`Resource`] for a k8s-openapi type, which serializes `apiVersion` and `kind` itself.
macro_rules! core_resource {
    ($type:ident { $($method:item)* }) => {
        impl Resource for $type {
            fn metadata(&self) -> Metadata<'_> {
                Metadata::Core(&self.metadata)
            }

            fn set_generation(&mut self, generation: i64) {
                self.metadata.generation = Some(generation);
            }

            fn write<S: Serializer>(&self, _: Kind, serializer: S) -> Result<S::Ok, S::Error> {
                self.serialize(serializer)
            }

            $($method)*
        }
    };
}

core_resource! { Namespace {} }

core_resource! { ClusterTrustBundle {} }

/// The maximum number of a Service's ports that are read; the others are ignored. An API server has no limit.
const MAX_PORTS: usize = 4_096;

core_resource! { Service {
    fn from_value(mut value: Value) -> Result<Box<Self>, DecodeError> {
        if let Some(Value::Array(ports)) = value.pointer_mut("/spec/ports") {
            ports.truncate(MAX_PORTS);
        }
        typed(value)
    }

    fn check(&self) -> Check {
        check::service(self)
    }
} }

core_resource! { EndpointSlice {
    fn check(&self) -> Check {
        check::endpoint_slice(self)
    }
} }

core_resource! { Secret {
    fn from_value(mut value: Value) -> Result<Box<Self>, DecodeError> {
        join_base64_lines(&mut value, "data");
        // Errors must not reveal a Secret's content.
        let mut secret: Box<Secret> = typed(value).map_err(without_found)?;
        // An API server does the same when it stores a Secret.
        if let Some(strings) = secret.string_data.take() {
            let data = secret.data.get_or_insert_default();
            let strings = strings.into_iter();
            data.extend(strings.map(|(key, text)| (key, ByteString(text.into_bytes()))));
        }
        Ok(secret)
    }
} }

core_resource! { ConfigMap {
    fn from_value(mut value: Value) -> Result<Box<Self>, DecodeError> {
        join_base64_lines(&mut value, "binaryData");
        typed(value)
    }
} }

/// Joins base64 that command-line tools wrap into lines.
fn join_base64_lines(value: &mut Value, field: &str) {
    let data = value.get_mut(field).and_then(Value::as_object_mut);
    for entry in data.into_iter().flat_map(Map::values_mut) {
        if let Value::String(text) = entry {
            text.retain(|c| c != '\n' && c != '\r');
        }
    }
}
