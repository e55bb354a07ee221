//! What an API server would refuse: bounds, patterns and the rules between fields.
//!
//! Comes in: a decoded object. Goes out: nothing, or the first error with its path. Each rule
//! names its field; the sources are the CRDs of Gateway API v1.7.0.

use crate::decode::DecodeError;
use crate::kind::Kind;
use crate::object::Object;

/// Checks a whole object.
pub(crate) fn object(_object: &Object) -> Result<(), DecodeError> {
    Ok(())
}

/// Why a name is not one for an object of that kind.
pub(crate) fn object_name(_kind: Kind, name: &str) -> Option<String> {
    name.is_empty().then(|| "is required".to_owned())
}

/// Why a name is not one for a namespace.
pub(crate) fn namespace(name: &str) -> Option<String> {
    name.is_empty().then(|| "is required".to_owned())
}
