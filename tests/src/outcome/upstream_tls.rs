//! TLS to endpoints whose certificates are verified.

use serde_json::Value;

use super::{Constants, Fields};
use crate::yaml::Node;

/// The server name, the names in the certificate, the CAs and the client certificate; then the other fields.
pub(super) fn verified(socket: &Value, constants: &mut Constants) -> Option<Node> {
    let mut socket = socket.clone();
    let context = socket
        .pointer_mut("/typed_config/common_tls_context")?
        .as_object_mut()?;
    let mut out = Vec::new();
    let mut rest = Vec::new();
    let certificates = context.remove("tls_certificate_sds_secret_configs");
    let mut validation = if let Some(combined) = context.remove("combined_validation_context") {
        let mut combined = Fields::of(combined);
        let secret = combined.take("validation_context_sds_secret_config")?;
        out.push(("CAs".to_owned(), from_source(secret, constants, &mut rest)));
        let validation = combined.take("default_validation_context")?;
        combined.rest(&mut rest);
        Fields::of(validation)
    } else {
        let mut validation = Fields::of(context.remove("validation_context")?);
        let authorities = validation.take("trusted_ca").unwrap_or_default();
        out.push(("CAs".to_owned(), Node::from(authorities)));
        validation
    };
    let names = validation.list("match_typed_subject_alt_names");
    let names = names.into_iter().map(|name| {
        let mut fields = Fields::of(name.clone());
        let type_ = fields.text("san_type");
        let exact = name.pointer("/matcher/exact").and_then(Value::as_str);
        let only_exact = name["matcher"]
            .as_object()
            .is_some_and(|matcher| matcher.len() == 1);
        match exact {
            Some(exact) if only_exact => Node::text(format!("{type_} {exact}")),
            _ => Node::from(name),
        }
    });
    out.push(("names".to_owned(), Node::List(names.collect())));
    validation.rest(&mut rest);
    let certificates = certificates.as_ref().and_then(Value::as_array);
    for certificate in certificates.into_iter().flatten() {
        let name = from_source(certificate.clone(), constants, &mut rest);
        out.push(("client certificate".to_owned(), name));
    }
    let sni = socket["typed_config"]
        .as_object_mut()
        .and_then(|config| config.remove("sni"));
    out.push(("sni".to_owned(), Node::from(sni.unwrap_or_default())));
    out.append(&mut rest);
    Fields::of(socket).rest(&mut out);
    Some(Node::Map(out))
}

/// The name of a secret.
fn from_source(secret: Value, constants: &mut Constants, rest: &mut Vec<(String, Node)>) -> Node {
    let mut secret = Fields::of(secret);
    let name = Node::text(secret.text("name"));
    let source = Value::Object(secret.0);
    if !constants.is("source of certificates", &source) {
        rest.push(("source".to_owned(), Node::from(source)));
    }
    name
}
