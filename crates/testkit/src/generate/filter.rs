//! Rule and backend filters.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::json::{
    Json, any_number, any_of, boolean, just, list, may, mostly, must, number, record, unique_list,
};
use super::{pool, route};

/// Any rule filter.
pub(super) fn filter() -> Json {
    prop_oneof![
        170 => backend_filter(),
        40 => typed("RequestRedirect", "requestRedirect", redirect()),
        40 => typed("CORS", "cors", cors()),
        20 => external_auth(),
        1 => refused(),
    ]
    .boxed()
}

/// Any listener filter.
pub(super) fn listener_filter() -> Json {
    let extension = json!({"group": "example.net", "kind": "Filter", "name": "f"});
    prop_oneof![
        9 => external_auth(),
        1 => just(json!({"type": "ExtensionRef", "extensionRef": extension})),
    ]
    .boxed()
}

/// Any backend filter. Filters allowed only in rules are rare, since they invalidate the rule.
pub(super) fn backend_filter() -> Json {
    prop_oneof![
        50 => typed("RequestHeaderModifier", "requestHeaderModifier", headers()),
        40 => typed("ResponseHeaderModifier", "responseHeaderModifier", headers()),
        40 => typed("RequestMirror", "requestMirror", mirror()),
        40 => typed("URLRewrite", "urlRewrite", rewrite()),
        1 => typed("CORS", "cors", cors()),
        1 => external_auth(),
        1 => refused(),
    ]
    .boxed()
}

/// Any GRPCRoute filter.
pub(super) fn grpc_filter() -> Json {
    let extension = json!({"group": "example.net", "kind": "Filter", "name": "f"});
    prop_oneof![
        50 => typed("RequestHeaderModifier", "requestHeaderModifier", headers()),
        40 => typed("ResponseHeaderModifier", "responseHeaderModifier", headers()),
        40 => typed("RequestMirror", "requestMirror", mirror()),
        1 => just(json!({"type": "ExtensionRef", "extensionRef": extension})),
    ]
    .boxed()
}

fn typed(type_: &'static str, field: &'static str, body: Json) -> Json {
    body.prop_map(move |body| json!({"type": type_, field: body}))
        .boxed()
}

/// Unsupported filters.
fn refused() -> Json {
    let extension = json!({"group": "example.net", "kind": "Filter", "name": "f"});
    prop_oneof![
        just(json!({"type": "ExtensionRef", "extensionRef": extension})),
        just(json!({"type": "Newer"})),
    ]
    .boxed()
}

/// A header name. Invalid ones are rare, since they invalidate the whole rule.
pub(super) fn header_name() -> Json {
    prop_oneof![19 => any_of(pool::HEADERS), 1 => any_of(pool::ODD_HEADERS)].boxed()
}

pub(super) fn header_value() -> Json {
    let any_text = "[ -~]{1,12}".prop_map(Value::from);
    prop_oneof![
        6 => any_of(pool::VALUES),
        2 => any_of(pool::ODD_VALUES),
        1 => any_text,
    ]
    .boxed()
}

fn headers() -> Json {
    let header = || {
        record(vec![
            ("name", must(header_name())),
            ("value", must(header_value())),
        ])
    };
    let removed = prop_oneof![
        60 => header_name(),
        1 => any_of(pool::REMOVED_HEADERS),
    ];
    record(vec![
        ("set", may(0.5, unique_list(header(), 0..3, "name"))),
        ("add", may(0.5, unique_list(header(), 0..3, "name"))),
        ("remove", may(0.3, unique_list(removed.boxed(), 0..3, ""))),
    ])
}

fn mirror() -> Json {
    let fraction = prop_oneof![
        just(json!({"numerator": 0})),
        just(json!({"numerator": 50})),
        just(json!({"numerator": 1, "denominator": 3})),
        just(json!({"numerator": 1, "denominator": 1})),
        just(json!({"numerator": 1, "denominator": 2_147_483_647})),
        just(json!({"numerator": 2_147_483_646, "denominator": 2_147_483_647})),
    ];
    (
        route::backend_object(),
        prop_oneof![
            3 => just(Value::Null),
            2 => number(0..101),
            2 => fraction,
        ],
    )
        .prop_map(|(backend, share)| match share {
            Value::Null => json!({"backendRef": backend}),
            Value::Number(percent) => json!({"backendRef": backend, "percent": percent}),
            fraction => json!({"backendRef": backend, "fraction": fraction}),
        })
        .boxed()
}

/// An ExternalAuth filter. Unknown protocols are rare, since they invalidate the whole rule.
fn external_auth() -> Json {
    let names = || unique_list(header_name(), 0..3, "");
    let http = record(vec![
        (
            "path",
            may(0.5, any_of(&["/check", "check/", "/", "/a/%20b"])),
        ),
        ("allowedHeaders", may(0.5, names())),
        ("allowedResponseHeaders", may(0.5, names())),
    ]);
    let grpc = record(vec![("allowedHeaders", may(0.5, names()))]);
    let protocol = prop_oneof![
        20 => http.prop_map(|http| json!({"protocol": "HTTP", "http": http})),
        20 => grpc.prop_map(|grpc| json!({"protocol": "GRPC", "grpc": grpc})),
        1 => just(json!({"protocol": "LDAP"})),
    ];
    let body = any_number(&[0, 1, 65_536, 8 << 20, 2_147_483_647]);
    let body = record(vec![("maxSize", may(0.9, body))]);
    (protocol, route::backend_object(), may(0.3, body))
        .prop_map(|(mut auth, backend, body)| {
            auth["backendRef"] = backend;
            if let Some(body) = body {
                auth["forwardBody"] = body;
            }
            json!({"type": "ExternalAuth", "externalAuth": auth})
        })
        .boxed()
}

fn path_modifier() -> Json {
    let path = || mostly(pool::REPLACEMENTS, pool::ODD_REPLACEMENTS);
    prop_oneof![
        20 => path().prop_map(|path| json!({"type": "ReplaceFullPath", "replaceFullPath": path})),
        20 => path().prop_map(|path| json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": path})),
        1 => just(json!({"type": "ReplaceRegex"})),
    ]
    .boxed()
}

fn rewrite() -> Json {
    record(vec![
        ("hostname", may(0.5, any_of(pool::HOSTS))),
        ("path", may(0.7, path_modifier())),
    ])
}

fn scheme() -> Json {
    prop_oneof![29 => any_of(&["http", "https"]), 1 => any_of(&["ftp", "HTTP", ""])].boxed()
}

fn redirect() -> Json {
    record(vec![
        ("scheme", may(0.5, scheme())),
        ("hostname", may(0.5, any_of(pool::HOSTS))),
        ("path", may(0.5, path_modifier())),
        ("port", may(0.5, any_number(&[80, 443, 8080, 1, 65_535]))),
        (
            "statusCode",
            may(0.6, any_number(&[301, 302, 303, 307, 308])),
        ),
    ])
}

fn cors() -> Json {
    let all_or = |names: Json| prop_oneof![1 => just(json!(["*"])), 3 => names].boxed();
    let origins = || unique_list(mostly(pool::ORIGINS, pool::ODD_ORIGINS), 0..4, "");
    let methods = || unique_list(mostly(pool::METHODS, pool::ODD_METHODS), 0..4, "");
    let names = || unique_list(header_name(), 0..4, "");
    let exposed = || {
        let starred = prop_oneof![9 => header_name(), 1 => just("*")];
        list(starred.boxed(), 0..3)
            .prop_map(|mut list| {
                super::json::dedup(&mut list, Value::to_string);
                list
            })
            .boxed()
    };
    record(vec![
        ("allowOrigins", may(0.8, all_or(origins()))),
        ("allowCredentials", may(0.5, boolean())),
        ("allowMethods", may(0.7, all_or(methods()))),
        ("allowHeaders", may(0.7, all_or(names()))),
        ("exposeHeaders", may(0.5, exposed())),
        (
            "maxAge",
            may(0.5, any_number(&[1, 5, 86_400, 2_147_483_647])),
        ),
    ])
}
