//! HTTPProxies, what they refer to, and an Ingress.

use serde_json::{Value, json};

use super::{NAME, NAMESPACE, domains, list, named, names, object, path, services, text};

/// The ExtensionService for checks and limits.
pub(super) const EXTENSION: &str = NAME;

pub(super) fn all() -> Vec<Value> {
    let mut all = vec![forwarding(), ingress(), delegation()];
    all.extend(longest());
    all.extend([many(), conditional()]);
    all.extend(extensions());
    all.extend(included());
    all
}

fn proxy(name: &str, spec: Value) -> Value {
    named("projectsesame.io/v1", "HTTPProxy", name, spec)
}

/// The longest name of a Secret, with its namespace.
fn secret() -> String {
    format!("{NAMESPACE}/{}", names(1, 253).collect::<String>())
}

/// The conditions of a request's headers and parameters, each with the longest texts.
fn conditions(count: usize) -> Vec<Value> {
    let condition = |(number, name): (usize, String)| match number % 10 {
        0 => json!({"header": {"name": name, "contains": searched(number)}}),
        1 => json!({"header": {"name": name, "notcontains": searched(number)}}),
        2 => json!({"header": {"name": name, "exact": text(4_096)}}),
        3 => json!({"header": {"name": name, "notexact": text(4_096)}}),
        4 => json!({"header": {"name": name, "regex": regex()}}),
        5 => json!({"queryParameter": {"name": name, "contains": searched(number)}}),
        6 => json!({"queryParameter": {"name": name, "exact": text(4_096)}}),
        7 => json!({"queryParameter": {"name": name, "prefix": text(4_096)}}),
        8 => json!({"queryParameter": {"name": name, "suffix": text(4_096)}}),
        _ => json!({"queryParameter": {"name": name, "regex": regex()}}),
    };
    names(count, 256).enumerate().map(condition).collect()
}

/// A text for `contains`: the longest one, and shorter ones, since parameters share the time of Envoys.
fn searched(number: usize) -> String {
    text(if number < 10 { 721 } else { 64 })
}

/// A regular expression of the maximum length, with a small program.
fn regex() -> String {
    format!("[{}]", text(4_094))
}

fn cookies() -> Vec<Value> {
    let cookie = |name| json!({"name": name, "pathRewrite": {"value": "/a"}, "domainRewrite": {"value": "example.com"}});
    let mut all: Vec<Value> = names(63, 256).map(cookie).collect();
    all.push(json!({
        "name": text(4_096), "pathRewrite": {"value": text(4_096)}, "domainRewrite": {"value": text(4_096)},
    }));
    all
}

fn headers() -> Value {
    let set = |name| json!({"name": name, "value": "a"});
    let mut all: Vec<Value> = names(127, 256).map(set).collect();
    all.push(json!({"name": "x-long", "value": text(4_096)}));
    json!({"set": all, "remove": names(128, 255).collect::<Vec<_>>()})
}

fn hash_policies() -> Value {
    let header = |name| json!({"headerHashOptions": {"headerName": name}});
    let mut parts: Vec<Value> = names(63, 256).map(header).collect();
    parts.push(json!({"queryParameterHashOptions": {"parameterName": text(256)}}));
    json!({"strategy": "RequestHash", "requestHashPolicies": parts})
}

/// Descriptors of at most 4 KiB in all.
pub(super) fn descriptors() -> Value {
    let headers: Vec<Value> = names(16, 6)
        .map(|name| json!({"name": name, "present": true}))
        .collect();
    let matching = json!({"requestHeaderValueMatch": {"headers": headers, "value": "a"}});
    let address = json!({"remoteAddress": {}});
    let descriptor = |number: usize| match number {
        0 => json!({"entries": [matching]}),
        1 => json!({"entries": vec![&address; 16]}),
        _ => json!({"entries": [address]}),
    };
    list(32, descriptor)
}

fn rate_limits() -> Value {
    let added = |name| json!({"name": name, "value": text(4_096)});
    json!({
        "local": {
            "requests": u32::MAX, "unit": "hour", "burst": 0,
            "responseHeadersToAdd": names(10, 256).map(added).collect::<Vec<_>>(),
        },
        "global": {"descriptors": descriptors()},
    })
}

fn validation() -> Value {
    let rest = domains(1).remove(0).split_off(4);
    let names: Vec<String> = (0..8).map(|number| format!("{number}{rest}")).collect();
    json!({"caSecret": secret(), "subjectName": names[0], "subjectNames": names})
}

fn cidrs(count: usize) -> Value {
    let address = |number: usize| match number % 2 {
        0 => {
            json!({"source": "Peer", "cidr": format!("10.{}.{}.0/24", number / 256, number % 256)})
        }
        _ => {
            json!({"source": "Remote", "cidr": format!("2001:0db8:0000:0000:0000:0000:{number:04x}:0000/112")})
        }
    };
    list(count, address)
}

/// One Service of a route with everything that a Service may have, and 31 others.
fn targets() -> Vec<Value> {
    let service =
        |number: usize| json!({"name": services().nth(number % 16), "port": 80, "weight": number});
    let mut all: Vec<Value> = (1..32).map(service).collect();
    all.push(json!({
        "name": services().next(),
        "port": 80,
        "weight": 1_000_000,
        "protocol": "tls",
        "validation": validation(),
        "requestHeadersPolicy": headers(),
        "responseHeadersPolicy": headers(),
        "cookieRewritePolicies": cookies(),
    }));
    all
}

fn context() -> Value {
    let entry = |number: usize| (format!("k{number}"), json!(text(100)));
    (0..32).map(entry).collect()
}

/// A root and its parts, with the longest texts and lists. One HTTPProxy with all of them would exceed the limit on a spec.
fn longest() -> Vec<Value> {
    let texts = |count: usize| names(count, 256).collect::<Vec<_>>();
    let allowed = |number: usize, name: String| match number % 4 {
        0 => json!({"exact": name}),
        1 => json!({"prefix": name}),
        2 => json!({"suffix": name}),
        _ => json!({"contains": name}),
    };
    let mut allowed_headers: Vec<Value> = names(60, 10)
        .enumerate()
        .map(|(number, name)| allowed(number, name))
        .collect();
    allowed_headers.extend(
        names(4, 256)
            .enumerate()
            .map(|(number, name)| allowed(number, name)),
    );
    let uri = "https://keys.example.com/";
    let provider = |(number, name): (usize, String)| {
        // With the keys, 64 KiB in total.
        let audiences = if number == 0 { 64 } else { 16 };
        let audiences: Vec<String> = names(audiences, 6).collect();
        let mut provider = json!({"name": name, "issuer": "a", "audiences": audiences});
        match number {
            0 => provider["localJWKS"] = json!({"secretName": secret(), "key": text(253)}),
            1 => {
                let uri = format!("{uri}{}", text(2_048 - uri.len()));
                provider["remoteJWKS"] = json!({"uri": uri, "validation": validation()});
            }
            _ => provider["remoteJWKS"] = json!({"uri": uri}),
        }
        provider
    };
    let replace = |number: usize| match number {
        0 => json!({"prefix": path(1_024), "replacement": path(1_024)}),
        _ => json!({"prefix": format!("/{number}"), "replacement": "/a"}),
    };
    let range = |number: usize| json!({"start": 200 + number, "end": 201 + number});
    // With the host's settings, as many as possible would exceed the limit of an HTTPProxy; `conditional` has them.
    let mut matching = conditions(27);
    matching.push(json!({"prefix": path(4_096)}));
    let one = json!([{"name": services().next(), "port": 80}]);
    let conditional = json!({"conditions": matching, "services": one});
    let to_targets = json!({"services": targets()});
    let with_headers = json!({
        "services": one,
        "requestHeadersPolicy": headers(),
        "responseHeadersPolicy": headers(),
    });
    let with_policies = json!({
        "services": targets().into_iter().map(plain).collect::<Vec<_>>(),
        "timeoutPolicy": {"response": "infinity", "idle": "infinity", "idleConnection": "infinity"},
        "retryPolicy": {
            "count": u32::MAX, "perTryTimeout": "infinity", "retryOn": vec!["retriable-status-codes"; 16],
            "retriableStatusCodes": list(64, |number| 400 + number),
        },
        "healthCheckPolicy": {
            "path": path(1_024), "host": domains(1)[0], "intervalSeconds": 86_400, "timeoutSeconds": 10,
            "unhealthyThresholdCount": u32::MAX, "healthyThresholdCount": u32::MAX,
            "expectedStatuses": list(64, range),
        },
        "loadBalancerPolicy": hash_policies(),
        "pathRewritePolicy": {"replacePrefix": list(64, replace)},
        "rateLimitPolicy": rate_limits(),
        "internalRedirectPolicy": {
            "maxInternalRedirects": u32::MAX, "redirectResponseCodes": [301, 302, 303, 307, 308],
        },
        "ipDenyPolicy": cidrs(1_024),
    });
    // Each of the 32 Services above would have a copy of these changes, which would exceed the limit of an HTTPProxy.
    let rewritten = json!({"services": one, "cookieRewritePolicies": cookies()});
    let redirect = json!({
        "conditions": [{"regex": format!("/[{}]", text(4_093))}],
        "requestRedirectPolicy": {"hostname": domains(1)[0], "path": path(1_024), "statusCode": 308},
    });
    let response = json!({
        "conditions": [{"exact": path(4_096)}],
        "directResponsePolicy": {"statusCode": 599, "body": text(4_096)},
        "ipAllowPolicy": cidrs(1_024),
    });
    let origins: Vec<String> = names(128, 63)
        .map(|name| format!("https://{name}.example.com"))
        .collect();
    let parts = [
        conditional,
        to_targets,
        with_headers,
        with_policies,
        rewritten,
        redirect,
        response,
    ];
    // A prefix would make the longest paths longer.
    let include = |number: usize| match number {
        1..=4 => {
            json!({"name": format!("part-{number}"), "conditions": [{"prefix": format!("/{number}")}]})
        }
        _ => json!({"name": format!("part-{number}")}),
    };
    let includes = list(parts.len(), include);
    let parts = parts.into_iter().enumerate();
    let parts =
        parts.map(|(number, route)| proxy(&format!("part-{number}"), json!({"routes": [route]})));
    let root = object(
        "projectsesame.io/v1",
        "HTTPProxy",
        json!({
            "ingressClassName": "sesame",
            "virtualhost": {
                "fqdn": domains(1)[0],
                "tls": {"secretName": secret()},
                "corsPolicy": {
                    "allowOrigin": origins, "allowMethods": texts(64), "allowHeaders": texts(128),
                    "exposeHeaders": texts(128),
                },
                "authorization": {
                    "extensionRef": {"name": EXTENSION, "namespace": NAMESPACE},
                    "serviceType": "http",
                    "httpSettings": {
                        "allowedAuthorizationHeaders": allowed_headers, "allowedUpstreamHeaders": allowed_headers,
                    },
                },
                "rateLimitPolicy": rate_limits(),
                "jwtProviders": names(64, 253).enumerate().map(provider).collect::<Vec<_>>(),
            },
            "includes": includes,
        }),
    );
    parts.chain([root]).collect()
}

/// A root with as many routes and inclusions as possible.
fn many() -> Value {
    let route = |number: usize| json!({"conditions": [{"prefix": format!("/{number}")}], "services": [{"name": services().next(), "port": 80}]});
    let include =
        |number: usize| json!({"name": "leaf", "conditions": [{"prefix": format!("/i{number}")}]});
    let host = domains(2).remove(1);
    proxy(
        "many",
        json!({
            "ingressClassName": "sesame",
            // On each route, the instance's authorization would exceed the limit of an HTTPProxy.
            "virtualhost": {"fqdn": host, "authorization": {"authPolicy": {"disabled": true}}},
            "routes": list(1_024, route),
            // Of one HTTPProxy, fewer inclusions than the CRD permits are served.
            "includes": list(512, include),
        }),
    )
}

/// A root with as many conditions on an inclusion as possible.
fn conditional() -> Value {
    let include =
        json!({"name": names(1, 253).next(), "namespace": NAMESPACE, "conditions": conditions(32)});
    let authorization = json!({
        "extensionRef": {"name": EXTENSION, "namespace": NAMESPACE},
        "authPolicy": {"context": context()},
    });
    proxy(
        "conditional",
        json!({
            "ingressClassName": "sesame",
            "virtualhost": {
                "fqdn": domains(4).remove(3), "authorization": authorization, "ipAllowPolicy": cidrs(1_024),
            },
            "includes": [include],
        }),
    )
}

/// HTTPProxies that others include: with one route, and with as many conditions as possible, in two levels.
fn included() -> Vec<Value> {
    let services = json!([{"name": services().next(), "port": 80}]);
    let leaf = json!({"routes": [{"conditions": conditions(32), "services": services}]});
    let long = names(1, 253).next().expect("a name");
    vec![
        proxy(&long, leaf),
        proxy("leaf", json!({"routes": [{"services": services}]})),
    ]
}

/// Forwarded connections, whose Services another HTTPProxy names.
fn forwarding() -> Value {
    let host = domains(3).remove(2);
    proxy(
        "forwarding",
        json!({
            "ingressClassName": "sesame",
            "virtualhost": {"fqdn": host, "tls": {"passthrough": true}},
            "tcpproxy": {"services": targets().into_iter().map(plain).collect::<Vec<_>>()},
        }),
    )
}

/// The Service without what only routes may have.
fn plain(mut service: Value) -> Value {
    let fields = service.as_object_mut().expect("an object");
    fields.retain(|name, _| {
        ["name", "port", "weight", "protocol", "validation"].contains(&name.as_str())
    });
    service
}

/// ExtensionServices with and without TLS.
fn extensions() -> [Value; 2] {
    let service = |number: usize| json!({"name": services().nth(number % 16), "port": 80, "weight": 1_000_000 - number});
    let of = |name: &str, spec: Value| {
        let mut spec = spec;
        spec["services"] = list(128, service);
        named("projectsesame.io/v1alpha1", "ExtensionService", name, spec)
    };
    [
        of(EXTENSION, json!({"protocol": "h2c"})),
        of(
            "tls",
            json!({"protocol": "h2", "validation": validation(), "loadBalancerPolicy": hash_policies()}),
        ),
    ]
}

fn ingress() -> Value {
    let backend = json!({"service": {"name": services().next(), "port": {"number": 80}}});
    let path = |number: usize| json!({"path": format!("/{number}"), "pathType": "Prefix", "backend": backend});
    let paths = list(16, path);
    let hosts: Vec<String> = names(64, 63)
        .map(|name| format!("{name}.example.com"))
        .collect();
    let rule = |host: &String| json!({"host": host, "http": {"paths": paths}});
    let rules: Vec<Value> = hosts.iter().map(rule).collect();
    let tls = json!([{"hosts": hosts, "secretName": names(1, 253).next()}]);
    let spec = json!({"ingressClassName": "sesame", "tls": tls, "rules": rules});
    object("networking.k8s.io/v1", "Ingress", spec)
}

fn delegation() -> Value {
    let delegation = |number: usize| match number {
        0 => json!({"secretName": NAME, "targetNamespaces": names(1_024, 63).collect::<Vec<_>>()}),
        _ => json!({"secretName": "a", "targetNamespaces": ["a"]}),
    };
    let spec = json!({"delegations": list(1_024, delegation)});
    object("projectsesame.io/v1", "TLSCertificateDelegation", spec)
}
