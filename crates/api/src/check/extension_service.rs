//! Checks of ExtensionServices.

use super::Check;
use crate::extension_service::ExtensionServiceSpec;

pub(crate) fn spec(_spec: &ExtensionServiceSpec) -> Check {
    Ok(())
}
