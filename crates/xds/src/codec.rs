//! Responses as bytes.
//!
//! In: a [`Response`] of shared resources. Out: an encoded `DeltaDiscoveryResponse`.
//! It must not know: who it is for.
//!
//! The message is written by hand, since the generated type would have every stream copy every
//! resource into a value of its own before encoding it; so they are copied once, into the send buffer.

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost::Message;
use prost::bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::resource::Resource;
use crate::session::Response;

// The numbers of the fields, from envoy/service/discovery/v3/discovery.proto.
const RESPONSE_RESOURCES: u32 = 2;
const RESPONSE_TYPE_URL: u32 = 4;
const RESPONSE_NONCE: u32 = 5;
const RESPONSE_REMOVED: u32 = 6;
const RESOURCE_VERSION: u32 = 1;
const RESOURCE_ANY: u32 = 2;
const RESOURCE_NAME: u32 = 3;
// google/protobuf/any.proto.
const ANY_TYPE_URL: u32 = 1;
const ANY_VALUE: u32 = 2;

fn head(field: u32, len: usize, out: &mut impl BufMut) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}

fn field(field: u32, bytes: &[u8], out: &mut impl BufMut) {
    head(field, bytes.len(), out);
    out.put_slice(bytes);
}

fn field_len(field: u32, len: usize) -> usize {
    key_len(field) + encoded_len_varint(len as u64) + len
}

fn any_len(type_url: &str, resource: &Resource) -> usize {
    field_len(ANY_TYPE_URL, type_url.len()) + field_len(ANY_VALUE, resource.body().len())
}

fn encode_resource(type_url: &str, resource: &Resource, out: &mut impl BufMut) {
    let version = resource.version().to_string();
    let any_len = any_len(type_url, resource);
    let len = field_len(RESOURCE_VERSION, version.len())
        + field_len(RESOURCE_ANY, any_len)
        + field_len(RESOURCE_NAME, resource.name().len());
    head(RESPONSE_RESOURCES, len, out);
    field(RESOURCE_VERSION, version.as_bytes(), out);
    head(RESOURCE_ANY, any_len, out);
    field(ANY_TYPE_URL, type_url.as_bytes(), out);
    field(ANY_VALUE, resource.body(), out);
    field(RESOURCE_NAME, resource.name().as_bytes(), out);
}

/// Writes a response as an encoded `DeltaDiscoveryResponse`.
pub(crate) fn encode(response: &Response, out: &mut impl BufMut) {
    let type_url = response.ty.type_url();
    for resource in &response.upserts {
        encode_resource(type_url, resource, out);
    }
    field(RESPONSE_TYPE_URL, type_url.as_bytes(), out);
    field(RESPONSE_NONCE, response.nonce.as_bytes(), out);
    for name in &response.removals {
        field(RESPONSE_REMOVED, name.as_bytes(), out);
    }
}

/// The codec of the delta stream, as the server sees it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct DeltaCodec;

impl Codec for DeltaCodec {
    type Encode = Response;
    type Decode = DeltaDiscoveryRequest;
    type Encoder = DeltaCodec;
    type Decoder = DeltaCodec;

    fn encoder(&mut self) -> Self::Encoder {
        *self
    }

    fn decoder(&mut self) -> Self::Decoder {
        *self
    }
}

impl Encoder for DeltaCodec {
    type Item = Response;
    type Error = Status;

    fn encode(&mut self, item: Response, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        encode(&item, out);
        Ok(())
    }
}

impl Decoder for DeltaCodec {
    type Item = DeltaDiscoveryRequest;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        DeltaDiscoveryRequest::decode(bytes)
            .map(Some)
            .map_err(|error| Status::invalid_argument(format!("not a request: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceType;
    use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
    use proptest::prelude::*;

    proptest! {
        /// The generated type reads what is written here.
        #[test]
        fn the_protocols_own_type_reads_it(
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
                    .map(|(name, body)| Resource::new(name, body))
                    .collect(),
                removals: removals.into_iter().map(Into::into).collect(),
            };
            let mut bytes = Vec::new();
            encode(&response, &mut bytes);
            let read = DeltaDiscoveryResponse::decode(&bytes[..]).unwrap();
            prop_assert_eq!(&read.type_url, ty.type_url());
            prop_assert_eq!(&read.nonce, &response.nonce);
            prop_assert_eq!(read.resources.len(), response.upserts.len());
            for (read, sent) in read.resources.iter().zip(&response.upserts) {
                prop_assert_eq!(&read.name[..], &**sent.name());
                prop_assert_eq!(&read.version, &sent.version().to_string());
                let any = read.resource.as_ref().unwrap();
                prop_assert_eq!(&any.type_url, ty.type_url());
                prop_assert_eq!(&any.value[..], &sent.body()[..]);
            }
            let removed: Vec<&str> = response.removals.iter().map(|name| &**name).collect();
            prop_assert_eq!(read.removed_resources, removed);
        }
    }
}
