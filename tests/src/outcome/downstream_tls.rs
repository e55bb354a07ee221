//! TLS with clients.

use serde_json::Value;

use super::{Constants, Fields};
use crate::yaml::Node;

/// The certificates and the client validation; then the other fields.
pub(super) fn transport_socket(
    mut socket: Value,
    constants: &mut Constants,
    out: &mut Vec<(String, Node)>,
) {
    let context = &mut socket["typed_config"]["common_tls_context"];
    let secrets = context["tls_certificate_sds_secret_configs"].take();
    let mut names = Vec::new();
    for secret in secrets.as_array().cloned().unwrap_or_default() {
        names.extend(sds(secret, constants));
    }
    out.push(("certificates".to_owned(), Node::List(names)));
    if let Some(clients) = clients(&mut socket["typed_config"], constants) {
        out.push(("clients".to_owned(), clients));
    }
    if !constants.is("downstream TLS", &socket) {
        out.push(("transport_socket".to_owned(), Node::from(socket)));
    }
}

/// A secret's name, and its source unless that is the usual one.
fn sds(secret: Value, constants: &mut Constants) -> Vec<Node> {
    let mut secret = Fields::of(secret);
    let name = Node::text(secret.text("name"));
    let source = Value::Object(secret.0);
    match constants.is("source of certificates", &source) {
        true => vec![name],
        false => vec![name, Node::from(source)],
    }
}

/// Client validation: CAs, whether certificates are required, and other settings.
fn clients(config: &mut Value, constants: &mut Constants) -> Option<Node> {
    const SECRET: &str = "validation_context_sds_secret_config";
    let config = config.as_object_mut()?;
    let required = config.remove("require_client_certificate");
    let context = config.get_mut("common_tls_context")?.as_object_mut()?;
    let inline = context.remove("validation_context");
    let combined = context.remove("combined_validation_context");
    let mut combined = combined.map(Fields::of);
    let authorities = match &mut combined {
        Some(combined) => combined.take(SECRET),
        None => context.remove(SECRET),
    };
    if authorities.is_none() && inline.is_none() {
        return None;
    }
    let authorities = authorities.map_or_else(Vec::new, |secret| sds(secret, constants));
    let mut out = vec![
        ("CAs".to_owned(), Node::List(authorities)),
        (
            "required".to_owned(),
            Node::from(required.unwrap_or(false.into())),
        ),
    ];
    if let Some(combined) = combined.or(inline.map(Fields::of)) {
        combined.rest(&mut out);
    }
    Some(Node::Map(out))
}
