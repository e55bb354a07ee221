//! HTTPProxies from text.

use sesame_api::HTTPProxy;

/// A value in YAML, indented as the code around it.
pub(super) fn yaml(text: &str) -> serde_json::Value {
    serde_saphyr::from_str(text).expect("valid YAML")
}

/// An HTTPProxy with this body.
pub(super) fn proxy(text: &str) -> HTTPProxy {
    let mut value = yaml(text);
    value["metadata"] = serde_json::json!({"name": "a", "namespace": "shop"});
    serde_json::from_value(value).expect("an HTTPProxy")
}
