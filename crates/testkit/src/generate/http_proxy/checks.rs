//! Request checks: external authorization and JSON Web Tokens.

use proptest::prelude::*;
use serde_json::json;

use super::super::ingress;
use super::super::json::{
    Json, any_number, any_of, boolean, just, list, may, mostly, must, record,
};
use super::{merged, validation};

pub(super) fn jwt_provider() -> Json {
    let texts = || mostly(&["me", "https://example.com/"], &["", "%", "ü", "\0"]);
    let uris = &[
        "https://keys.example.com/jwks?a=%20",
        "http://example.com:8080",
        "https://example.com/a/b",
    ];
    let odd = &[
        "x",
        "https://",
        "https://localhost/",
        "https://127.0.1.1/",
        "https://a.com/\n",
    ];
    let remote = record(vec![
        ("uri", must(mostly(uris, odd))),
        ("validation", may(0.3, validation())),
        ("timeout", may(0.3, ingress::duration())),
        ("cacheDuration", may(0.3, ingress::duration())),
        (
            "dnsLookupFamily",
            may(0.4, any_of(&["auto", "v4", "v6", "all"])),
        ),
    ]);
    let local = record(vec![
        ("secretName", must(ingress::secret_name())),
        ("key", must(mostly(&["jwks"], &["tls.crt", "missing"]))),
    ]);
    let keys = prop_oneof![
        1 => remote.prop_map(|remote| json!({"remoteJWKS": remote})),
        2 => local.prop_map(|local| json!({"localJWKS": local})),
    ];
    let rest = record(vec![
        ("name", must(mostly(&["j1", "j2"], &["%", "ü", "\0"]))),
        ("default", may(0.4, boolean())),
        ("issuer", may(0.5, texts())),
        ("audiences", may(0.5, list(texts(), 0..3))),
        ("forwardJWT", may(0.4, boolean())),
    ]);
    (rest, keys).prop_map(merged).boxed()
}

pub(super) fn jwt_policy() -> Json {
    prop_oneof![
        3 => mostly(&["j1", "j2"], &["%", "missing"]).prop_map(|name| json!({"require": name})),
        1 => just(json!({"disabled": true})),
        1 => just(json!({})),
    ]
    .boxed()
}

pub(super) fn authorization() -> Json {
    let reference = record(vec![
        ("name", must(mostly(&["e1", "e2"], &["missing"]))),
        ("namespace", may(0.2, any_of(&["one", "two"]))),
    ]);
    let text = || {
        mostly(
            &["x-a", "x-"],
            &["X-B", "a b", "ü", ":path", "content-length"],
        )
    };
    let name = prop_oneof![
        2 => text().prop_map(|text| json!({"exact": text})),
        1 => text().prop_map(|text| json!({"prefix": text})),
        1 => text().prop_map(|text| json!({"suffix": text})),
        1 => text().prop_map(|text| json!({"contains": text, "ignoreCase": true})),
    ];
    let names = || list(name.clone().boxed(), 0..3);
    let http = record(vec![
        (
            "pathPrefix",
            may(
                0.5,
                mostly(&["/", "/check", "/check/"], &["/a?b", "/ü", "/a b"]),
            ),
        ),
        ("allowedAuthorizationHeaders", may(0.5, names())),
        ("allowedUpstreamHeaders", may(0.5, names())),
    ]);
    let body = record(vec![
        (
            "maxRequestBytes",
            may(0.8, any_number(&[1, 1_024, 1 << 20, 8 << 20, u32::MAX])),
        ),
        ("allowPartialMessage", may(0.5, boolean())),
        ("packAsBytes", may(0.5, boolean())),
    ]);
    record(vec![
        ("extensionRef", may(0.95, reference)),
        ("serviceType", may(0.6, any_of(&["grpc", "http", "http"]))),
        ("httpSettings", may(0.5, http)),
        ("authPolicy", may(0.3, auth_policy())),
        ("responseTimeout", may(0.3, ingress::duration())),
        ("failOpen", may(0.4, boolean())),
        ("withRequestBody", may(0.4, body)),
    ])
}

pub(super) fn auth_policy() -> Json {
    let value = || mostly(&["a", ""], &["ü", "%REQ(x)%", "\n"]);
    let context = record(vec![("k", may(0.8, value())), ("ü", may(0.3, value()))]);
    record(vec![
        ("disabled", may(0.3, boolean())),
        ("context", may(0.4, context)),
    ])
}
