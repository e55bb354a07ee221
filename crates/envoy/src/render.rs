//! Resources as people and golden files read them.
//!
//! In: bytes of resources, or messages. Out: JSON values in protobuf's JSON form, with Envoy's own field names. It must
//! not know which resources there are: it follows the descriptors of Envoy's API.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;

/// What stands in the place of a secret.
const HIDDEN: &str = "(hidden)";

/// Fields whose content nobody is to see, wherever they stand.
const SECRET_FIELDS: [&str; 3] = ["private_key", "password", "pkcs12"];

/// Why something can't be shown.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The bytes are no message of their type.
    #[error("not one of Envoy's messages: {0}")]
    Decode(#[from] prost::DecodeError),
    /// A packed message is of a type that this crate doesn't make, or its bytes are none of its type.
    #[error("no JSON form: {0}")]
    Form(#[from] serde_json::Error),
    /// The message itself is of a type that this crate doesn't make.
    #[error("unknown type {0}")]
    Unknown(String),
}

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let bytes: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/envoy.desc"));
    DescriptorPool::decode(bytes).expect("the built-in descriptors are whole")
});

/// A resource for people: the bytes of a `google.protobuf.Any` with its type as `@type`, packed messages opened, and
/// fields in the order of their names. Private keys are hidden, and other bytes shown as text where they are text.
///
/// # Errors
/// If the bytes are not a resource made by this crate.
pub fn render(resource: &[u8]) -> Result<Value, RenderError> {
    let mut value = dynamic("google.protobuf.Any", resource)?;
    readable(&mut value);
    Ok(value)
}

/// A message for Envoy: nothing is hidden or changed.
///
/// # Errors
/// If the message, or one packed into it, is of a type that this crate doesn't make.
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
