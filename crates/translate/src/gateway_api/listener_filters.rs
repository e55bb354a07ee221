//! The filters of a listener (GEP-5224): they check its requests before a route is selected.

use std::sync::Arc;

use sesame_api::{ListenerFilter, reason};
use sesame_model::{ExternalAuth, HeaderChanges, MAX_HOST_AUTH};

use super::external_auth;
use super::route::backends::Resolver;
use crate::problem::Problem;
use crate::shared::external_auth::size;
use crate::shared::listeners::RequestChecks;

/// The maximum size of the paths and header names of a listener's filters, in bytes: each host of each port has a copy.
const MAX_TEXT: usize = 1_024;

/// The filters of a listener, and the errors in them.
#[derive(Default)]
pub(super) struct Filters {
    /// `None` without filters.
    pub(super) checks: Option<RequestChecks>,
    /// Invalid filters.
    pub(super) invalid: Option<Problem>,
    /// Unresolved references.
    pub(super) unresolved: Vec<Problem>,
}

/// Reads the filters of a listener. `field` is the path of the list.
pub(super) fn read(
    field: &str,
    filters: &[ListenerFilter],
    mut resolver: Resolver<'_, '_>,
) -> Filters {
    if filters.is_empty() {
        return Filters::default();
    }
    let (mut checks, mut invalid) = (Vec::new(), Vec::new());
    if filters.len() > MAX_HOST_AUTH {
        invalid.push(Problem::new(
            reason::listener::UNSUPPORTED_VALUE,
            format!("{field}: at most {MAX_HOST_AUTH} filters are supported; remove some"),
        ));
    }
    for (index, filter) in filters.iter().enumerate() {
        let field = format!("{field}[{index}]");
        match filter {
            ListenerFilter::ExternalAuth(auth) => {
                let field = format!("{field}.externalAuth");
                let before = HeaderChanges::default();
                match external_auth::read(&field, auth, before, None, &mut resolver) {
                    Ok(check) => checks.extend(check.map(Arc::new)),
                    Err(error) => invalid.push(Problem::new(
                        reason::listener::INVALID_LISTENER_FILTER,
                        error.to_string(),
                    )),
                }
            }
            ListenerFilter::ExtensionRef(_) | ListenerFilter::Unknown(_) => {
                invalid.push(Problem::new(
                    reason::listener::UNSUPPORTED_VALUE,
                    format!(
                        "{field}.type: filter type {} is not supported; use ExternalAuth",
                        filter.type_name()
                    ),
                ));
            }
        }
        if let ListenerFilter::ExtensionRef(extension) = filter {
            resolver.problems.push(Problem::new(
                reason::listener::INVALID_LISTENER_FILTER_REF,
                format!(
                    "{field}.extensionRef: kind {} in group {} is not supported as a filter",
                    extension.kind, extension.group
                ),
            ));
        }
    }
    let total: usize = checks
        .iter()
        .map(|check: &Arc<ExternalAuth>| size(&check.protocol))
        .sum();
    if total > MAX_TEXT {
        invalid.push(Problem::new(
            reason::listener::UNSUPPORTED_VALUE,
            format!(
                "{field}: the paths and header names total {total} bytes; at most {MAX_TEXT} are supported; use fewer or \
                 shorter names"
            ),
        ));
    }
    let unresolved = resolver.problems.iter().map(|problem| {
        let reason = match problem.reason() {
            reason::route::REF_NOT_PERMITTED => reason::listener::REF_NOT_PERMITTED,
            _ => reason::listener::INVALID_LISTENER_FILTER_REF,
        };
        Problem::new(reason, problem.message())
    });
    let checks = match checks.len() == filters.len() && invalid.is_empty() {
        true => RequestChecks::By(checks),
        false => RequestChecks::Invalid,
    };
    Filters {
        checks: Some(checks),
        invalid: Problem::merge(invalid),
        unresolved: unresolved.collect(),
    }
}
