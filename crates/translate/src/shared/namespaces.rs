//! Namespaces and their labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_api::{LabelOperator, LabelSelector};
use sesame_engine::{Reader, Table};

use crate::problem::FieldError;
use crate::shared::listeners::{AllowedNamespaces, ListenerPoint};

/// The label that every namespace has (Kubernetes' NamespaceDefaultLabelName).
const NAME: &str = "kubernetes.io/metadata.name";

/// The labels of a namespace.
pub(crate) type Labels = BTreeMap<String, String>;

/// Whether a selector matches a namespace. Files may omit the Namespace object: then the name is the namespace's only
/// label.
pub(crate) fn selected(
    reader: &mut Reader<'_>,
    labels: Table<Arc<str>, Labels>,
    namespace: &Arc<str>,
    selector: &LabelSelector,
) -> bool {
    let labels = reader.get(labels, namespace);
    selector.matches(|key| match key {
        NAME => Some(namespace),
        key => labels.as_ref()?.get(key).map(String::as_str),
    })
}

/// Whether routes in this namespace may attach to a listener.
pub(crate) fn permits(
    reader: &mut Reader<'_>,
    labels: Table<Arc<str>, Labels>,
    listener: &ListenerPoint,
    namespace: &Arc<str>,
) -> bool {
    match &listener.namespaces {
        AllowedNamespaces::All => true,
        AllowedNamespaces::Same => *namespace == listener.listener.id.owner.namespace,
        AllowedNamespaces::Selected(selector) => selected(reader, labels, namespace, selector),
        AllowedNamespaces::None => false,
    }
}

/// Checks the parts of the selector at `field` that the API server doesn't validate: operators, and whether they have
/// values.
///
/// # Errors
/// The first invalid requirement.
pub(crate) fn check_selector(field: &str, selector: &LabelSelector) -> Result<(), FieldError> {
    for (index, requirement) in selector.match_expressions.iter().enumerate() {
        let operator = &requirement.operator;
        let takes_values = match operator {
            LabelOperator::In | LabelOperator::NotIn => true,
            LabelOperator::Exists | LabelOperator::DoesNotExist => false,
            LabelOperator::Other(_) => {
                return Err(FieldError::new(
                    format!("{field}.matchExpressions[{index}].operator"),
                    format!("unknown operator {operator}; use In, NotIn, Exists or DoesNotExist"),
                ));
            }
        };
        if takes_values == requirement.values.is_empty() {
            let message = if takes_values {
                format!("the {operator} operator requires at least one value; add one")
            } else {
                format!("the {operator} operator takes no values; remove them")
            };
            let field = format!("{field}.matchExpressions[{index}].values");
            return Err(FieldError::new(field, message));
        }
    }
    Ok(())
}
