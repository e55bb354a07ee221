//! Objects of Contour's group: Sesame's own object with the same name takes precedence.

use std::sync::Arc;

use sesame_api::{ObjectKey, ObjectStatus};
use sesame_engine::{Builder, Reader, Table, Value};

/// Whether an object of Contour's group is superseded by one of Sesame's.
pub(crate) fn is_superseded<V: Value>(
    reader: &mut Reader<'_>,
    objects: Table<ObjectKey, V>,
    key: &ObjectKey,
) -> bool {
    let own = key.of_sesame();
    own.is_some_and(|own| reader.exists(objects, &own))
}

/// The row of an object of Sesame's group, or else of Contour's.
pub(crate) fn find<V: Value>(
    reader: &mut Reader<'_>,
    rows: Table<ObjectKey, V>,
    own: &ObjectKey,
) -> Option<(ObjectKey, Arc<V>)> {
    if let Some(row) = reader.get(rows, own) {
        return Some((own.clone(), row));
    }
    let theirs = own.of_contour()?;
    let row = reader.get(rows, &theirs)?;
    Some((theirs, row))
}

/// Declares the statuses of superseded objects. `names` contains the names of the index and the stage.
pub(crate) fn statuses<V: Value>(
    b: &mut Builder,
    names: (&'static str, &'static str),
    objects: Table<ObjectKey, V>,
    status: impl Fn(&V) -> ObjectStatus + Send + Sync + 'static,
) -> Table<ObjectKey, ObjectStatus> {
    let (index, stage) = names;
    let of_contour = b.index(objects, index, |key: &ObjectKey, _| {
        let theirs = key.of_sesame().map(|_| key.clone());
        theirs.into_iter().collect()
    });
    b.derive(stage, of_contour, move |reader, key: &ObjectKey| {
        let superseded = is_superseded(reader, objects, key);
        let object = superseded.then(|| reader.get(objects, key))??;
        Some(status(&object))
    })
}
