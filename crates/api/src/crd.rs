//! The CRDs of Sesame's own kinds, generated from their types.
//!
//! In: the table of kinds, and the schemas that `schemars` derives. Out: CustomResourceDefinitions as JSON. Field docs become
//! descriptions, and attributes become bounds. The crate's own checks apply the same rules to objects from files; `tests/crds`
//! compares them with the CRDs.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::configuration::SesameConfiguration;
use crate::extension_service::ExtensionService;
use crate::http_proxy::HTTPProxy;
use crate::kind::Kind;
use crate::tls_certificate_delegation::TLSCertificateDelegation;

/// The parts of a CRD besides the schema.
struct Definition {
    kind: Kind,
    /// Additional names for `kubectl`, besides the singular and the plural.
    short_names: &'static [&'static str],
    /// The columns of `kubectl get`: titles and paths. All columns are strings.
    columns: &'static [(&'static str, &'static str)],
    /// The status of an object that Sesame hasn't read yet.
    initial_status: Option<Value>,
    /// Mappings with the default `{}`. Without the default, server-side apply of an empty mapping over a mapping with
    /// fields fails if no field remains.
    always_present: &'static [&'static str],
}

/// The CRDs.
pub fn definitions() -> Vec<Value> {
    let http_proxy = Definition {
        kind: Kind::HTTPProxy,
        short_names: &["proxy", "proxies"],
        columns: &[
            ("FQDN", ".spec.virtualhost.fqdn"),
            ("TLS Secret", ".spec.virtualhost.tls.secretName"),
            ("Status", ".status.currentStatus"),
            ("Status Description", ".status.description"),
        ],
        initial_status: Some(json!({
            "currentStatus": "NotReconciled",
            "description": "Waiting for Sesame",
        })),
        always_present: &[],
    };
    let delegation = Definition {
        kind: Kind::TLSCertificateDelegation,
        short_names: &["tlscerts"],
        columns: &[],
        initial_status: None,
        always_present: &[],
    };
    let extension_service = Definition {
        kind: Kind::ExtensionService,
        short_names: &[],
        columns: &[],
        initial_status: None,
        always_present: &[],
    };
    let configuration = Definition {
        kind: Kind::SesameConfiguration,
        short_names: &["sesameconfig"],
        columns: &[
            ("Controller", ".spec.gateway.controllerName"),
            (
                "Accepted",
                ".status.conditions[?(@.type==\"Accepted\")].status",
            ),
            (
                "Programmed",
                ".status.conditions[?(@.type==\"Programmed\")].status",
            ),
            (
                "Available",
                ".status.conditions[?(@.type==\"Available\")].status",
            ),
        ],
        initial_status: None,
        always_present: &["/properties/spec/properties/envoy/properties/networkPublishing"],
    };
    vec![
        definition::<ExtensionService>(&extension_service),
        definition::<HTTPProxy>(&http_proxy),
        definition::<SesameConfiguration>(&configuration),
        definition::<TLSCertificateDelegation>(&delegation),
    ]
}

fn definition<T: JsonSchema>(of: &Definition) -> Value {
    let info = of.kind.info();
    let group = of.kind.group();
    let columns = of
        .columns
        .iter()
        .map(|(title, path)| json!({"name": title, "type": "string", "jsonPath": path}))
        .chain([json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})]);
    let mut names = json!({
        "kind": info.name,
        "listKind": format!("{}List", info.name),
        "plural": info.plural,
        "singular": info.name.to_lowercase(),
    });
    if !of.short_names.is_empty() {
        names["shortNames"] = json!(of.short_names);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{group}", info.plural),
            // Removing the chart doesn't remove users' objects.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": group,
            "names": names,
            "scope": if info.namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": info.versions[0],
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns.collect::<Vec<_>>(),
                "schema": {"openAPIV3Schema": object_schema::<T>(of)},
            }],
        },
    })
}

/// The schema of a kind's objects.
fn object_schema<T: JsonSchema>(of: &Definition) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    make_structural(&mut schema);
    let fields = &mut schema["properties"];
    fields["apiVersion"] = json!({
        "type": "string",
        "description": "The version of the object's schema.",
    });
    fields["kind"] = json!({"type": "string", "description": "The kind of the object."});
    fields["metadata"] = json!({"type": "object"});
    if let Some(status) = &of.initial_status {
        fields["status"]["default"] = status.clone();
    }
    for pointer in of.always_present {
        let mapping = schema.pointer_mut(pointer);
        mapping.expect("the schema has the field")["default"] = json!({});
    }
    schema
}

/// The schema of `metadata`, which API servers define.
pub(crate) fn metadata(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object"})
}

/// The schema of a [`Duration`](crate::Duration).
pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"})
}

/// Replaces the CEL rule of header conditions with an equivalent without CEL: an API server estimates the cost of a CEL rule
/// from the maximum lengths of all enclosing lists.
pub(crate) fn one_of_matchers(conditions: &mut Schema) {
    const FLAGS: [&str; 2] = ["present", "notpresent"];
    const TEXTS: [&str; 5] = ["contains", "notcontains", "exact", "notexact", "regex"];
    let Some(Value::Object(condition)) = conditions.get_mut("items") else {
        return;
    };
    condition.remove(RULES);
    let flags =
        FLAGS.map(|name| json!({"required": [name], "properties": {name: {"enum": [true]}}}));
    let texts = TEXTS.map(|name| json!({"required": [name]}));
    let matchers: Vec<Value> = flags.into_iter().chain(texts).collect();
    condition.insert("oneOf".to_owned(), Value::Array(matchers));
}

/// The keyword for CEL rules.
const RULES: &str = "x-kubernetes-validations";

/// Makes a schema and its nested schemas structural, as API servers require.
fn make_structural(schema: &mut Value) {
    let Some(keywords) = schema.as_object_mut() else {
        return;
    };
    drop_null(keywords);
    keywords.remove("title");
    // API servers drop unknown fields.
    if keywords.get("additionalProperties") == Some(&Value::Bool(false)) {
        keywords.remove("additionalProperties");
    }
    if keywords.get("default").is_some_and(is_empty) {
        keywords.remove("default");
    }
    if let Some(Value::String(text)) = keywords.get_mut("description") {
        // Lines of a doc comment are one paragraph.
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    bound_integers(keywords);
    if let Some(Value::Object(fields)) = keywords.get_mut("properties") {
        fields.values_mut().for_each(make_structural);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = keywords.get_mut(inner) {
            make_structural(inner);
        }
    }
}

/// Removes null: optional fields are omitted instead.
fn drop_null(keywords: &mut Map<String, Value>) {
    if let Some(Value::Array(choices)) = keywords.remove("anyOf") {
        let inner = choices.into_iter().find(|choice| choice["type"] != "null");
        if let Some(Value::Object(inner)) = inner {
            for (keyword, value) in inner {
                keywords.entry(keyword).or_insert(value);
            }
        }
    }
    if let Some(Value::Array(types)) = keywords.get_mut("type") {
        types.retain(|name| name != "null");
        if types.len() == 1 {
            keywords["type"] = keywords["type"][0].take();
        }
    }
    if let Some(Value::Array(words)) = keywords.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
}

/// Replaces the formats of unsigned integers, which API servers don't support, with bounds.
fn bound_integers(keywords: &mut Map<String, Value>) {
    let (format, max) = match keywords.get("format").and_then(Value::as_str) {
        Some("uint8") => ("int32", i64::from(u8::MAX)),
        Some("uint16") => ("int32", i64::from(u16::MAX)),
        Some("uint32") => ("int64", i64::from(u32::MAX)),
        _ => return,
    };
    keywords.insert("format".to_owned(), json!(format));
    if keywords.contains_key("enum") {
        keywords.remove("minimum");
        keywords.remove("maximum");
        return;
    }
    keywords.entry("minimum").or_insert(json!(0));
    let bound = keywords.entry("maximum").or_insert(json!(max));
    if bound.as_i64().is_none_or(|bound| bound > max) {
        *bound = json!(max);
    }
}

/// Whether a default is redundant.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls a function with the path and the keywords of each nested schema.
    fn walk(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Map<String, Value>)) {
        let keywords = schema.as_object().unwrap();
        visit(path, keywords);
        let fields = keywords.get("properties").and_then(Value::as_object);
        for (name, field) in fields.into_iter().flatten() {
            walk(&format!("{path}.{name}"), field, visit);
        }
        for (name, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
            if let Some(inner) = keywords.get(name) {
                walk(&format!("{path}{suffix}"), inner, visit);
            }
        }
    }

    fn each_schema(visit: &mut dyn FnMut(&str, &Map<String, Value>)) {
        for definition in definitions() {
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
            walk(kind, schema, visit);
        }
    }

    #[test]
    fn schemas_are_structural() {
        const KEYWORDS: [&str; 22] = [
            "additionalProperties",
            "default",
            "description",
            "enum",
            "format",
            "items",
            "maxItems",
            "maxLength",
            "maxProperties",
            "maximum",
            "minItems",
            "minLength",
            "minProperties",
            "minimum",
            "oneOf",
            "pattern",
            "properties",
            "required",
            "type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-list-type",
            RULES,
        ];
        each_schema(&mut |path, keywords| {
            assert!(keywords["type"].is_string(), "{path}");
            let other = keywords
                .keys()
                .find(|name| !KEYWORDS.contains(&name.as_str()));
            assert_eq!(other, None, "{path}");
            let format = keywords
                .get("format")
                .map(|format| format.as_str().unwrap());
            let known = format.is_none_or(|name| ["int32", "int64", "date-time"].contains(&name));
            assert!(known, "{path}: {format:?}");
        });
    }

    #[test]
    fn every_field_has_a_description() {
        each_schema(&mut |path, keywords| {
            let fields = keywords.get("properties").and_then(Value::as_object);
            for (name, field) in fields.into_iter().flatten() {
                let text = field["description"].as_str().unwrap_or_default();
                let complete = text.ends_with('.') && !text.contains("[`");
                assert!(complete || name == "metadata", "{path}.{name}: {text:?}");
            }
        });
    }

    #[test]
    fn every_list_of_a_spec_has_a_maximum() {
        // Without a maximum, an API server assumes millions of items, and rejects rules for them as too expensive.
        each_schema(&mut |path, keywords| {
            let bounded = keywords["type"] != "array" || keywords.contains_key("maxItems");
            assert!(bounded || path.contains(".status"), "{path}");
        });
    }

    #[test]
    fn all_own_kinds_have_a_definition() {
        let own = Kind::ALL
            .iter()
            .filter(|kind| kind.group() == "projectsesame.io");
        let defined = definitions().len();
        assert_eq!(own.count(), defined);
    }
}
