//! HTTPProxies.

use serde_json::{Value, json};
use sesame_testkit::many::NAMESPACE;

use super::{NAME, Shape, data, list, object, service, slice};
use crate::others::{authorities, certificate, instance};

fn proxy(name: &str, spec: Value) -> Value {
    object("projectsesame.io/v1", "HTTPProxy", name, spec)
}

fn prefix(number: usize) -> Value {
    json!([{"prefix": format!("/p{number}")}])
}

fn route(number: usize) -> Value {
    json!({"conditions": prefix(number), "services": [{"name": "s", "port": 80}]})
}

/// A root with these routes.
fn root(routes: Value) -> Value {
    let host = json!({"fqdn": format!("{NAME}.example.com")});
    proxy(NAME, json!({"virtualhost": host, "routes": routes}))
}

/// A root with 1,024 routes, and these settings of its host.
fn with_host(settings: Value) -> Value {
    let mut root = root(list(1_024, route));
    for (field, value) in settings.as_object().unwrap() {
        root["spec"]["virtualhost"][field] = value.clone();
    }
    root
}

/// A root that includes a proxy many times, with these conditions.
fn includes_at(count: usize, name: &str, conditions: impl Fn(usize) -> Value) -> Value {
    let include = |number| json!({"name": name, "conditions": conditions(number)});
    let mut root = root(json!([]));
    root["spec"]["includes"] = list(count, include);
    root
}

fn includes(count: usize, name: &str) -> Value {
    includes_at(count, name, prefix)
}

fn child(routes: Value) -> Value {
    proxy("child", json!({"routes": routes}))
}

fn text(bytes: usize) -> String {
    "v".repeat(bytes)
}

/// 64 rewritten cookies of 4 KB, for 32 services.
fn cookies(number: usize) -> Value {
    let cookie =
        |number| json!({"name": format!("c{number}"), "pathRewrite": {"value": text(3_800)}});
    let service = |_| json!({"name": "s", "port": 80});
    json!({
        "conditions": prefix(number),
        "services": list(32, service),
        "cookieRewritePolicies": list(64, cookie),
    })
}

/// The same number of services as `count`, 32 for each route.
fn services(count: usize, of: impl Fn(usize) -> Value) -> Value {
    let route = |route: usize| json!({"conditions": prefix(route), "services": list(32, |number| of(route * 32 + number))});
    root(list(count / 32, route))
}

fn ports(count: usize) -> Value {
    services(count, |number| json!({"name": "s", "port": 80 + number}))
}

fn health_ports(count: usize) -> Value {
    services(
        count,
        |number| json!({"name": "s", "port": 80, "healthPort": 1 + number}),
    )
}

fn health_checks(routes: usize, policy: Value) -> Value {
    let route = |route: usize| {
        let service = |number| json!({"name": "s", "port": 80 + (route * 32 + number) % 5_000});
        let mut policy = policy.clone();
        policy["path"] = format!("/{route}").into();
        json!({"conditions": prefix(route), "services": list(32, service), "healthCheckPolicy": policy})
    };
    root(list(routes, route))
}

fn regexes(routes: usize) -> Value {
    let header = |number| json!({"header": {"name": format!("x-{number}"), "regex": format!("a{number}.*b")}});
    let route = |number: usize| {
        let mut route = route(number);
        route["conditions"] = list(8, header);
        route["conditions"][0] = json!({"regex": format!("/r{number}/.*x")});
        route
    };
    root(list(routes, route))
}

/// A Gateway with 64 ports that serve HTTPProxies.
pub(crate) fn open_gateway() -> Value {
    let kinds = json!([
        {"group": "projectsesame.io", "kind": "HTTPProxy"},
        {"group": "networking.k8s.io", "kind": "Ingress"},
    ]);
    let listener = |number| json!({"name": format!("l{number}"), "port": 9_000 + number, "protocol": "HTTP", "allowedRoutes": {"kinds": kinds}});
    let spec = json!({"gatewayClassName": "sesame", "listeners": list(64, listener)});
    object("gateway.networking.k8s.io/v1", "Gateway", "open", spec)
}

fn extension() -> Value {
    let spec = json!({"services": [{"name": "s", "port": 80}], "protocol": "h2c"});
    object(
        "projectsesame.io/v1alpha1",
        "ExtensionService",
        "limits",
        spec,
    )
}

fn limits() -> Vec<Value> {
    let service = json!({"namespace": NAMESPACE, "name": "limits"});
    let limits = json!({"rateLimitService": {"extensionService": service}});
    vec![extension(), instance(limits)]
}

/// Settings of a host that apply to each of its routes.
fn host_shapes() -> Vec<Option<Shape>> {
    let origin = |number| {
        json!(format!(
            "https://o{number}.{}",
            vec!["a".repeat(60); 4].join(".")
        ))
    };
    let header = |number| json!(format!("x-{number}-{}", text(500)));
    let range = |number: usize| json!({"source": "Peer", "cidr": format!("10.{}.{}.0/24", number / 250, number % 250)});
    let added = |number| json!({"name": format!("x-{number}"), "value": text(4_000)});
    let context: Value = (0..32)
        .map(|number| (format!("k{number}"), json!(text(120))))
        .collect();
    let entry = |_| json!({"genericKey": {"value": text(230)}});
    let local = json!({"requests": 1, "unit": "second", "responseHeadersToAdd": list(10, added)});
    let provider = |number| json!({"name": format!("p{number}"), "default": number == 0, "localJWKS": {"secretName": "keys", "key": "jwks"}});
    let remote = |number| {
        json!({"name": format!("p{number}"), "default": number == 0, "issuer": text(300),
            "remoteJWKS": {"uri": format!("https://k{number}.example.com/{}", text(2_000))}})
    };
    let key = json!({"kty": "oct", "alg": "HS256", "k": text(60_000)});
    let keys = data(
        "Secret",
        "keys",
        json!({"jwks": json!({"keys": [key]}).to_string()}),
    );
    let tls = json!({"secretName": "certificate"});
    let secret = data("Secret", "certificate", certificate(0));
    vec![
        shape!(
            "HTTPProxy: CORS with 64 origins of 250 B, 1,024 routes",
            vec![],
            with_host(
                json!({"corsPolicy": {"allowOrigin": list(64, origin), "allowMethods": ["GET"]}})
            ),
        ),
        shape!(
            "HTTPProxy: CORS with 128 headers of 500 B, 1,024 routes",
            vec![],
            with_host(
                json!({"corsPolicy": {"allowOrigin": ["*"], "allowMethods": ["GET"], "allowHeaders": list(128, header)}})
            ),
        ),
        shape!(
            "HTTPProxy: CORS just below the limit, 1,024 routes",
            vec![],
            with_host(
                json!({"corsPolicy": {"allowOrigin": ["*"], "allowMethods": ["GET"], "allowHeaders": [text(500)]}})
            ),
        ),
        shape!(
            "HTTPProxy: CORS just below the limit, 1,024 routes, 4 ports",
            vec![secret.clone(), open_gateway()],
            with_host(
                json!({"tls": tls, "corsPolicy": {"allowOrigin": ["*"], "allowMethods": ["GET"], "allowHeaders": [text(300)]}})
            ),
        ),
        shape!(
            "HTTPProxy: 1,024 ranges, 1,024 routes",
            vec![],
            with_host(json!({"ipAllowPolicy": list(1_024, range)})),
        ),
        shape!("HTTPProxy: 6 routes with 1,000 ranges", vec![], {
            let route = |number| {
                let mut route = route(number);
                route["ipDenyPolicy"] = list(1_000, range);
                route
            };
            root(list(6, route))
        }),
        shape!(
            "HTTPProxy: global rate limit of 4 KB, 1,024 routes",
            limits(),
            with_host(
                json!({"rateLimitPolicy": {"global": {"descriptors": [{"entries": list(14, entry)}]}}})
            ),
        ),
        shape!(
            "HTTPProxy: local rate limit with headers of 40 KB, 1,024 routes",
            vec![],
            with_host(json!({"rateLimitPolicy": {"local": local}})),
        ),
        shape!(
            "HTTPProxy: authorization with a context of 4 KB, 1,024 routes",
            vec![extension()],
            with_host(
                json!({"authorization": {"extensionRef": {"name": "limits"}, "authPolicy": {"context": context}}})
            ),
        ),
        shape!(
            "HTTPProxy: a local JWT provider of 60 KB, 1,024 routes, 4 ports",
            vec![keys.clone(), secret.clone(), open_gateway()],
            with_host(json!({"tls": tls, "jwtProviders": list(1, provider)})),
        ),
        shape!(
            "HTTPProxy: 64 local JWT providers, 1,024 routes",
            vec![keys, secret.clone()],
            with_host(json!({"tls": tls, "jwtProviders": list(64, provider)})),
        ),
        shape!(
            "HTTPProxy: 64 remote JWT providers, 1,024 routes",
            vec![secret.clone()],
            with_host(json!({"tls": tls, "jwtProviders": list(64, remote)})),
        ),
        shape!(
            "HTTPProxy: TLS, 1,024 routes",
            vec![secret],
            with_host(json!({"tls": tls})),
        ),
        shape!(
            "HTTPProxy: 1,024 routes on 64 ports of a Gateway",
            vec![open_gateway()],
            with_host(json!({})),
        ),
    ]
}

/// Proxies that are included.
fn include_shapes() -> Vec<Option<Shape>> {
    let header = json!({"set": [{"name": "x-a", "value": text(100)}]});
    let short = |number| {
        let mut route = route(number);
        route["requestHeadersPolicy"] = header.clone();
        route
    };
    let long = |number| {
        let mut route = route(number);
        route["requestHeadersPolicy"] = json!({"set": [{"name": "x-a", "value": text(60)}]});
        route
    };
    let many_cookies = child(list(1, cookies));
    let mut renamed = many_cookies.clone();
    renamed["metadata"]["name"] = NAME.into();
    vec![
        shape!(
            "HTTPProxy: a route with cookies of 250 KB, 32 services",
            vec![],
            root(list(1, cookies)),
        ),
        shape!(
            "HTTPProxy: 20 inclusions of a route with cookies of 250 KB",
            vec![many_cookies],
            includes(20, "child"),
        ),
        shape!(
            "HTTPProxy: a route with cookies of 250 KB, included 20 times",
            vec![{
                let mut root = includes(20, NAME);
                root["metadata"]["name"] = "root".into();
                root
            }],
            renamed,
        ),
        shape!(
            "HTTPProxy: 1,000 inclusions of 100 routes",
            vec![child(list(100, short))],
            includes(1_000, "child"),
        ),
        shape!(
            "HTTPProxy: 1,000 routes that 300 roots include",
            (0..300)
                .map(|number| {
                    let name = format!("root-{number}");
                    let host = json!({"fqdn": format!("{name}.example.com")});
                    proxy(
                        &name,
                        json!({"virtualhost": host, "includes": [{"name": NAME}]}),
                    )
                })
                .collect(),
            proxy(NAME, json!({"routes": list(1_000, long)})),
        ),
        shape!(
            "HTTPProxy: 1,024 missing inclusions",
            vec![],
            includes(1_024, "missing"),
        ),
        shape!(
            "HTTPProxy: 3 missing inclusions with 16 conditions of 4 KB",
            vec![],
            includes_at(3, "missing", |first| list(16, |number| {
                let exact = format!("{first}{}", text(4_000));
                json!({"header": {"name": format!("x-{number}"), "exact": exact}})
            })),
        ),
        shape!(
            "HTTPProxy: 240 inclusions with 1 KB of conditions, 8 routes each",
            vec![child(list(8, short))],
            includes_at(
                240,
                "child",
                |number| json!([{"prefix": format!("/{number}/{}", text(1_000))}])
            ),
        ),
    ]
}

/// Services that become clusters.
fn cluster_shapes() -> Vec<Option<Shape>> {
    let long = json!({"host": text(40_000)});
    let statuses = list(
        64,
        |number| json!({"start": 100 + number * 2, "end": 101 + number * 2}),
    );
    let statuses = json!({"expectedStatuses": statuses, "host": "a.example.com"});
    let tls = |number| json!({"name": "s", "port": 80, "protocol": "tls", "validation": {"caSecret": "ca", "subjectName": format!("h{number}")}});
    let slow = |number| json!({"name": "s", "port": 80, "slowStartPolicy": {"window": format!("{}ms", number + 1)}});
    let missing = |number| json!({"name": "s", "port": 30_000 + number});
    let wide = service("s", 5_000);
    let ca = |bytes| data("Secret", "ca", json!({"ca.crt": authorities(bytes)}));
    let with_slice = vec![service("s", 5_000), slice("s", 1, 1_000)];
    vec![
        shape!("HTTPProxy: 220 routes with a header of 1 KB", vec![], {
            let header = json!({"set": [{"name": "x-a", "value": text(1_000)}]});
            let route = |number| {
                let mut route = route(number);
                route["requestHeadersPolicy"] = header.clone();
                route
            };
            root(list(220, route))
        }),
        shape!("HTTPProxy: 4,096 ports", vec![wide.clone()], ports(4_096)),
        shape!(
            "HTTPProxy: 4,096 missing ports",
            vec![],
            services(4_096, missing),
        ),
        shape!("HTTPProxy: 4,096 health ports", vec![], health_ports(4_096),),
        shape!(
            "HTTPProxy: 2,080 names of certificates",
            vec![ca(0)],
            services(2_080, tls),
        ),
        shape!(
            "HTTPProxy: 3,200 slow starts",
            vec![],
            services(3_200, slow),
        ),
        shape!(
            "HTTPProxy: 3,200 slow starts, 1,000 endpoints",
            with_slice,
            services(3_200, slow),
        ),
        shape!(
            "EndpointSlice: 1,000 endpoints, 3,200 slow starts",
            vec![services(3_200, slow)],
            slice("s", 1, 1_000),
        ),
        shape!(
            "HTTPProxy: health checks of 40 KB for 6 times 32 services",
            vec![service("s", 5_000)],
            health_checks(6, long),
        ),
        shape!(
            "HTTPProxy: health checks with 64 statuses for 90 times 32 services",
            vec![service("s", 5_000)],
            health_checks(90, statuses),
        ),
        shape!(
            "HTTPProxy: 650 regular expressions for paths, 4,550 for headers",
            vec![],
            regexes(650),
        ),
        shape!(
            "HTTPProxy: 32 services for connections",
            vec![
                service("s", 32),
                data("Secret", "certificate", certificate(0)),
            ],
            {
                let mut root = root(json!([]));
                root["spec"]["virtualhost"]["tls"] = json!({"secretName": "certificate"});
                root["spec"]["tcpproxy"] = json!({"services": list(32, |number| json!({"name": "s", "port": 80 + number}))});
                root
            },
        ),
    ]
}

pub(crate) fn shapes() -> Vec<Option<Shape>> {
    [host_shapes(), include_shapes(), cluster_shapes()]
        .into_iter()
        .flatten()
        .map(|shape| shape.map(Shape::copied))
        .collect()
}
