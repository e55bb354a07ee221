//! The messages of the delta protocol.
//!
//! The generated types hold resource bodies as `Vec<u8>`, so every stream would copy every resource before encoding it.
//! They also decode each field of a request, of which some take a hundred times the memory of their encoding. The types
//! here have the same encoding, but share the bodies of resources, and skip what the server doesn't read.

use std::collections::HashMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use prost::bytes::Bytes;
use prost::encoding::{self, DecodeContext};
use prost::{DecodeError, Message};
use tonic::Status;

use crate::config::Limits;
use crate::grpc;
use crate::session::Response;

/// The size at which a part of an encoded response ends, in bytes.
const PART_BYTES: usize = 32 << 10;
/// The maximum number of fields of a node, which include Envoy's extensions: several hundred.
const NODE_FIELDS: usize = 4_096;
/// The number of names of a request that a stream processes at once.
const BATCH: usize = 1_000;

/// `envoy.service.discovery.v3.DeltaDiscoveryRequest`, without the fields that the server doesn't read.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeltaRequest {
    #[prost(string, tag = "2")]
    pub(crate) type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) resource_names_subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) resource_names_unsubscribe: Vec<String>,
    #[prost(map = "string, string", tag = "5")]
    pub(crate) initial_resource_versions: HashMap<String, String>,
    #[prost(string, tag = "6")]
    pub(crate) response_nonce: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) error_detail: Option<ErrorDetail>,
}

/// The part of a client's first request that contains the client.
#[derive(Clone, PartialEq, prost::Message)]
struct First {
    /// An encoded [`Node`].
    #[prost(bytes = "bytes", optional, tag = "1")]
    node: Option<Bytes>,
}

/// `google.rpc.Status`, without the fields that the server doesn't read.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ErrorDetail {
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

impl DeltaRequest {
    /// Decodes a request.
    pub(crate) fn read(mut encoded: &[u8], limits: &Limits) -> Result<DeltaRequest, Status> {
        // Subscribed, unsubscribed and initial names, and the other fields.
        let limit = 3 * limits.names + 16;
        if fields(encoded).map_err(undecodable)? > limit {
            return Err(Status::resource_exhausted(format!(
                "the request has more than {limit} fields"
            )));
        }
        DeltaRequest::decode(&mut encoded).map_err(undecodable)
    }

    /// Decodes the client in its first request.
    pub(crate) fn read_node(encoded: &[u8], limits: &Limits) -> Result<Node, Status> {
        let missing = "the first request has no node; node.cluster must name the fleet";
        let node = First::decode(encoded).map_err(undecodable)?.node;
        let node = node.ok_or_else(|| Status::invalid_argument(missing))?;
        let limit = limits.node_bytes;
        if node.len() > limit || fields(&node).map_err(undecodable)? > NODE_FIELDS {
            return Err(Status::resource_exhausted(format!(
                "the node has more than {limit} bytes or {NODE_FIELDS} fields"
            )));
        }
        Node::decode(&node[..]).map_err(undecodable)
    }

    /// Splits a request with many names, as if the client had sent several, of which each takes little time. If it is the
    /// `first` of its type, names that come with versions stay together; otherwise, versions have no meaning.
    pub(crate) fn batches(mut self, first: bool) -> impl Iterator<Item = DeltaRequest> {
        if !first {
            self.initial_resource_versions.clear();
        }
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let mut request = rest.take()?;
            let (subscribe, unsubscribe) = (
                &mut request.resource_names_subscribe,
                &mut request.resource_names_unsubscribe,
            );
            let batch = match request.initial_resource_versions.is_empty() {
                true => split_last(subscribe, BATCH),
                false => std::mem::take(subscribe),
            };
            let left = match subscribe.is_empty() {
                true => BATCH.saturating_sub(batch.len()),
                false => 0,
            };
            let batch = DeltaRequest {
                type_url: request.type_url.clone(),
                resource_names_subscribe: batch,
                resource_names_unsubscribe: split_last(unsubscribe, left),
                initial_resource_versions: std::mem::take(&mut request.initial_resource_versions),
                response_nonce: std::mem::take(&mut request.response_nonce),
                error_detail: request.error_detail.take(),
            };
            if !subscribe.is_empty() || !unsubscribe.is_empty() {
                rest = Some(request);
            }
            Some(batch)
        })
    }
}

/// The last names, at most this many.
fn split_last(names: &mut Vec<String>, number: usize) -> Vec<String> {
    names.split_off(names.len().saturating_sub(number))
}

fn undecodable(error: DecodeError) -> Status {
    Status::invalid_argument(format!("not a discovery request: {error}"))
}

/// The number of fields of a message.
fn fields(mut message: &[u8]) -> Result<usize, DecodeError> {
    let mut fields = 0;
    while !message.is_empty() {
        let (tag, wire_type) = encoding::decode_key(&mut message)?;
        encoding::skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
        fields += 1;
    }
    Ok(fields)
}

/// The parts of an `envoy.config.cluster.v3.Cluster` that warming it depends on.
#[derive(Clone, PartialEq, prost::Message)]
struct Cluster {
    #[prost(message, optional, tag = "3")]
    eds_cluster_config: Option<EdsClusterConfig>,
    /// Each an `envoy.config.core.v3.HealthCheck`.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    health_checks: Vec<Bytes>,
}

/// The part of an `envoy.config.cluster.v3.Cluster.EdsClusterConfig` that names the endpoints.
#[derive(Clone, PartialEq, prost::Message)]
struct EdsClusterConfig {
    #[prost(string, tag = "2")]
    service_name: String,
}

/// What a cluster needs to be warm.
#[derive(Debug, Default)]
pub(crate) struct Warming {
    /// The EDS service name; `None` if it is the cluster's own name.
    pub(crate) endpoints: Option<String>,
    /// Whether it waits for the first health check of each endpoint.
    pub(crate) checked: bool,
}

/// What a cluster needs to be warm.
pub(crate) fn warming(cluster: &Bytes) -> Warming {
    let Ok(cluster) = Cluster::decode(cluster.clone()) else {
        return Warming::default();
    };
    let name = cluster.eds_cluster_config.map(|eds| eds.service_name);
    Warming {
        endpoints: name.filter(|name| !name.is_empty()),
        checked: !cluster.health_checks.is_empty(),
    }
}

/// The same endpoints, of which the cluster checks none.
pub(crate) fn unchecked(endpoints: &crate::Resource) -> Option<crate::Resource> {
    let mut body = ClusterLoadAssignment::decode(endpoints.body().clone()).ok()?;
    let localities = body.endpoints.iter_mut();
    for host in localities.flat_map(|locality| &mut locality.lb_endpoints) {
        if let Some(HostIdentifier::Endpoint(endpoint)) = &mut host.host_identifier {
            let config = endpoint.health_check_config.get_or_insert_default();
            config.disable_active_health_check = true;
        }
    }
    let name = Arc::clone(endpoints.name());
    Some(crate::Resource::new(name, body.encode_to_vec()))
}

/// The same secret with this many newlines after its certificates. Envoy ignores a secret with the bytes that it has, even if
/// it has rejected them.
pub(crate) fn with_newlines(secret: &crate::Resource, count: u64) -> Option<crate::Resource> {
    let mut body = Secret::decode(secret.body().clone()).ok()?;
    let certificates = match body.r#type.as_mut()? {
        secret::Type::TlsCertificate(certificate) => certificate.certificate_chain.as_mut(),
        secret::Type::ValidationContext(context) => context.trusted_ca.as_mut(),
        _ => None,
    };
    let Some(Specifier::InlineBytes(pem)) = &mut certificates?.specifier else {
        return None;
    };
    pem.extend((0..count).map(|_| b'\n'));
    Some(secret.with_body(body.encode_to_vec()))
}

/// `envoy.service.discovery.v3.DeltaDiscoveryResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct DeltaResponse {
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

impl Response {
    /// Bytes of the resource bodies and of the removed names. Uses variants of resources, where present, if `variants` is
    /// set.
    pub(crate) fn payload_len(&self, variants: bool) -> usize {
        let bodies = self.upserts.iter();
        let bodies = bodies.map(|resource| resource.body_for(variants).len());
        let names = self.removals.iter();
        bodies.sum::<usize>() + names.map(|name| name.len()).sum::<usize>()
    }

    /// Encodes the response, with its gRPC prefix, in parts. Each is encoded when it is needed, so a response that isn't
    /// read takes little memory.
    pub(crate) fn into_parts(self, variants: bool) -> impl Iterator<Item = Bytes> {
        let fields = (0..).map_while(|number| self.field(number, variants));
        let length = fields.map(|field| field.encoded_len()).sum();
        let mut part = grpc::prefix(length);
        let mut fields = (0..).map_while(move |number| self.field(number, variants));
        std::iter::from_fn(move || {
            while part.len() < PART_BYTES
                && let Some(field) = fields.next()
            {
                field.encode_raw(&mut part);
            }
            (!part.is_empty()).then(|| std::mem::take(&mut part).freeze())
        })
    }

    /// The message in pieces: its encoding is that of all pieces.
    fn field(&self, number: usize, variants: bool) -> Option<DeltaResponse> {
        let type_url = self.ty.type_url();
        let Some(number) = number.checked_sub(1) else {
            return Some(DeltaResponse {
                type_url: type_url.to_owned(),
                nonce: self.nonce.clone(),
                ..DeltaResponse::default()
            });
        };
        if let Some(resource) = self.upserts.get(number) {
            let resource = Resource {
                version: resource.version().to_string(),
                resource: Some(Any {
                    type_url: type_url.to_owned(),
                    value: resource.body_for(variants).clone(),
                }),
                name: resource.name().to_string(),
            };
            return Some(DeltaResponse {
                resources: vec![resource],
                ..DeltaResponse::default()
            });
        }
        let name = self.removals.get(number - self.upserts.len())?;
        Some(DeltaResponse {
            removed_resources: vec![name.to_string()],
            ..DeltaResponse::default()
        })
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
            resources in prop::collection::vec((".{0,200}", prop::collection::vec(any::<u8>(), 0..20_000)), 0..6),
            removals in prop::collection::vec(".{1,20}", 0..3_000),
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
            let parts: Vec<Bytes> = response.clone().into_parts(false).collect();
            prop_assert!(parts.iter().rev().skip(1).all(|part| part.len() >= PART_BYTES));
            let largest = response.upserts.iter().map(|resource| resource.body().len()).max();
            prop_assert!(parts.iter().all(|part| part.len() <= PART_BYTES + largest.unwrap_or(0) + 1_000));
            let encoded = parts.concat();
            let (prefix, encoded) = encoded.split_at(grpc::PREFIX);
            prop_assert_eq!(prefix, &grpc::prefix(encoded.len())[..]);
            let read = DeltaDiscoveryResponse::decode(encoded).unwrap();
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
            prop_assert_eq!(response.payload_len(false), payload);
            let removed: Vec<&str> = response.removals.iter().map(|name| &**name).collect();
            prop_assert_eq!(read.removed_resources, removed);
        }
    }

    fn names(number: usize) -> Vec<String> {
        (0..number).map(|name| name.to_string()).collect()
    }

    proptest! {
        #[test]
        fn batches_are_small_and_have_everything(
            subscribe in 0..3 * BATCH,
            unsubscribe in 0..3 * BATCH,
        ) {
            let request = DeltaRequest {
                type_url: "type".to_owned(),
                resource_names_subscribe: names(subscribe),
                resource_names_unsubscribe: names(unsubscribe),
                response_nonce: "nonce".to_owned(),
                ..DeltaRequest::default()
            };
            let (mut subscribed, mut unsubscribed) = (Vec::new(), Vec::new());
            for (number, batch) in request.batches(true).enumerate() {
                let length = batch.resource_names_subscribe.len() + batch.resource_names_unsubscribe.len();
                prop_assert!(length <= BATCH && (length > 0 || number == 0));
                prop_assert_eq!(batch.response_nonce.is_empty(), number > 0);
                prop_assert_eq!(batch.type_url, "type");
                prop_assert!(batch.resource_names_subscribe.is_empty() || unsubscribed.is_empty());
                subscribed.extend(batch.resource_names_subscribe);
                unsubscribed.extend(batch.resource_names_unsubscribe);
            }
            for (mut batched, number) in [(subscribed, subscribe), (unsubscribed, unsubscribe)] {
                let mut sent = names(number);
                sent.sort();
                batched.sort();
                prop_assert_eq!(batched, sent);
            }
        }
    }

    #[test]
    fn names_stay_together_with_their_versions() {
        let versions = names(2 * BATCH)
            .into_iter()
            .map(|name| (name, "1".to_owned()));
        let request = DeltaRequest {
            resource_names_subscribe: names(2 * BATCH),
            resource_names_unsubscribe: names(1),
            initial_resource_versions: versions.collect(),
            ..DeltaRequest::default()
        };
        let batches: Vec<DeltaRequest> = request.batches(true).collect();
        let [first, second] = &batches[..] else {
            panic!("{} batches", batches.len());
        };
        assert_eq!(first.resource_names_subscribe.len(), 2 * BATCH);
        assert_eq!(first.initial_resource_versions.len(), 2 * BATCH);
        assert_eq!(second.resource_names_unsubscribe, ["0"]);
    }

    /// Fields of two bytes each, of which some take a hundred times as much once they are decoded.
    #[test]
    fn a_request_with_many_fields_is_not_decoded() {
        let limits = Limits::default();
        let refusal = DeltaRequest::read(&[0x1a, 0].repeat(400_000), &limits).unwrap_err();
        assert_eq!(refusal.message(), "the request has more than 300016 fields");
        let node = [0x4a, 0].repeat(5_000);
        let mut request = Vec::new();
        encoding::bytes::encode(1, &node, &mut request);
        let refusal = DeltaRequest::read_node(&request, &limits).unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::ResourceExhausted);
        // Otherwise, the node isn't decoded.
        assert_eq!(
            DeltaRequest::read(&request, &limits).unwrap(),
            DeltaRequest::default()
        );
    }
}
