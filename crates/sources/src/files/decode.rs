//! The text of one file as objects.
//!
//! In: text, and what is known of the objects already. Out: [`Parsed`]: objects, what is broken and
//! where, and how much was none of ours. Pure: no file is opened here and no clock read.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use sesame_api::{DecodeError, Kind, Object, ObjectKey, PathSegment};

use super::fingerprint::{Fingerprint, fingerprint};
use super::limits::Limits;
use super::problem::Problem;
use super::text::{self, Format, Lines};
use super::tree::{Document, Fault, Node, Step, Value, shortened, shown};

/// Characters of a message; it may repeat what is in the file.
const LONGEST_MESSAGE: usize = 400;

/// Characters of a name (RFC 1123 as Kubernetes uses it).
const LONGEST_NAME: usize = 253;

/// What was found in a file.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// Good objects in the order of the file. The same object may occur twice.
    pub(super) found: Vec<Found>,
    /// What is broken, in the order of the file.
    pub(super) broken: Vec<Broken>,
    /// How many objects were skipped because nothing here reads their kind, by `apiVersion/kind`.
    pub(super) skipped: BTreeMap<String, usize>,
}

/// A good object.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) key: ObjectKey,
    /// The object, or nothing if it is the one that [`Before::same`] knows.
    pub(super) object: Option<Object>,
    /// Line and column, counted from 1.
    pub(super) place: (u32, u32),
    /// When it was made: as the file says, else as [`Before::created`] does.
    pub(super) created: Option<Timestamp>,
    pub(super) fingerprint: Fingerprint,
}

/// An object or document that can't be used.
#[derive(Debug)]
pub(super) struct Broken {
    /// Which object it is, if that can be told.
    pub(super) key: Option<ObjectKey>,
    pub(super) problem: Problem,
}

/// What is known of objects before a file is read.
pub(super) trait Before {
    /// Whether this file's object is already known with this content, so that decoding can be left out.
    fn same(&self, key: &ObjectKey, content: Fingerprint) -> bool;
    /// When an object was made whose file doesn't say.
    fn created(&self, key: &ObjectKey) -> Option<Timestamp>;
}

/// Reads the text of the file that is called `file`.
pub(super) fn parse(
    file: &Path,
    text: &str,
    format: Format,
    limits: &Limits,
    before: &dyn Before,
) -> Parsed {
    let mut reader = Reader {
        file,
        lines: Lines::new(text),
        before,
        parsed: Parsed::default(),
    };
    let end = text::documents(text, format, limits, |document| reader.document(document));
    if let Err(fault) = end {
        reader.fault(None, fault);
    }
    reader.parsed
}

struct Reader<'a> {
    file: &'a Path,
    lines: Lines<'a>,
    before: &'a dyn Before,
    parsed: Parsed,
}

impl Reader<'_> {
    fn fault(&mut self, key: Option<ObjectKey>, fault: Fault) {
        let place = self.lines.position(fault.at);
        let message = shortened(&fault.message, LONGEST_MESSAGE);
        let problem = Problem::of_file(self.file, message)
            .at(place)
            .about(key.clone());
        self.parsed.broken.push(Broken { key, problem });
    }

    fn document(&mut self, document: Document) {
        match document.root {
            Ok(root) => self.node(&root, None, document.faults),
            Err(fault) => self.fault(None, fault),
        }
    }

    /// Reads an object or a list of objects. `list_of` is what a typed list says of its items.
    fn node(&mut self, node: &Node, list_of: Option<(&str, &str)>, faults: Vec<Fault>) {
        let Value::Map(_) = node.value else {
            if !node.is_null() || !faults.is_empty() {
                let message = "this is no object: an object is a mapping with apiVersion and kind";
                self.fault(None, Fault::new(node.at, message));
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
            return self.nameless(node, faults);
        };
        let known = Kind::from_api(&api_version, &kind);
        let items = node.get("items").filter(|items| !items.is_null());
        match (&known, kind.strip_suffix("List"), items.map(|i| &i.value)) {
            (None, Some(of), Some(Value::List(items))) => {
                let of = (!of.is_empty()).then_some((api_version.as_str(), of));
                return self.list(items, of, faults);
            }
            (None, Some(""), None) => return self.list(&[], None, faults),
            (None, Some(""), Some(_)) => {
                let at = items.map_or(node.at, |items| items.at);
                return self.fault(None, Fault::new(at, "`items` of a List must be a list"));
            }
            (None, _, _) => return self.unread(node, &api_version, &kind),
            (Some(_), _, _) => {}
        }
        if let Some(kind) = known {
            self.object(node, kind, &api_version, faults);
        }
    }

    fn nameless(&mut self, node: &Node, mut faults: Vec<Fault>) {
        let missing = ["apiVersion", "kind"]
            .into_iter()
            .find(|name| node.get(name).and_then(Node::as_str).is_none())
            .unwrap_or("kind");
        let at = node.get(missing).map_or(node.at, |node| node.at);
        let message = match node.get(missing) {
            Some(_) => format!("`{missing}` must be text"),
            None => format!("`{missing}` is missing: nothing tells what this object is"),
        };
        faults.insert(0, Fault::new(at, message));
        for fault in faults {
            self.fault(None, fault);
        }
    }

    /// Reads the items of a list, each by itself: a mistake in one is none of the others.
    fn list(&mut self, items: &[Node], of: Option<(&str, &str)>, faults: Vec<Fault>) {
        let mut by_item: BTreeMap<usize, Vec<Fault>> = BTreeMap::new();
        for fault in faults {
            match items.partition_point(|item| item.at <= fault.at) {
                0 => self.fault(None, fault),
                after => by_item.entry(after - 1).or_default().push(fault),
            }
        }
        for (index, item) in items.iter().enumerate() {
            self.node(item, of, by_item.remove(&index).unwrap_or_default());
        }
    }

    /// Counts an object of a kind that is not read, unless it looks like a slip of the pen.
    fn unread(&mut self, node: &Node, api_version: &str, kind: &str) {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let meant = Kind::ALL
            .into_iter()
            .find(|known| known.group() == group && known.as_str().eq_ignore_ascii_case(kind));
        let Some(meant) = meant else {
            let name = format!("{}/{}", shown(api_version), shown(kind));
            *self.parsed.skipped.entry(name).or_default() += 1;
            return;
        };
        let (field, message) = if meant.as_str() == kind {
            let message = format!("{kind} is not read at version {}", shown(api_version));
            ("apiVersion", message)
        } else {
            let message = format!("no kind `{}`: `{meant}` is meant", shown(kind));
            ("kind", message)
        };
        let at = node.locate([Step::Field(field)]);
        self.fault(None, Fault::new(at, message));
    }

    fn object(&mut self, node: &Node, kind: Kind, api_version: &str, faults: Vec<Fault>) {
        let key = key_of(node, kind);
        if !faults.is_empty() {
            for fault in faults {
                self.fault(key.clone(), fault);
            }
            return;
        }
        let mut value = node.to_json();
        // Counted by us, as an API server does; and what only it and its clients use.
        if let Some(metadata) = value.get_mut("metadata").and_then(|m| m.as_object_mut()) {
            metadata.remove("generation");
            metadata.remove("managedFields");
        }
        // Items of typed lists leave these out.
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".to_owned(), api_version.into());
            map.insert("kind".to_owned(), kind.as_str().into());
        }
        let fingerprint = fingerprint(&value);
        let place = self.lines.position(node.at);
        let created = self.created(&mut value, key.as_ref());
        if let Some(key) = &key
            && self.before.same(key, fingerprint)
        {
            self.parsed.found.push(Found {
                key: key.clone(),
                object: None,
                place,
                created,
                fingerprint,
            });
            return;
        }
        match Object::decode(value) {
            Ok(Some(object)) => self.parsed.found.push(Found {
                key: object.key(),
                object: Some(object),
                place,
                created,
                fingerprint,
            }),
            // `Kind::from_api` said that it is ours, so this is out of step: say so rather than lose it.
            Ok(None) => self.fault(key, Fault::new(node.at, "this object could not be read")),
            Err(error) => self.undecodable(node, kind, key, error),
        }
    }

    /// When the object was made; if the file doesn't say, what is known is written into `value`.
    fn created(&self, value: &mut serde_json::Value, key: Option<&ObjectKey>) -> Option<Timestamp> {
        let metadata = value.get_mut("metadata")?.as_object_mut()?;
        match metadata.get("creationTimestamp") {
            None | Some(serde_json::Value::Null) => {
                let known = self.before.created(key?)?;
                let text = known.to_string().into();
                metadata.insert("creationTimestamp".to_owned(), text);
                Some(known)
            }
            Some(written) => written.as_str()?.parse().ok(),
        }
    }

    fn undecodable(&mut self, node: &Node, kind: Kind, key: Option<ObjectKey>, error: DecodeError) {
        let at = node.locate(error.path.iter().map(|segment| match segment {
            PathSegment::Field(name) => Step::Field(name),
            PathSegment::Index(index) => Step::Index(*index),
        }));
        let path = error.path_text();
        let message = if kind == Kind::Secret && holds_data(&error.path) {
            "this value is not as it must be: `data` holds base64 text, `stringData` text"
                .to_owned()
        } else {
            error.message
        };
        let message = if path.is_empty() {
            message
        } else {
            format!("{path}: {message}")
        };
        self.fault(error.key.or(key), Fault::new(at, message));
    }
}

/// Whether a path of a Secret leads to what no message may repeat.
fn holds_data(path: &[PathSegment]) -> bool {
    matches!(path.first(), Some(PathSegment::Field(name)) if name == "data" || name == "stringData")
}

/// The object that a tree describes, whatever else is wrong with it.
fn key_of(node: &Node, kind: Kind) -> Option<ObjectKey> {
    let metadata = node.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    let namespace = match metadata.get("namespace") {
        _ if !kind.namespaced() => "",
        None => "default",
        Some(node) if node.is_null() => "default",
        Some(node) => match node.as_str()? {
            "" => "default",
            namespace => namespace,
        },
    };
    // What can't be a name is none: it would only make messages hard to read.
    let sound = |text: &str| {
        let sign = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        text.len() <= LONGEST_NAME && text.bytes().all(sign)
    };
    (sound(name) && sound(namespace)).then(|| ObjectKey::new(kind, namespace, name))
}

#[cfg(test)]
mod tests;
