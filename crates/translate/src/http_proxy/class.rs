//! Which HTTPProxies are ours.

use sesame_api::HTTPProxy;

use crate::settings::Settings;

/// Whether an HTTPProxy is ours: it has our class, or none.
pub(super) fn is_ours(settings: &Settings, proxy: &HTTPProxy) -> bool {
    let field = proxy.spec.ingress_class_name.as_ref();
    let class = proxy.meta.ingress_class(field);
    class.is_none_or(|class| settings.ingress.classes.contains(&class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Mode;

    #[test]
    fn annotations_take_precedence_over_the_field() {
        let settings = Settings::new(Mode::Managed);
        let ours = |annotations: &[(&str, &str)], field: Option<&str>| {
            let mut proxy = super::super::testing::proxy("spec: {}");
            let annotations = annotations.iter();
            proxy.meta.annotations = annotations
                .map(|(name, value)| (format!("{name}/ingress.class"), (*value).to_owned()))
                .collect();
            proxy.spec.ingress_class_name = field.map(Into::into);
            is_ours(&settings, &proxy)
        };
        let (own, general) = ("projectsesame.io", "kubernetes.io");
        assert!(ours(&[], None));
        assert!(ours(&[], Some("sesame")) && !ours(&[], Some("other")));
        assert!(ours(&[(general, "sesame")], Some("other")));
        assert!(!ours(&[(general, "other")], None));
        assert!(ours(&[(own, "sesame"), (general, "other")], None));
        assert!(!ours(&[(own, "other"), (general, "sesame")], None));
    }
}
