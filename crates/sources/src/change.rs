//! What every source of objects tells the rest of the program.

use sesame_api::{Object, ObjectKey};

/// One object that came, changed or went.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The object exists and is now this. Sent only if it differs from what was sent before.
    Upsert(Object),
    /// The object is gone.
    Remove(ObjectKey),
}

impl Change {
    /// Which object changed.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Upsert(object) => object.key(),
            Self::Remove(key) => key.clone(),
        }
    }
}
