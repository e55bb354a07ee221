//! The GatewayClass that is there without being written.
//!
//! Out: an object, and whether a key is its own. It must not know where objects come from.

use sesame_api::{
    GatewayClass, GatewayClassSpec, GatewayClassStatus, Kind, Meta, Object, ObjectKey,
};
use sesame_translate::gateway_api::class::CONTROLLER_NAME;

/// Its name.
pub(crate) const NAME: &str = "sesame";

/// The class, as if somebody had written it.
pub(crate) fn object() -> Object {
    Object::GatewayClass(Box::new(GatewayClass {
        meta: Meta {
            name: NAME.into(),
            generation: 1,
            ..Meta::default()
        },
        spec: GatewayClassSpec {
            controller_name: CONTROLLER_NAME.into(),
            parameters_ref: None,
            description: None,
        },
        status: GatewayClassStatus::default(),
    }))
}

/// Whether a key is that of the class.
pub(crate) fn is_it(key: &ObjectKey) -> bool {
    key.kind == Kind::GatewayClass && &*key.name == NAME
}
