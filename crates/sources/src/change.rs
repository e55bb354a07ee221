//! Changes to objects.

use sesame_api::{Object, ObjectKey};

/// A change to an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The object is new or differs from the last sent version.
    Upsert(Object),
    /// The object was deleted.
    Remove(ObjectKey),
}

impl Change {
    /// The key of the object.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Upsert(object) => object.key(),
            Self::Remove(key) => key.clone(),
        }
    }
}
