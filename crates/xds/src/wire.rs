//! The encoded `DeltaDiscoveryResponse`.
//!
//! The generated types hold resource bodies as `Vec<u8>`, so every stream would copy every resource before encoding it.
//! The types here have the same fields and encoding, but share the bodies.

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost::Message;
use prost::bytes::Bytes;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::session::Response;

/// The codec for the delta stream. Unlike `tonic_prost::ProstCodec`, it answers an undecodable request with
/// `INVALID_ARGUMENT`.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct DeltaCodec;

impl Codec for DeltaCodec {
    type Encode = DeltaResponse;
    type Decode = DeltaDiscoveryRequest;
    type Encoder = ProstEncoder<DeltaResponse>;
    type Decoder = DeltaCodec;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        *self
    }
}

impl Decoder for DeltaCodec {
    type Item = DeltaDiscoveryRequest;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        DeltaDiscoveryRequest::decode(bytes)
            .map(Some)
            .map_err(|error| Status::invalid_argument(format!("not a discovery request: {error}")))
    }
}

/// The part of an `envoy.config.cluster.v3.Cluster` that names its endpoints.
#[derive(Clone, PartialEq, prost::Message)]
struct Cluster {
    #[prost(message, optional, tag = "3")]
    eds_cluster_config: Option<EdsClusterConfig>,
}

/// The part of an `envoy.config.cluster.v3.Cluster.EdsClusterConfig` that names the endpoints.
#[derive(Clone, PartialEq, prost::Message)]
struct EdsClusterConfig {
    #[prost(string, tag = "2")]
    service_name: String,
}

/// A cluster's EDS service name; `None` if it is the cluster's own name.
pub(crate) fn endpoints_of(cluster: &Bytes) -> Option<String> {
    let eds = Cluster::decode(cluster.clone()).ok()?.eds_cluster_config?;
    (!eds.service_name.is_empty()).then_some(eds.service_name)
}

/// `envoy.service.discovery.v3.DeltaDiscoveryResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeltaResponse {
    #[prost(message, repeated, tag = "2")]
    resources: Vec<Resource>,
    #[prost(string, tag = "4")]
    type_url: String,
    #[prost(string, tag = "5")]
    nonce: String,
    #[prost(string, repeated, tag = "6")]
    removed_resources: Vec<String>,
}

/// `envoy.service.discovery.v3.Resource`.
#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(message, optional, tag = "2")]
    resource: Option<Any>,
    #[prost(string, tag = "3")]
    name: String,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

impl DeltaResponse {
    /// Uses variants of resources, where present, if `variants` is set.
    pub(crate) fn new(response: Response, variants: bool) -> DeltaResponse {
        let type_url = response.ty.type_url();
        let resources = response.upserts.iter().map(|resource| Resource {
            version: resource.version().to_string(),
            resource: Some(Any {
                type_url: type_url.to_owned(),
                value: resource.body_for(variants).clone(),
            }),
            name: resource.name().to_string(),
        });
        let removals = response.removals.iter();
        DeltaResponse {
            resources: resources.collect(),
            type_url: type_url.to_owned(),
            nonce: response.nonce,
            removed_resources: removals.map(|name| name.to_string()).collect(),
        }
    }

    /// Bytes of the resource bodies and of the removed names.
    pub(crate) fn payload_len(&self) -> usize {
        let bodies = self.resources.iter().flat_map(|sent| &sent.resource);
        let names = self.removed_resources.iter();
        bodies.map(|any| any.value.len()).sum::<usize>() + names.map(String::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{self, ResourceType};
    use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_generated_type_decodes_every_response(
            resources in prop::collection::vec((".{0,200}", prop::collection::vec(any::<u8>(), 0..300)), 0..4),
            removals in prop::collection::vec(".{0,20}", 0..3),
            nonce in "[0-9a-f]{0,16}",
            ty in prop::sample::select(ResourceType::ALL.to_vec()),
        ) {
            let response = Response {
                ty,
                nonce,
                upserts: resources
                    .into_iter()
                    .map(|(name, body)| resource::Resource::new(name, body))
                    .collect(),
                removals: removals.into_iter().map(Into::into).collect(),
            };
            let message = DeltaResponse::new(response.clone(), false);
            let read = DeltaDiscoveryResponse::decode(&message.encode_to_vec()[..]).unwrap();
            prop_assert_eq!(&read.type_url, ty.type_url());
            prop_assert_eq!(&read.nonce, &response.nonce);
            prop_assert_eq!(read.resources.len(), response.upserts.len());
            let mut payload = 0;
            for (read, sent) in read.resources.iter().zip(&response.upserts) {
                prop_assert_eq!(&read.name[..], &**sent.name());
                prop_assert_eq!(&read.version, &sent.version().to_string());
                let any = read.resource.as_ref().unwrap();
                prop_assert_eq!(&any.type_url, ty.type_url());
                prop_assert_eq!(&any.value[..], &sent.body()[..]);
                payload += any.value.len();
            }
            payload += response.removals.iter().map(|name| name.len()).sum::<usize>();
            prop_assert_eq!(message.payload_len(), payload);
            let removed: Vec<&str> = response.removals.iter().map(|name| &**name).collect();
            prop_assert_eq!(read.removed_resources, removed);
        }
    }
}
