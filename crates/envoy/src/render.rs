//! Renders resources as readable JSON.
//!
//! In: resource bytes, or messages. Out: protobuf JSON, with Envoy's own field names. It must not depend on
//! specific resource types: it follows the descriptors of Envoy's API.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;

/// Replacement for a secret.
const HIDDEN: &str = "(hidden)";

/// Fields that are hidden at any depth. A JWKS may contain symmetric keys.
const SECRET_FIELDS: [&str; 4] = ["private_key", "password", "pkcs12", "local_jwks"];

/// The field with the headers that authenticate Envoy; their values are hidden.
const CREDENTIALS: &str = "initial_metadata";

/// Why a message can't be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The bytes don't decode.
    #[error("not a valid Envoy message: {0}")]
    Decode(#[from] prost::DecodeError),
    /// A packed message doesn't decode or has an unknown type.
    #[error("cannot convert to JSON: {0}")]
    Form(#[from] serde_json::Error),
    /// The message type doesn't have a descriptor.
    #[error("unknown type {0}")]
    Unknown(String),
}

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let bytes: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/envoy.desc"));
    DescriptorPool::decode(bytes).expect("the built-in descriptors are valid")
});

/// Converts the bytes of a `google.protobuf.Any` to human-readable JSON: the type in `@type`, packed messages expanded,
/// fields sorted by name, private keys and credentials hidden, other bytes shown as text if they are UTF-8.
///
/// # Errors
/// If the bytes are not a resource built by this crate.
pub fn render(resource: &[u8]) -> Result<Value, RenderError> {
    let mut value = dynamic("google.protobuf.Any", resource)?;
    readable(&mut value);
    Ok(value)
}

/// Converts a message to JSON for Envoy: nothing is hidden.
///
/// # Errors
/// If this crate doesn't build messages of this type, or of the type of a message packed into this one.
pub fn to_json<M: Message + Name>(message: &M) -> Result<Value, RenderError> {
    dynamic(&M::full_name(), &message.encode_to_vec())
}

fn dynamic(name: &str, bytes: &[u8]) -> Result<Value, RenderError> {
    let descriptor = POOL
        .get_message_by_name(name)
        .ok_or_else(|| RenderError::Unknown(name.to_owned()))?;
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false);
    let message = DynamicMessage::decode(descriptor, bytes)?;
    Ok(message.serialize_with_options(serde_json::value::Serializer, &options)?)
}

fn readable(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if SECRET_FIELDS.contains(&name.as_str()) {
                    *field = serde_json::json!({ "inline_string": HIDDEN });
                } else if name == CREDENTIALS {
                    for header in field.as_array_mut().into_iter().flatten() {
                        header["value"] = HIDDEN.into();
                    }
                } else {
                    readable(field);
                }
            }
            let text = fields
                .get("inline_bytes")
                .and_then(Value::as_str)
                .and_then(|bytes| STANDARD.decode(bytes).ok())
                .and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some(text) = text {
                fields.remove("inline_bytes");
                fields.insert("inline_string".to_owned(), text.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(readable),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
