//! References into other namespaces need the permission of whoever owns the namespace.

use std::sync::Arc;

use sesame_api::{Group, Kind, KindName, NamespacedName};
use sesame_engine::Reader;

use crate::pipeline::Inputs;

/// Whether an object of kind `from` in `namespace` may refer to `target` of kind `to`: within its namespace always,
/// elsewhere if a ReferenceGrant there says so. Whether the target exists is another question, asked after this one, so
/// that nobody learns from the answer what exists elsewhere.
pub(crate) fn permitted(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    from: Kind,
    namespace: &Arc<str>,
    to: Kind,
    target: &NamespacedName,
) -> bool {
    if *namespace == target.namespace {
        return true;
    }
    let is = |group: &Group, kind: &KindName, wanted: Kind| {
        Kind::from_group_kind(group, kind) == Some(wanted)
    };
    reader
        .by(inputs.grants_by_namespace, &target.namespace)
        .iter()
        .any(|(_, grant)| {
            grant
                .spec
                .from
                .iter()
                .any(|entry| is(&entry.group, &entry.kind, from) && entry.namespace == *namespace)
                && grant.spec.to.iter().any(|entry| {
                    is(&entry.group, &entry.kind, to)
                        && entry.name.as_ref().is_none_or(|name| *name == target.name)
                })
        })
}
