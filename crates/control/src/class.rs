//! The built-in GatewayClass of local runs.

use std::sync::Arc;

use sesame_api::{
    GatewayClass, GatewayClassSpec, GatewayClassStatus, Kind, Meta, Object, ObjectKey,
};

pub(crate) const NAME: &str = "sesame";

pub(crate) fn builtin(controller_name: &Arc<str>) -> Object {
    Object::GatewayClass(Box::new(GatewayClass {
        meta: Meta {
            name: NAME.into(),
            generation: 1,
            ..Meta::default()
        },
        spec: GatewayClassSpec {
            controller_name: Arc::clone(controller_name),
            parameters_ref: None,
            description: None,
        },
        status: GatewayClassStatus::default(),
    }))
}

pub(crate) fn key() -> ObjectKey {
    ObjectKey::new(Kind::GatewayClass, "", NAME)
}

pub(crate) fn is_builtin(key: &ObjectKey) -> bool {
    *key == self::key()
}
