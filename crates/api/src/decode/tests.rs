mod mutation;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::fixtures::{all, decode, one, with};
use crate::*;

/// Every leaf of a value, as `pointer = value`.
fn leaves(value: &Value, path: String, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(k, v)| leaves(v, format!("{path}/{k}"), out)),
        Value::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(i, v)| leaves(v, format!("{path}/{i}"), out));
        }
        leaf => drop(out.insert(format!("{path} = {leaf}"))),
    }
}

#[test]
fn every_field_of_every_kind_is_kept() {
    let mut kinds = BTreeSet::new();
    for value in all() {
        let object = decode(value.clone()).unwrap();
        kinds.insert(object.kind());
        let written = serde_json::to_value(&object).unwrap();
        let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
        leaves(value, String::new(), &mut before);
        leaves(&written, String::new(), &mut after);
        let lost: Vec<_> = before.difference(&after).collect();
        assert!(lost.is_empty(), "{}: {lost:#?}", object.key());
        assert_eq!(decode(written).unwrap(), object);
    }
    assert_eq!(
        kinds,
        Kind::ALL.into_iter().collect(),
        "every kind has an example"
    );
}

#[test]
fn defaults_match_the_api_server() {
    let route = decode(json!({
        "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "HTTPRoute",
        "metadata": {"name": "r"},
        "spec": {"parentRefs": [{"name": "web"}], "rules": [
            {"backendRefs": [{"name": "s", "port": 80}], "retry": {},
             "matches": [{"headers": [{"name": "a", "value": "b"}]}, {"path": {}}]},
            {"filters": [{"type": "RequestRedirect", "requestRedirect": {}}]},
            {"filters": [{"type": "CORS", "cors": {}}]},
        ]},
    }));
    let Object::HTTPRoute(route) = route.unwrap() else {
        panic!()
    };
    assert_eq!(route.meta.namespaced_name().to_string(), "default/r");
    let parent = &route.spec.parent_refs[0];
    assert_eq!(parent.known_kind(), Some(Kind::Gateway));
    assert_eq!(
        parent.resolve(&route.meta.namespace),
        NamespacedName::new("default", "web")
    );
    let rules = &route.spec.rules;
    let backend = &rules[0].backend_refs[0];
    assert_eq!(
        (backend.known_kind(), backend.weight),
        (Some(Kind::Service), 1)
    );
    assert_eq!(rules[0].retry.as_ref().unwrap().attempts, 1);
    assert_eq!(rules[0].matches[0].headers[0].type_, MatchType::Exact);
    let root = HttpPathMatch {
        type_: PathMatchType::PathPrefix,
        value: "/".into(),
    };
    assert_eq!(rules[0].matches[0].path, root);
    assert_eq!(rules[0].matches[1].path, root);
    assert_eq!(rules[1].matches, [HttpRouteMatch::default()]);
    let RouteFilter::RequestRedirect(redirect) = &rules[1].filters[0] else {
        panic!()
    };
    assert_eq!(redirect.status_code, 302);
    let RouteFilter::Cors(cors) = &rules[2].filters[0] else {
        panic!()
    };
    assert_eq!(cors.max_age, 5);

    let empty = with("HTTPRoute", &[("/spec", json!({}))]);
    let Object::HTTPRoute(route) = decode(empty).unwrap() else {
        panic!()
    };
    assert_eq!(route.spec.rules[0].matches[0].path, root);
}

#[test]
fn a_listener_gets_defaults() {
    let listener = json!([{"name": "l", "port": 443, "protocol": "HTTPS", "allowedRoutes": {},
        "tls": {"certificateRefs": [{"name": "c"}]}}]);
    let gateway = decode(with("Gateway", &[("/spec/listeners", listener)])).unwrap();
    let Object::Gateway(gateway) = gateway else {
        panic!()
    };
    let listener = &gateway.spec.listeners[0];
    assert_eq!(
        listener.allowed_routes.namespaces.from,
        FromNamespaces::Same
    );
    let tls = listener.tls.as_ref().unwrap();
    assert_eq!(tls.mode, TlsMode::Terminate);
    assert_eq!(tls.certificate_refs[0].known_kind(), Some(Kind::Secret));
    let allowed = with("Gateway", &[("/spec/allowedListeners", json!({}))]);
    let Object::Gateway(gateway) = decode(allowed).unwrap() else {
        panic!()
    };
    let allowed = gateway.spec.allowed_listeners.unwrap();
    assert_eq!(allowed.namespaces.from, FromNamespaces::None);
}

#[test]
fn an_early_listener_set_differs_in_ports_and_filters() {
    let filters = json!({"requests": [{"type": "ExtensionRef",
        "extensionRef": {"group": "example.com", "kind": "Limit", "name": "slow"}}]});
    let changes = [
        ("/spec/listeners/0/port", Value::Null),
        ("/spec/listeners/0/filters", filters),
    ];
    let early = decode(with("XListenerSet", &changes)).unwrap();
    assert_eq!(early.key().to_string(), "XListenerSet/shop/early");
    let listener = &early.as_listener_set().unwrap().spec.listeners[0];
    assert_eq!((listener.port, listener.filters.is_empty()), (0, true));
    let set = decode(one("ListenerSet")).unwrap();
    assert!(
        !set.as_listener_set().unwrap().spec.listeners[0]
            .filters
            .is_empty()
    );
    assert_eq!(decode(one("Gateway")).unwrap().as_listener_set(), None);
}

#[test]
fn null_is_absent() {
    let nulls = with(
        "HTTPRoute",
        &[
            ("/spec/hostnames", Value::Null),
            ("/spec/rules", Value::Null),
            ("/spec/parentRefs/0/sectionName", Value::Null),
            ("/spec/parentRefs/0/group", Value::Null),
            ("/metadata/labels", Value::Null),
            ("/status", Value::Null),
        ],
    );
    let Object::HTTPRoute(route) = decode(nulls).unwrap() else {
        panic!()
    };
    assert!(route.spec.hostnames.is_empty() && route.status.is_empty());
    assert_eq!(route.spec.rules.len(), 1);
    assert_eq!(route.spec.parent_refs[0].section_name, None);
    assert_eq!(route.spec.parent_refs[0].group, Group::Gateway);
}

#[test]
fn unknown_values_and_fields_decode() {
    let gateway = with(
        "Gateway",
        &[
            ("/spec/listeners/1/protocol", json!("example.com/quic")),
            ("/spec/listeners/1/tls/mode", json!("Inspect")),
            (
                "/spec/listeners/0/allowedRoutes/namespaces/from",
                json!("Friends"),
            ),
            ("/spec/addresses/0/type", json!("example.com/anycast")),
            ("/spec/future", json!({"deep": [1, 2]})),
        ],
    );
    let Object::Gateway(gateway) = decode(gateway).unwrap() else {
        panic!()
    };
    assert_eq!(
        gateway.spec.listeners[1].protocol,
        ProtocolType::from("example.com/quic")
    );
    assert_eq!(
        gateway.spec.listeners[1]
            .tls
            .as_ref()
            .unwrap()
            .mode
            .as_str(),
        "Inspect"
    );
    assert_eq!(gateway.spec.addresses[0].type_, "example.com/anycast");

    let route = with(
        "HTTPRoute",
        &[
            (
                "/spec/rules/0/filters/8",
                json!({"type": "Fault", "fault": {"percent": 1}}),
            ),
            (
                "/spec/rules/0/filters/4/urlRewrite/path",
                json!({"type": "Regex", "regex": "x"}),
            ),
            ("/spec/rules/0/matches/0/method", json!("PROPFIND")),
            ("/spec/rules/4/matches/0/path/type", json!("Glob")),
        ],
    );
    let Object::HTTPRoute(route) = decode(route).unwrap() else {
        panic!()
    };
    assert_eq!(
        route.spec.rules[0].filters[8],
        RouteFilter::Unknown("Fault".into())
    );
    let RouteFilter::UrlRewrite(rewrite) = &route.spec.rules[0].filters[4] else {
        panic!()
    };
    assert_eq!(rewrite.path, Some(PathModifier::Unknown("Regex".into())));

    // Fields that only other kinds have are unknown fields.
    let tcp = with(
        "TCPRoute",
        &[
            ("/spec/hostnames", json!("not even a list")),
            ("/spec/rules/0/backendRefs/0/filters", json!("neither")),
        ],
    );
    let Object::TCPRoute(tcp) = decode(tcp).unwrap() else {
        panic!()
    };
    assert!(tcp.spec.hostnames.is_empty());
}

#[test]
fn other_kinds_and_versions_are_skipped() {
    for (version, kind) in [
        ("apps/v1", "Deployment"),
        ("gateway.networking.k8s.io/v1alpha2", "HTTPRoute"),
        ("gateway.networking.k8s.io/v1", "Secret"),
        ("v1", "Gateway"),
        ("v2", "Secret"),
        ("", "Secret"),
    ] {
        let value = json!({"apiVersion": version, "kind": kind, "metadata": 5});
        let decoded = Object::decode(value);
        if version.is_empty() {
            assert_eq!(decoded.unwrap_err().path_text(), "apiVersion");
        } else {
            assert_eq!(decoded, Ok(None), "{version} {kind}");
        }
    }
    for (kind, version) in [("TLSRoute", "v1alpha3"), ("ReferenceGrant", "v1beta1")] {
        let version = json!(format!("gateway.networking.k8s.io/{version}"));
        decode(with(kind, &[("/apiVersion", version)])).unwrap();
    }
}

#[test]
fn admitted_objects_may_exceed_our_bounds() {
    let rule = json!({"backendRefs": [{"name": "s", "port": 80}]});
    let rules: Value = (0..33).map(|_| rule.clone()).collect();
    let later = with(
        "HTTPRoute",
        &[
            ("/spec/rules", rules),
            ("/spec/hostnames", json!(["under_score.example"])),
            ("/spec/parentRefs/0/kind", json!("Mesh2!")),
            ("/spec/future", json!({"a": 1})),
            ("/metadata/name", json!("Upper")),
        ],
    );
    let error = decode(later.clone()).unwrap_err();
    assert_eq!(error.path_text(), "metadata.name");
    let Ok(Some(Object::HTTPRoute(route))) = Object::decode_admitted(later) else {
        panic!()
    };
    assert_eq!(route.spec.rules.len(), 33);
    assert_eq!(route.meta.namespaced_name().to_string(), "shop/Upper");
    // A type error is reported with and without validation.
    let broken = with("HTTPRoute", &[("/spec/rules", json!({}))]);
    let error = Object::decode_admitted(broken).unwrap_err();
    assert_eq!(error.path_text(), "spec.rules");
}

#[test]
fn lists_of_contours_http_proxies_are_bounded() {
    let route = |field: &str, entries: usize| json!([{field: vec![json!({}); entries]}]);
    let service =
        json!({"name": "s", "port": 80, "cookieRewritePolicies": vec![json!({"name": "c"}); 65]});
    for (field, list, path) in [
        ("routes", json!(vec![json!({}); 2_049]), "spec.routes"),
        (
            "routes",
            route("conditions", 33),
            "spec.routes[0].conditions",
        ),
        (
            "routes",
            json!([{"services": [service]}]),
            "spec.routes[0].services[0].cookieRewritePolicies",
        ),
        (
            "includes",
            json!(vec![json!({"name": "c"}); 1_025]),
            "spec.includes",
        ),
    ] {
        let object = |group: &str| {
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "HTTPProxy",
                "metadata": {"namespace": "shop", "name": "a"}, "spec": {field: list},
            })
        };
        let spec = |group| match Object::decode_admitted(object(group)) {
            Ok(Some(Object::HTTPProxy(proxy) | Object::ContourHTTPProxy(proxy))) => proxy.spec,
            other => panic!("{other:?}"),
        };
        assert_eq!(spec("projectsesame.io").exceeded, None);
        let contours = spec("projectcontour.io");
        let exceeded = contours.exceeded.map(|error| error.path_text());
        assert_eq!(exceeded.as_deref(), Some(path));
        let actions = contours.routes.iter().map(|route| &route.services);
        assert!(actions.flatten().next().is_none() && contours.includes.is_empty());
    }
}

#[test]
fn metadata_is_validated_and_trimmed() {
    let long = "a".repeat(254);
    for (kind, field, value, message) in [
        ("HTTPRoute", "name", Value::Null, "is required"),
        ("HTTPRoute", "name", json!(""), "is required"),
        ("HTTPRoute", "name", json!(7), "expected a string"),
        ("HTTPRoute", "name", json!("Upper"), "expected at most 253"),
        ("HTTPRoute", "name", json!("a..b"), "expected at most 253"),
        ("HTTPRoute", "name", json!(long), "expected at most 253"),
        ("Service", "name", json!("a.b"), "expected at most 63"),
        (
            "HTTPRoute",
            "namespace",
            json!("a.b"),
            "expected at most 63",
        ),
        ("HTTPRoute", "namespace", json!(["a"]), "expected a string"),
    ] {
        let error = decode(with(kind, &[(&format!("/metadata/{field}"), value)])).unwrap_err();
        assert_eq!(error.path_text(), format!("metadata.{field}"));
        assert!(error.message.starts_with(message), "{error}");
    }
    // A name of the maximum length is valid, and cluster-scoped kinds have no namespace.
    decode(with("HTTPRoute", &[("/metadata/name", json!(&long[1..]))])).unwrap();
    let class = decode(with("GatewayClass", &[("/metadata/namespace", json!("x"))])).unwrap();
    assert_eq!(class.key().to_string(), "GatewayClass/edge");
    // Unused metadata is not kept.
    let noisy = [
        ("/metadata/managedFields", json!([{"manager": "kubectl"}])),
        (
            "/metadata/annotations",
            json!({"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"}),
        ),
    ];
    for kind in ["Service", "HTTPRoute"] {
        let object = serde_json::to_value(decode(with(kind, &noisy)).unwrap()).unwrap();
        assert_eq!(object["metadata"]["managedFields"], Value::Null);
        assert_eq!(object["metadata"]["annotations"], json!({"mine": "1"}));
    }
}

#[test]
fn secrets_are_decoded_and_never_quoted_in_errors() {
    let secret = with(
        "Secret",
        &[
            ("/data/folded", json!("YW\nJj\r\n")),
            ("/stringData", json!({"tls.key": "plain", "more": "text"})),
        ],
    );
    let Object::Secret(secret) = decode(secret).unwrap() else {
        panic!()
    };
    let data = secret.data.as_ref().unwrap();
    let text = |key: &str| std::str::from_utf8(&data[key].0).unwrap();
    assert_eq!(text("tls.crt"), "abc");
    assert_eq!(text("tls.key"), "plain", "stringData wins");
    assert_eq!((text("more"), text("folded")), ("text", "abc"));
    assert_eq!(secret.string_data, None);

    for wrong in [json!("top secret!"), json!(314159), json!(["314159"])] {
        let error = decode(with("Secret", &[("/data/tls.key", wrong)])).unwrap_err();
        assert_eq!(error.path[1], PathSegment::Field("tls.key".to_owned()));
        let shown = error.to_string();
        assert!(
            !shown.contains("secret!") && !shown.contains("314159"),
            "{shown}"
        );
    }
    let error = decode(with("Secret", &[("/stringData", json!({"a": 314159}))])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Secret/certs/cert: stringData.a: expected a string"
    );
}

#[test]
fn errors_have_a_path_and_a_message() {
    for (pointer, value, path, message) in [
        ("/spec", Value::Null, "spec", "is required"),
        (
            "/spec",
            json!([]),
            "spec",
            "expected a mapping, found a list",
        ),
        (
            "/spec/rules",
            json!({}),
            "spec.rules",
            "expected a list, found a mapping",
        ),
        (
            "/spec/rules/0/backendRefs/0/name",
            Value::Null,
            "spec.rules[0].backendRefs[0].name",
            "is required",
        ),
        (
            "/spec/rules/0/backendRefs/0/port",
            json!("80"),
            "spec.rules[0].backendRefs[0].port",
            "expected a whole number from 0 to 65535, found string \"80\"",
        ),
        (
            "/spec/rules/0/backendRefs/0/port",
            json!(70000),
            "spec.rules[0].backendRefs[0].port",
            "expected a whole number from 0 to 65535, found integer `70000`",
        ),
        (
            "/spec/rules/0/timeouts/request",
            json!("1.5s"),
            "spec.rules[0].timeouts.request",
            "expected a duration such as 10s",
        ),
        (
            "/spec/rules/0/filters/0",
            json!({"type": "CORS"}),
            "spec.rules[0].filters[0]",
            "cors is required in a filter of type CORS",
        ),
        (
            "/spec/rules/0/filters/0/cors",
            json!({}),
            "spec.rules[0].filters[0]",
            "cors is not allowed in a filter of type RequestHeaderModifier",
        ),
        (
            "/spec/rules/0/filters/0/requestHeaderModifier/set/0/value",
            json!(1),
            "spec.rules[0].filters[0].requestHeaderModifier.set[0].value",
            "expected a string, found integer `1`",
        ),
        (
            "/spec/rules/0/filters/4/urlRewrite/path",
            json!({"type": "ReplaceFullPath", "replacePrefixMatch": "/"}),
            "spec.rules[0].filters[4].urlRewrite.path",
            "type ReplaceFullPath requires replaceFullPath and no other field",
        ),
        (
            "/metadata/creationTimestamp",
            json!("noon"),
            "metadata.creationTimestamp",
            "fail",
        ),
    ] {
        let error = decode(with("HTTPRoute", &[(pointer, value)])).unwrap_err();
        assert_eq!(error.path_text(), path, "{error}");
        assert!(error.message.starts_with(message), "{error}");
        assert_eq!(
            error.key,
            Some(ObjectKey::new(Kind::HTTPRoute, "shop", "web"))
        );
    }
    assert_eq!(Object::decode(json!([])).unwrap_err().path, []);
}

#[test]
fn errors_and_nesting_are_bounded() {
    let huge = json!("x".repeat(1 << 20));
    let error = decode(with("HTTPRoute", &[("/spec/rules", huge)])).unwrap_err();
    assert!(error.to_string().len() < 300);

    let nested = |depth| (0..depth).fold(json!(null), |inner, _| json!([inner]));
    let error = decode(with("HTTPRoute", &[("/spec/x", nested(200))])).unwrap_err();
    assert!(error.message.contains("nested"));
    decode(with("HTTPRoute", &[("/spec/x", nested(90))])).unwrap();
}

#[test]
fn every_kind_has_a_generation_and_labels() {
    for value in all() {
        let mut object = decode(value.clone()).unwrap();
        object.set_generation(41);
        assert_eq!(object.generation(), 41, "{}", object.key());
    }
    assert_eq!(
        decode(one("GatewayClass")).unwrap().labels()["team"],
        "platform"
    );
    assert_eq!(decode(one("Namespace")).unwrap().labels()["routes"], "yes");
    assert!(decode(one("Secret")).unwrap().labels().is_empty());
}

#[test]
fn bare_feature_names_of_early_releases_decode() {
    let features = json!(["Gateway", {"name": "HTTPRoute"}]);
    let class = with("GatewayClass", &[("/status/supportedFeatures", features)]);
    let Object::GatewayClass(class) = decode(class).unwrap() else {
        panic!()
    };
    let names: Vec<_> = class
        .status
        .supported_features
        .iter()
        .map(|f| &*f.name)
        .collect();
    assert_eq!(names, ["Gateway", "HTTPRoute"]);
    let error = decode(with(
        "GatewayClass",
        &[("/status/supportedFeatures", json!([1]))],
    ));
    assert_eq!(error.unwrap_err().message, "expected a feature with a name");
}
