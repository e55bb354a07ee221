//! Decodes the text of a file into objects. Pure.
//!
//! In: text, and what is known about its objects. Out: objects, and errors with their location.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use sesame_api::{DecodeError, Kind, Object, ObjectKey, PathSegment};

use super::FilesConfig;
use super::error::{FileError, FileErrors};
use super::text::{self, Format, Lines};
use super::tree::{Document, Node, Step, SyntaxError, Value, shortened, shown};
use crate::fingerprint;

/// Maximum length of a message, in characters; messages may quote the file.
const MAX_MESSAGE: usize = 400;

/// Maximum length of a name (RFC 1123 as Kubernetes uses it).
const MAX_NAME: usize = 253;

/// The content of a file.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// Valid objects in file order. An object may occur twice.
    pub(super) found: Vec<Found>,
    /// Invalid objects of which the file has a last good version.
    pub(super) invalid: BTreeSet<ObjectKey>,
    /// Whether there is an invalid object or document whose name can't be read.
    pub(super) unnamed: bool,
    pub(super) errors: FileErrors,
}

/// A valid object.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) key: ObjectKey,
    /// `None` if its fingerprint is the [`Known`] one.
    pub(super) object: Option<Object>,
    /// Line and column, from 1.
    pub(super) location: (u32, u32),
    pub(super) created: Option<Timestamp>,
    pub(super) fingerprint: Fingerprint,
}

/// Hashes of an object's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    all: u64,
    /// Without `metadata`, `status` and `apiVersion`: an API server increments `metadata.generation` when anything else
    /// changes.
    pub(super) spec: u64,
}

/// What is known about an object before a file is parsed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    /// The fingerprint of the object in the previous version of the file. If it is unchanged, the object isn't decoded
    /// again.
    pub(super) fingerprint: Option<Fingerprint>,
    /// The creation time to use if the file has none.
    pub(super) created: Option<Timestamp>,
}

/// Parses the text of a file.
pub(super) fn parse(
    file: &Path,
    text: &str,
    format: Format,
    config: &FilesConfig,
    known: &dyn Fn(&ObjectKey) -> Known,
) -> Parsed {
    let mut reader = Reader {
        file,
        lines: Lines::new(text),
        config,
        known,
        parsed: Parsed::default(),
    };
    let end = text::documents(text, format, &config.limits, |document| {
        reader.document(document);
    });
    if let Err(error) = end {
        reader.error(None, error);
    }
    reader.parsed
}

struct Reader<'a> {
    file: &'a Path,
    lines: Lines<'a>,
    config: &'a FilesConfig,
    known: &'a dyn Fn(&ObjectKey) -> Known,
    parsed: Parsed,
}

impl Reader<'_> {
    fn error(&mut self, key: Option<&ObjectKey>, error: SyntaxError) {
        let stays = key.filter(|key| (self.known)(key).fingerprint.is_some());
        self.parsed.invalid.extend(stays.cloned());
        self.parsed.unnamed |= key.is_none();
        self.parsed.errors.push(|| {
            let message = shortened(&error.message, MAX_MESSAGE);
            let error = FileError::of_file(self.file, message)
                .at(self.lines.location(error.at))
                .about(key.cloned());
            match stays {
                Some(_) => error.hint("the last good version of the object stays in use"),
                None => error,
            }
        });
    }

    fn document(&mut self, document: Document) {
        match document.root {
            Ok(root) => self.node(&root, None, document.errors),
            Err(error) => {
                for error in document.errors.into_iter().chain([error]) {
                    self.error(None, error);
                }
            }
        }
    }

    /// Reads an object or a list of objects. `list_of` is the apiVersion and kind that a typed list gives its items.
    fn node(&mut self, node: &Node, list_of: Option<(&str, &str)>, errors: Vec<SyntaxError>) {
        let Value::Map(_) = node.value else {
            if !node.is_null() || !errors.is_empty() {
                let message = "not an object: expected a mapping with apiVersion and kind";
                self.error(None, SyntaxError::new(node.at, message));
            }
            return;
        };
        let inherited = |name, from: Option<&str>| match node.get(name) {
            Some(node) => node.as_str().map(str::to_owned),
            None => from.map(str::to_owned),
        };
        let api_version = inherited("apiVersion", list_of.map(|(version, _)| version));
        let kind = inherited("kind", list_of.map(|(_, kind)| kind));
        let (Some(api_version), Some(kind)) = (api_version, kind) else {
            return self.untyped(node, errors);
        };
        let known = Kind::from_api(&api_version, &kind)
            .filter(|kind| self.config.contour || !kind.is_of_contour());
        let items = node.get("items").filter(|items| !items.is_null());
        match (&known, kind.strip_suffix("List"), items.map(|i| &i.value)) {
            (None, Some(of), Some(Value::List(items))) => {
                let of = (!of.is_empty()).then_some((api_version.as_str(), of));
                return self.list(items, of, errors);
            }
            (None, Some(""), None) => return self.list(&[], None, errors),
            (None, Some(""), Some(_)) => {
                let at = items.map_or(node.at, |items| items.at);
                let error = SyntaxError::new(at, "`items` of a List must be a list");
                return self.error(None, error);
            }
            (None, _, _) => return self.unknown(node, &api_version, &kind),
            (Some(_), _, _) => {}
        }
        if let Some(kind) = known {
            self.object(node, kind, &api_version, errors);
        }
    }

    fn untyped(&mut self, node: &Node, mut errors: Vec<SyntaxError>) {
        let missing = ["apiVersion", "kind"]
            .into_iter()
            .find(|name| node.get(name).and_then(Node::as_str).is_none())
            .unwrap_or("kind");
        let at = node.get(missing).map_or(node.at, |node| node.at);
        let message = match node.get(missing) {
            Some(_) => format!("`{missing}` must be a string"),
            None => format!("`{missing}` is missing"),
        };
        errors.insert(0, SyntaxError::new(at, message));
        for error in errors {
            self.error(None, error);
        }
    }

    /// Reads the items of a list. An invalid item doesn't affect the others.
    fn list(&mut self, items: &[Node], of: Option<(&str, &str)>, errors: Vec<SyntaxError>) {
        let mut by_item: BTreeMap<usize, Vec<SyntaxError>> = BTreeMap::new();
        for error in errors {
            match items.partition_point(|item| item.at <= error.at) {
                0 => self.error(None, error),
                after => by_item.entry(after - 1).or_default().push(error),
            }
        }
        for (index, item) in items.iter().enumerate() {
            self.node(item, of, by_item.remove(&index).unwrap_or_default());
        }
    }

    /// Skips an object of an unknown kind, or reports an error if the kind or version looks misspelled.
    fn unknown(&mut self, node: &Node, api_version: &str, kind: &str) {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let meant = Kind::ALL
            .into_iter()
            .filter(|known| !known.is_of_contour())
            .find(|known| known.group() == group && known.as_str().eq_ignore_ascii_case(kind));
        let Some(meant) = meant else {
            return;
        };
        let (field, message) = if meant.as_str() == kind {
            let message = format!("unsupported version {} of {kind}", shown(api_version));
            ("apiVersion", message)
        } else {
            let message = format!("unknown kind `{}`: did you mean `{meant}`?", shown(kind));
            ("kind", message)
        };
        let at = node.locate([Step::Field(field)]);
        self.error(None, SyntaxError::new(at, message));
    }

    fn object(&mut self, node: &Node, kind: Kind, api_version: &str, errors: Vec<SyntaxError>) {
        let key = name_of(node, kind.namespaced())
            .map(|(namespace, name)| ObjectKey::new(kind, namespace, name));
        if !errors.is_empty() {
            for error in errors {
                self.error(key.as_ref(), error);
            }
            return;
        }
        let mut value = node.to_json();
        // Sesame counts generations itself, like an API server.
        if let Some(metadata) = value.get_mut("metadata").and_then(|m| m.as_object_mut()) {
            metadata.remove("generation");
            metadata.remove("managedFields");
        }
        // Items of typed lists omit these.
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".to_owned(), api_version.into());
            map.insert("kind".to_owned(), kind.as_str().into());
        }
        remove_nulls(&mut value);
        let fingerprint = Fingerprint::of(&value);
        let location = self.lines.location(node.at);
        let known = key.as_ref().map(self.known).unwrap_or_default();
        let created = creation_time(&mut value, known.created);
        let mut found = |key, object| {
            self.parsed.found.push(Found {
                key,
                object,
                location,
                created,
                fingerprint,
            });
        };
        match key {
            Some(key) if known.fingerprint == Some(fingerprint) => found(key, None),
            key => match Object::decode(value) {
                Ok(Some(mut object)) => {
                    let key = object.key();
                    if self.config.contour {
                        object.adopt_contour();
                    }
                    found(key, Some(object));
                }
                Ok(None) => {
                    let error = SyntaxError::new(node.at, "unsupported kind");
                    self.error(key.as_ref(), error);
                }
                Err(error) => self.undecodable(node, kind, key, error),
            },
        }
    }

    fn undecodable(&mut self, node: &Node, kind: Kind, key: Option<ObjectKey>, error: DecodeError) {
        let at = node.locate(error.path.iter().map(|segment| match segment {
            PathSegment::Field(name) => Step::Field(name),
            PathSegment::Index(index) => Step::Index(*index),
        }));
        let path = error.path_text();
        let message = if kind == Kind::Secret && holds_data(&error.path) {
            "invalid value: `data` takes base64, `stringData` takes plain text".to_owned()
        } else {
            error.message
        };
        let message = if path.is_empty() {
            message
        } else {
            format!("{path}: {message}")
        };
        self.error(error.key.or(key).as_ref(), SyntaxError::new(at, message));
    }
}

impl Fingerprint {
    fn of(object: &serde_json::Value) -> Self {
        let fields = object.as_object().into_iter().flatten();
        let spec = fields
            .filter(|(name, _)| !["metadata", "status", "apiVersion"].contains(&name.as_str()));
        Self {
            all: fingerprint::of(object),
            spec: fingerprint::of(&spec.collect::<BTreeMap<_, _>>()),
        }
    }
}

/// Removes null fields, as an API server does.
fn remove_nulls(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        serde_json::Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        _ => {}
    }
}

/// Returns an object's creation time. If it has none, sets the `known` one.
fn creation_time(value: &mut serde_json::Value, known: Option<Timestamp>) -> Option<Timestamp> {
    let metadata = value.get_mut("metadata")?.as_object_mut()?;
    match metadata.get("creationTimestamp") {
        Some(written) => written.as_str()?.parse().ok(),
        None => {
            let text = known?.to_string().into();
            metadata.insert("creationTimestamp".to_owned(), text);
            known
        }
    }
}

/// Whether a field of a Secret is confidential, so that messages must not quote it.
fn holds_data(path: &[PathSegment]) -> bool {
    matches!(path.first(), Some(PathSegment::Field(name)) if name == "data" || name == "stringData")
}

/// The key of an object that may be invalid otherwise.
fn name_of(node: &Node, namespaced: bool) -> Option<(&str, &str)> {
    let metadata = node.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    let namespace = match metadata.get("namespace") {
        _ if !namespaced => "",
        None => "default",
        Some(node) if node.is_null() => "default",
        Some(node) => match node.as_str()? {
            "" => "default",
            namespace => namespace,
        },
    };
    let valid = |text: &str| {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
        text.len() <= MAX_NAME && text.bytes().all(allowed)
    };
    (valid(name) && valid(namespace)).then_some((namespace, name))
}

#[cfg(test)]
mod tests;
