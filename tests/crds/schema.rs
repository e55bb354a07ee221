//! The upstream CRDs as data: kinds, the places in their objects, and the schemas of those places.
//!
//! Reads the folder `SESAME_CRDS`, which has a subfolder for each channel, and one for XListenerSet.

use std::fmt;
use std::path::{Path as Folder, PathBuf};
use std::{env, fs, io};

use serde_json::Value;

/// The channels, named after their folders; `early` holds the kind from earlier releases.
pub(crate) const CHANNELS: [&str; 3] = ["standard", "experimental", "early"];

/// A version of a kind in a channel.
pub(crate) struct Crd {
    pub(crate) channel: &'static str,
    pub(crate) kind: String,
    /// The `apiVersion` of its objects.
    pub(crate) api_version: String,
    /// The OpenAPI schema of the whole object.
    pub(crate) schema: Value,
}

/// All versions of all kinds in all channels.
pub(crate) fn load() -> Vec<Crd> {
    let folder = env::var_os("SESAME_CRDS").map(PathBuf::from).expect(
        "SESAME_CRDS must name the folder with the Gateway API's CRDs (subfolders standard, experimental and early): `cargo xtask \
         test -- -p sesame-tests --test crds` fetches them and sets it",
    );
    let channels = CHANNELS.into_iter();
    channels
        .flat_map(|channel| read(&folder.join(channel), channel))
        .collect()
}

/// All versions of all kinds in the files of a folder.
pub(crate) fn read(folder: &Folder, channel: &'static str) -> Vec<Crd> {
    let mut crds = Vec::new();
    for text in files(folder) {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("a CRD file is YAML");
        for document in documents {
            if document["kind"] == "CustomResourceDefinition" {
                versions(channel, &document["spec"], &mut crds);
            }
        }
    }
    crds
}

fn files(folder: &Folder) -> Vec<String> {
    let unreadable = |e: io::Error| -> String { panic!("{}: {e}", folder.display()) };
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries
        .map(|entry| {
            let text = entry.and_then(|entry| fs::read_to_string(entry.path()));
            text.unwrap_or_else(unreadable)
        })
        .collect()
}

fn versions(channel: &'static str, spec: &Value, crds: &mut Vec<Crd>) {
    let text = |value: &Value| value.as_str().expect("a name is a string").to_owned();
    let group = text(&spec["group"]);
    let versions = spec["versions"].as_array().expect("a CRD has versions");
    for version in versions {
        crds.push(Crd {
            channel,
            kind: text(&spec["names"]["kind"]),
            api_version: format!("{group}/{}", text(&version["name"])),
            schema: version["schema"]["openAPIV3Schema"].clone(),
        });
    }
}

/// A step in a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A field with this name.
    Field(String),
    /// An element of a list.
    Item,
    /// A value of a mapping with arbitrary keys.
    Entry,
}

/// The path to a place, such as `spec.rules[].matches[].path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(pub(crate) Vec<Step>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if index > 0 => write!(f, ".{name}")?,
                Step::Field(name) => f.write_str(name)?,
                Step::Item => f.write_str("[]")?,
                Step::Entry => f.write_str("{}")?,
            }
        }
        Ok(())
    }
}

/// A place in an object.
pub(crate) struct Place<'a> {
    pub(crate) path: Path,
    /// The schema of the place.
    pub(crate) schema: &'a Value,
}

impl Crd {
    /// Every place under `spec` and `status`.
    pub(crate) fn places(&self) -> Vec<Place<'_>> {
        let mut places = Vec::new();
        for part in ["spec", "status"] {
            let schema = &self.schema["properties"][part];
            if schema.is_object() {
                collect(schema, &mut vec![Step::Field(part.to_owned())], &mut places);
            }
        }
        places
    }
}

fn collect<'a>(schema: &'a Value, path: &mut Vec<Step>, places: &mut Vec<Place<'a>>) {
    places.push(Place {
        path: Path(path.clone()),
        schema,
    });
    let fields = schema["properties"].as_object();
    let fields = fields.into_iter().flatten();
    let fields = fields.map(|(name, schema)| (Step::Field(name.clone()), schema));
    let items = schema.get("items").map(|schema| (Step::Item, schema));
    let entries = schema
        .get("additionalProperties")
        .map(|schema| (Step::Entry, schema));
    for (step, schema) in fields.chain(items).chain(entries) {
        path.push(step);
        collect(schema, path, places);
        path.pop();
    }
}

/// The value at a place in an object generated for that place: lists and mappings on its path have one entry.
pub(crate) fn at<'a>(object: &'a Value, path: &Path) -> Option<&'a Value> {
    path.0.iter().try_fold(object, |value, step| match step {
        Step::Field(name) => value.get(name),
        Step::Item => value.get(0),
        Step::Entry => value.as_object()?.values().next(),
    })
}

/// The bounds of a schema as text, without its children.
pub(crate) fn bounds(schema: &Value) -> String {
    let fields = schema.as_object().into_iter().flatten();
    let inner = [
        "description",
        "properties",
        "items",
        "x-kubernetes-validations",
    ];
    let fields = fields.filter(|(name, _)| !inner.contains(&name.as_str()));
    Value::Object(
        fields
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
    .to_string()
}
