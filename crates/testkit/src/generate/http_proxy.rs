//! HTTPProxies, and the objects that they refer to.

mod checks;

use proptest::prelude::*;
use serde_json::{Value, json};

use self::checks::{auth_policy, authorization, jwt_policy, jwt_provider};
use super::filter::{header_name, header_value};
use super::json::{
    Json, any_number, any_of, boolean, just, list, may, mostly, must, number, record,
};
use super::{ingress, pool, route};

/// Names of HTTPProxies: roots and their children.
const PROXIES: &[&str] = &["p1", "p2", "p3", "p4", "p5"];

pub(super) fn http_proxy() -> Json {
    let include = record(vec![
        ("name", must(mostly(PROXIES, &["missing"]))),
        ("namespace", may(0.4, any_of(&["one", "two"]))),
        ("conditions", may(0.6, conditions())),
    ]);
    let spec = record(vec![
        ("virtualhost", may(0.6, virtual_host())),
        ("routes", may(0.9, list(http_route(), 0..4))),
        ("includes", may(0.5, list(include, 0..3))),
        ("tcpproxy", may(0.1, tcp_proxy())),
        ("ingressClassName", may(0.8, ingress::class_name())),
    ]);
    object(
        "v1",
        "HTTPProxy",
        super::metadata(PROXIES, &["one", "one", "two"]),
        spec,
    )
}

pub(super) fn delegation() -> Json {
    let delegation = record(vec![
        ("secretName", must(mostly(pool::SECRETS, &["*", "missing"]))),
        (
            "targetNamespaces",
            must(list(any_of(&["one", "two", "*"]), 0..3)),
        ),
    ]);
    object(
        "v1",
        "TLSCertificateDelegation",
        super::metadata(&["d1", "d2"], pool::NAMESPACES),
        record(vec![("delegations", must(list(delegation, 0..3)))]),
    )
}

pub(super) fn extension_service() -> Json {
    let service = record(vec![
        ("name", must(mostly(pool::SERVICES, &["missing"]))),
        ("port", must(any_number(pool::SERVICE_PORTS))),
        ("weight", may(0.5, any_number(&[0, 1, 8, 1_000_000]))),
    ]);
    let limit = || any_number(&[0, 1, u32::MAX]);
    let limits = record(vec![
        ("maxConnections", may(0.5, limit())),
        ("maxPendingRequests", may(0.5, limit())),
        ("maxRequests", may(0.5, limit())),
        ("maxRetries", may(0.5, limit())),
        ("perHostMaxConnections", may(0.5, limit())),
    ]);
    let spec = record(vec![
        ("services", must(list(service, 1..4))),
        (
            "protocol",
            may(0.8, any_of(&["h2", "h2c", "h2c", "http/1.1"])),
        ),
        ("validation", may(0.2, validation())),
        ("loadBalancerPolicy", may(0.2, balancing())),
        ("timeoutPolicy", may(0.2, timeouts())),
        ("circuitBreakerPolicy", may(0.2, limits)),
    ]);
    object(
        "v1alpha1",
        "ExtensionService",
        super::metadata(&["e1", "e2"], &["one", "two"]),
        spec,
    )
}

/// An object of Sesame's group, or of Contour's.
fn object(version: &'static str, kind: &'static str, metadata: Json, spec: Json) -> Json {
    let group = prop_oneof![4 => Just("projectsesame.io"), 1 => Just("projectcontour.io")];
    (group, metadata, spec)
        .prop_map(move |(group, metadata, spec)| {
            let api_version = format!("{group}/{version}");
            json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
        })
        .boxed()
}

fn virtual_host() -> Json {
    let forwarded = record(vec![
        ("subject", may(0.5, boolean())),
        ("cert", may(0.5, boolean())),
        ("chain", may(0.5, boolean())),
        ("dns", may(0.5, boolean())),
        ("uri", may(0.5, boolean())),
    ]);
    let validation = record(vec![
        ("caSecret", may(0.8, ingress::secret_name())),
        ("skipClientCertValidation", may(0.3, boolean())),
        ("optionalClientCertificate", may(0.3, boolean())),
        ("crlSecret", may(0.4, ingress::secret_name())),
        ("crlOnlyVerifyLeafCert", may(0.3, boolean())),
        ("forwardClientCertificate", may(0.4, forwarded)),
    ]);
    let terminate = record(vec![
        ("secretName", may(0.95, ingress::secret_name())),
        (
            "minimumProtocolVersion",
            may(0.2, any_of(&["1.2", "1.3", "1.1"])),
        ),
        (
            "maximumProtocolVersion",
            may(0.2, any_of(&["1.2", "1.3", "7"])),
        ),
        ("enableFallbackCertificate", may(0.3, boolean())),
        ("clientValidation", may(0.2, validation)),
    ]);
    let tls = prop_oneof![5 => terminate, 1 => just(json!({"passthrough": true}))];
    (
        record(vec![
            ("fqdn", must(any_of(pool::HOSTNAMES))),
            ("tls", may(0.5, tls.boxed())),
            ("corsPolicy", may(0.2, cors())),
            ("rateLimitPolicy", may(0.1, rate_limit())),
            ("authorization", may(0.3, authorization())),
            ("jwtProviders", may(0.15, list(jwt_provider(), 0..3))),
        ]),
        addresses(),
    )
        .prop_map(merged)
        .boxed()
}

fn cors() -> Json {
    let origins = prop_oneof![
        3 => any_of(pool::ORIGINS),
        1 => any_of(pool::ODD_ORIGINS),
        1 => any_of(&["*", "null", "https://[^.]+\\.example\\.com"]),
        1 => route::regex().prop_filter_map("empty", |regex| (!regex.is_empty()).then(|| regex.into())),
    ];
    let texts = || list(mostly(&["GET", "*", "x-a"], &["a b", "ü"]), 1..3);
    record(vec![
        ("allowOrigin", must(list(origins.boxed(), 1..4))),
        ("allowMethods", must(texts())),
        ("allowHeaders", may(0.5, texts())),
        ("exposeHeaders", may(0.5, texts())),
        ("allowCredentials", may(0.5, boolean())),
        ("allowPrivateNetwork", may(0.2, boolean())),
        (
            "maxAge",
            may(
                0.5,
                mostly(&["10m", "0s", "-1s"], &["", "soon", "99999999999h"]),
            ),
        ),
    ])
}

/// Allowed or denied addresses.
fn addresses() -> Json {
    let filter = record(vec![
        ("source", must(any_of(&["Peer", "Remote"]))),
        (
            "cidr",
            must(mostly(
                &["10.0.0.0/8", "::/0", "192.0.2.1"],
                &["10.0.0.1/33", "x", "::1/129", "0"],
            )),
        ),
    ]);
    let filters = list(filter, 0..3);
    prop_oneof![
        6 => just(json!({})),
        1 => filters.clone().prop_map(|filters| json!({"ipAllowPolicy": filters})),
        1 => filters.prop_map(|filters| json!({"ipDenyPolicy": filters})),
    ]
    .boxed()
}

fn conditions() -> Json {
    let regex = || route::regex().prop_map(Value::from);
    let path = prop_oneof![
        6 => mostly(pool::PATHS, pool::ODD_PATHS).prop_map(|path| json!({"prefix": path})),
        3 => mostly(pool::PATHS, pool::ODD_PATHS).prop_map(|path| json!({"exact": path})),
        2 => regex().prop_map(|regex| json!({"regex": regex})),
        1 => just(json!({})),
    ];
    let text =
        || prop_oneof![4 => header_value(), 1 => any_of(pool::ODD_QUERY_VALUES), 1 => just("")];
    let header = prop_oneof![
        just(json!({"present": true})),
        just(json!({"notpresent": true})),
        text().prop_map(|text| json!({"contains": text})),
        text().prop_map(|text| json!({"notcontains": text})),
        text().prop_map(|text| json!({"exact": text})),
        text().prop_map(|text| json!({"notexact": text})),
        regex().prop_map(|regex| json!({"regex": regex})),
    ];
    let header = (
        record(vec![
            ("name", must(header_name())),
            ("ignoreCase", may(0.3, boolean())),
            ("treatMissingAsEmpty", may(0.3, boolean())),
        ]),
        header,
    );
    let parameter = prop_oneof![
        just(json!({"present": true})),
        text().prop_map(|text| json!({"exact": text})),
        text().prop_map(|text| json!({"prefix": text})),
        text().prop_map(|text| json!({"suffix": text})),
        text().prop_map(|text| json!({"contains": text})),
        regex().prop_map(|regex| json!({"regex": regex})),
    ];
    let parameter = (
        record(vec![
            ("name", must(mostly(&["q", "Q", "a b"], &["ü", "%", "\0"]))),
            ("ignoreCase", may(0.3, boolean())),
        ]),
        parameter,
    );
    let rest = record(vec![
        ("header", may(0.2, header.prop_map(merged).boxed())),
        (
            "queryParameter",
            may(0.2, parameter.prop_map(merged).boxed()),
        ),
    ]);
    list((path, rest).prop_map(merged).boxed(), 0..3)
}

fn http_route() -> Json {
    let response = record(vec![
        ("statusCode", must(any_number(&[200, 204, 418, 503, 599]))),
        (
            "body",
            may(0.5, mostly(&["hello"], &["", "%REQ(host)%", "☃"])),
        ),
    ]);
    let action = prop_oneof![
        7 => list(service(), 1..4).prop_map(|services| json!({"services": services})),
        1 => redirect().prop_map(|redirect| json!({"requestRedirectPolicy": redirect})),
        1 => response.prop_map(|response| json!({"directResponsePolicy": response})),
    ];
    let fields = record(vec![
        ("conditions", may(0.8, conditions())),
        ("enableWebsockets", may(0.2, boolean())),
        ("permitInsecure", may(0.3, boolean())),
        ("authPolicy", may(0.2, auth_policy())),
        ("timeoutPolicy", may(0.2, timeouts())),
        ("retryPolicy", may(0.2, retry())),
        ("healthCheckPolicy", may(0.2, http_health())),
        ("loadBalancerPolicy", may(0.3, balancing())),
        ("pathRewritePolicy", may(0.2, rewrite())),
        ("requestHeadersPolicy", may(0.2, headers())),
        ("responseHeadersPolicy", may(0.2, headers())),
        ("cookieRewritePolicies", may(0.1, cookies())),
        ("rateLimitPolicy", may(0.15, rate_limit())),
        ("internalRedirectPolicy", may(0.15, internal_redirect())),
        ("jwtVerificationPolicy", may(0.1, jwt_policy())),
    ]);
    ((fields, action).prop_map(merged), addresses())
        .prop_map(merged)
        .boxed()
}

fn tcp_proxy() -> Json {
    let include = record(vec![
        ("name", must(any_of(PROXIES))),
        ("namespace", may(0.3, any_of(&["one", "two"]))),
    ]);
    record(vec![
        ("services", may(0.7, list(service(), 0..3))),
        ("include", may(0.3, include)),
        ("loadBalancerPolicy", may(0.3, balancing())),
        ("healthCheckPolicy", may(0.3, health())),
    ])
}

fn service() -> Json {
    let slow_start = record(vec![
        ("window", must(ingress::duration())),
        (
            "aggression",
            may(0.5, mostly(&["1.0", "0.5"], &["0", "-1", "fast", "NaN"])),
        ),
        ("minWeightPercent", may(0.5, number(0..101))),
    ]);
    record(vec![
        ("name", must(mostly(pool::SERVICES, &["missing"]))),
        ("port", must(any_number(pool::SERVICE_PORTS))),
        ("healthPort", may(0.1, any_number(&[8080, 1]))),
        ("protocol", may(0.2, any_of(&["h2", "h2c", "tls"]))),
        ("weight", may(0.5, any_number(&[0, 1, 10, 1_000_000]))),
        ("validation", may(0.15, validation())),
        ("mirror", may(0.1, boolean())),
        ("requestHeadersPolicy", may(0.15, headers())),
        ("responseHeadersPolicy", may(0.15, headers())),
        ("cookieRewritePolicies", may(0.1, cookies())),
        ("slowStartPolicy", may(0.1, slow_start)),
    ])
}

fn validation() -> Json {
    (
        ingress::secret_name(),
        mostly(pool::HOSTNAMES, &["ü", "a b"]),
        any::<bool>(),
    )
        .prop_map(|(secret, name, both)| {
            let mut validation = json!({"caSecret": secret, "subjectName": name});
            if both {
                validation["subjectNames"] = json!([name, "other.example.com"]);
            }
            validation
        })
        .boxed()
}

fn timeouts() -> Json {
    record(vec![
        ("response", may(0.6, ingress::duration())),
        ("idle", may(0.6, ingress::duration())),
        ("idleConnection", may(0.6, ingress::duration())),
    ])
}

fn retry() -> Json {
    let words = any_of(&[
        "5xx",
        "gateway-error",
        "reset",
        "retriable-4xx",
        "retriable-status-codes",
        "cancelled",
    ]);
    let counts = prop::sample::select(vec![-1i64, 0, 1, 5, 4_294_967_295]).prop_map(Value::from);
    record(vec![
        ("count", may(0.7, counts.boxed())),
        ("perTryTimeout", may(0.5, ingress::duration())),
        ("retryOn", may(0.6, list(words, 0..3))),
        (
            "retriableStatusCodes",
            may(0.4, list(any_number(&[409, 503]), 0..3)),
        ),
    ])
}

fn health() -> Json {
    let seconds = || any_number(&[0, 1, 60, 86_400]);
    record(vec![
        ("intervalSeconds", may(0.6, seconds())),
        ("timeoutSeconds", may(0.6, seconds())),
        ("unhealthyThresholdCount", may(0.4, number(0..5))),
        ("healthyThresholdCount", may(0.4, number(0..5))),
    ])
}

fn http_health() -> Json {
    let range = json!({"start": 200, "end": 300});
    let rest = record(vec![
        (
            "path",
            must(mostly(pool::PATHS, &["/a b", "/ü", "/\n", "/%"])),
        ),
        (
            "host",
            may(0.4, mostly(pool::HOSTNAMES, &["", "a b", "\n"])),
        ),
        (
            "expectedStatuses",
            may(0.3, just(json!([range, {"start": 100, "end": 600}]))),
        ),
    ]);
    (health(), rest).prop_map(merged).boxed()
}

fn balancing() -> Json {
    let strategies = any_of(&[
        "RoundRobin",
        "WeightedLeastRequest",
        "Random",
        "Cookie",
        "RequestHash",
        "RequestHash",
        "Newest",
    ]);
    let header = header_name().prop_map(|name| json!({"headerHashOptions": {"headerName": name}}));
    let parameter = mostly(&["q", "Q"], &["ü", "a b"])
        .prop_map(|name| json!({"queryParameterHashOptions": {"parameterName": name}}));
    let part = prop_oneof![
        3 => header,
        2 => parameter,
        2 => just(json!({"hashSourceIP": true})),
        1 => just(json!({})),
    ];
    let part = (part, record(vec![("terminal", may(0.4, boolean()))])).prop_map(merged);
    record(vec![
        ("strategy", may(0.9, strategies)),
        ("requestHashPolicies", may(0.5, list(part.boxed(), 0..4))),
    ])
}

fn rewrite() -> Json {
    let replace = record(vec![
        (
            "prefix",
            may(0.5, mostly(&["/", "/a", "/b"], &["a", "/a/"])),
        ),
        (
            "replacement",
            must(mostly(
                &["/", "/x", "/x/"],
                &["x", "//", "/x?q", "/\\1", "/%", "/\n", "/x#f"],
            )),
        ),
    ]);
    record(vec![("replacePrefix", may(0.9, list(replace, 0..3)))])
}

fn headers() -> Json {
    let value = prop_oneof![
        4 => header_value(),
        1 => any_of(&["%HOSTNAME%", "%REQ(x-a)%", "%PROTOCOL%", "%SESAME_NAMESPACE%", "%"]),
    ];
    let set = record(vec![
        ("name", must(header_name())),
        ("value", must(value.boxed())),
    ]);
    let remove = mostly(pool::HEADERS, &[":path", "a b", "ü", "x:y"]);
    record(vec![
        ("set", may(0.7, list(set, 0..3))),
        ("remove", may(0.4, list(remove, 0..3))),
    ])
}

fn cookies() -> Json {
    let value = mostly(&["/", "100%"], &["/é"]).prop_map(|value| json!({"value": value}));
    let policy = record(vec![
        ("name", must(mostly(&["c", "d", "e"], &["é"]))),
        ("pathRewrite", may(0.5, value.boxed())),
        ("secure", must(boolean())),
        ("sameSite", may(0.3, any_of(&["Lax", "None"]))),
    ]);
    list(policy, 1..3)
}

fn rate_limit() -> Json {
    let added = record(vec![
        ("name", must(header_name())),
        ("value", must(header_value())),
    ]);
    let local = record(vec![
        ("requests", must(any_number(&[1, 100, u32::MAX]))),
        ("unit", must(any_of(&["second", "minute", "hour"]))),
        ("burst", may(0.5, any_number(&[0, 10, u32::MAX]))),
        ("responseStatusCode", may(0.3, any_number(&[429, 503]))),
        ("responseHeadersToAdd", may(0.3, list(added, 0..3))),
    ]);
    let global = json!({"descriptors": [{"entries": [{"remoteAddress": {}}]}]});
    record(vec![
        ("local", may(0.9, local)),
        ("global", may(0.1, just(global))),
    ])
}

fn redirect() -> Json {
    let target = prop_oneof![
        2 => just(json!({})),
        1 => mostly(pool::PATHS, &["/a?b", "/ü", "/%", "/#"]).prop_map(|path| json!({"path": path})),
        1 => mostly(pool::PATHS, &["/a?b", "/ü", "/%", "/#"]).prop_map(|path| json!({"prefix": path})),
    ];
    let rest = record(vec![
        ("scheme", may(0.4, any_of(&["http", "https"]))),
        (
            "hostname",
            may(0.4, any_of(&["example.com", "a.example.com"])),
        ),
        ("port", may(0.3, any_number(&[80, 443, 8443]))),
        (
            "statusCode",
            may(0.6, any_number(&[301, 302, 303, 307, 308])),
        ),
    ]);
    (target, rest).prop_map(merged).boxed()
}

fn internal_redirect() -> Json {
    record(vec![
        (
            "maxInternalRedirects",
            may(0.5, any_number(&[0, 1, 10, u32::MAX])),
        ),
        (
            "redirectResponseCodes",
            may(0.5, list(any_number(&[301, 302, 303, 307, 308]), 0..3)),
        ),
        (
            "allowCrossSchemeRedirect",
            may(0.5, any_of(&["Always", "Never", "SafeOnly"])),
        ),
        ("denyRepeatedRouteRedirect", may(0.5, boolean())),
    ])
}

/// The fields of both mappings.
fn merged((mut one, two): (Value, Value)) -> Value {
    if let (Some(fields), Value::Object(more)) = (one.as_object_mut(), two) {
        fields.extend(more);
    }
    one
}
