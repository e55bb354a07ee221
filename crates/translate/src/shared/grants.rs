//! References to other namespaces, which need a ReferenceGrant there.

use std::sync::Arc;

use sesame_api::{Group, Kind, KindName, NamespacedName, ReferenceGrant};
use sesame_engine::{Index, Reader};

/// The ReferenceGrants of a namespace.
pub(crate) type Grants = Index<NamespacedName, ReferenceGrant, Arc<str>>;

/// The kind and namespace of an object that refers to another.
#[derive(Clone, Copy)]
pub(crate) struct Referrer<'a> {
    pub(crate) kind: Kind,
    pub(crate) namespace: &'a Arc<str>,
}

/// Whether `from` may refer to the object `target` of kind `to`: always within its own namespace, and elsewhere if a
/// ReferenceGrant there allows it. Callers check this before looking up the target, so that a status never reveals
/// what exists in other namespaces.
pub(crate) fn permitted(
    reader: &mut Reader<'_>,
    grants: Grants,
    from: Referrer<'_>,
    to: Kind,
    target: &NamespacedName,
) -> bool {
    if *from.namespace == target.namespace {
        return true;
    }
    let is = |group: &Group, kind: &KindName, wanted: Kind| {
        Kind::from_group_kind(group, kind) == Some(wanted)
    };
    reader
        .by(grants, &target.namespace)
        .iter()
        .any(|(_, grant)| {
            grant.spec.from.iter().any(|entry| {
                is(&entry.group, &entry.kind, from.kind) && entry.namespace == *from.namespace
            }) && grant.spec.to.iter().any(|entry| {
                is(&entry.group, &entry.kind, to)
                    && entry.name.as_ref().is_none_or(|name| *name == target.name)
            })
        })
}
