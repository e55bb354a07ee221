//! Namespaces and their labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_api::LabelSelector;
use sesame_engine::Reader;

use crate::pipeline::Inputs;

/// The label that every namespace carries, whoever wrote it.
const NAME: &str = "kubernetes.io/metadata.name";

/// The labels of a namespace.
pub(crate) type Labels = BTreeMap<String, String>;

/// Whether a selector selects a namespace. One that nobody wrote down (files need not) has its name as its label.
pub(crate) fn selected(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    namespace: &Arc<str>,
    selector: &LabelSelector,
) -> bool {
    let mut labels = reader
        .get(inputs.namespaces, namespace)
        .map(|labels| Labels::clone(&labels))
        .unwrap_or_default();
    labels.insert(NAME.to_owned(), namespace.to_string());
    selector.matches(&labels)
}
