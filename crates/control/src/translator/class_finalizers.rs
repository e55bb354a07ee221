//! Updates the finalizers of GatewayClasses.
//!
//! In: commits. Out: the classes that Gateways refer to, for the writer.

use super::Translator;
use crate::core::Step;

impl Translator {
    pub(super) fn update_class_finalizers(&self, steps: &[Step]) {
        let Some(writer) = &self.outputs.class_finalizers else {
            return;
        };
        for step in steps {
            for (class, change) in step.commit.changes(self.core.outputs().classes_in_use) {
                writer.set(class, change);
            }
        }
    }
}
