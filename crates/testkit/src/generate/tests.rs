use std::collections::BTreeSet;

use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sesame_api::Kind;

use super::*;

fn sample<T: fmt::Debug>(strategy: &BoxedStrategy<T>, count: usize) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..count)
        .map(|_| strategy.new_tree(&mut runner).expect("a value").current())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_object_decodes_after_any_edits(set in sets(), edits in prop::collection::vec(edits(), 0..12)) {
        let mut edited = set.clone();
        let mut replayed: BTreeMap<ObjectKey, Object> =
            set.decoded().map(|object| (object.key(), object)).collect();
        for edit in &edits {
            match edited.apply(edit) {
                Some(Change::Upsert(object)) => {
                    replayed.insert(object.key(), *object);
                }
                Some(Change::Remove(key)) => {
                    prop_assert!(replayed.remove(&key).is_some());
                }
                None => {}
            }
        }
        let decoded: Vec<Object> = edited.decoded().collect();
        prop_assert!(replayed.into_values().eq(decoded));
        // Applying all changes at once gives the same result.
        let changes = edited.changes_from(&set);
        prop_assert!(changes.len() <= set.len() + edits.len());
        prop_assert!(edited.changes_from(&edited).is_empty());
    }
}

#[test]
fn every_kind_and_feature_is_generated() {
    let mut seen = String::new();
    let mut kinds = BTreeSet::new();
    for set in sample(&sets(), 200) {
        kinds.extend(set.iter().map(|(key, _)| key.kind));
        seen.push_str(&set.to_string());
    }
    assert_eq!(kinds, BTreeSet::from(Kind::ALL));
    for word in [
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
        "RequestMirror",
        "RequestRedirect",
        "URLRewrite",
        "CORS",
        "ExternalAuth",
        "ExtensionRef",
        "ReplaceFullPath",
        "ReplacePrefixMatch",
        "RegularExpression",
        "\"Exact\"",
        "queryParams",
        "backendRequest",
        "attempts",
        "minRetryRate",
        "sessionPersistence",
        "Permanent",
        "sectionName",
        "weight",
        "percent",
        "fraction",
        "kubernetes.io/h2c",
        "ExternalName",
        "IPv6",
        "terminating",
        "certificateRefs",
        "clientCertificateRef",
        "wellKnownCACertificates",
        "perPort",
        "AllowInsecureFallback",
        "subjectAltNames",
        "Selector",
        "Opaque",
        "virtualhost",
        "tcpproxy",
        "requestHashPolicies",
        "directResponsePolicy",
        "ImplementationSpecific",
        "defaultBackend",
        "upstream-protocol",
        "☃",
    ] {
        assert!(seen.contains(word), "{word}");
    }
}
