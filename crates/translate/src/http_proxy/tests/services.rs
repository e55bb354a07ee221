//! Services as backends, and policies for requests to them.

use std::time::Duration;

use sesame_model::{Action, Balancing, HashOf, PartsPerMillion, Target};

use super::super::testing::World;
use super::{forward, outcome, refused, route, spec};

#[test]
fn weights_share_requests() {
    let services = |weights: [u32; 3]| {
        let [a, b, c] = weights;
        let list = format!(
            "[{{services: [{{name: one, port: 80, weight: {a}}}, {{name: two, port: 80, weight: {b}}}, \
             {{name: missing, port: 80, weight: {c}}}]}}]"
        );
        outcome(&list)
    };
    let (routes, status) = services([3, 1, 5]);
    assert_eq!(routes, "/ / -> shop/one:80*3 + shop/two:80*1\n");
    assert_eq!(
        status,
        "invalid\nerror ServiceError ServiceNotFound: spec.routes[0].services[2]: Service shop/missing does not exist\n"
    );
    let even = "/ / -> shop/one:80*1 + shop/two:80*1\n";
    assert_eq!(services([0, 0, 0]).0, even);
    assert_eq!(services([0, 0, 5]).0, even);
    assert_eq!(
        services([0, 2, 0]).0,
        "/ / -> shop/one:80*0 + shop/two:80*2\n"
    );
    let (routes, _) = outcome("[{services: [{name: missing, port: 80}]}]");
    assert_eq!(routes, "/ / -> 503\n");
}

#[test]
fn a_mirror_gets_a_percentage() {
    let services = |weight: u32| {
        format!(
            "[{{services: [{{name: one, port: 80}}, {{name: two, port: 80, mirror: true, weight: {weight}}}]}}]"
        )
    };
    let routes = |weight| outcome(&services(weight)).0;
    assert_eq!(routes(0), "/ / -> shop/one:80, 100% to shop/two:80\n");
    assert_eq!(routes(7), "/ / -> shop/one:80, 7% to shop/two:80\n");
    assert_eq!(routes(101), "/ / -> 503\n");
    let mirror = "{name: two, port: 80, mirror: true}";
    refused(&format!("services: [{mirror}]"));
    refused(&format!(
        "services: [{{name: one, port: 80}}, {mirror}, {mirror}]"
    ));
    let one = route(&format!(
        "services: [{{name: one, port: 80}}, {}]",
        "{name: two, port: 80, mirror: true, weight: 30}"
    ));
    let Action::Forward(forward) = one.action else {
        panic!("{one:?}");
    };
    assert_eq!(forward.mirrors[0].share, Some(PartsPerMillion(300_000)));
}

#[test]
fn protocols_and_settings_are_part_of_the_cluster() {
    let cluster = |service: &str, policies: &str| {
        let (routes, status) = outcome(&format!(
            "[{{services: [{{name: one, {service}}}], {policies}}}]"
        ));
        assert_eq!(status, "valid\n", "{service} {policies}");
        let (_, cluster) = routes.trim_end().split_once(" -> ").expect("an action");
        cluster.to_owned()
    };
    for (service, policies, expected) in [
        ("port: 80", "", "shop/one:80"),
        (
            "port: 80, protocol: h2c",
            "",
            "shop/one:80?protocol=h2&tls=none",
        ),
        (
            "port: 80, protocol: h2",
            "",
            "shop/one:80?protocol=h2&tls=unverified",
        ),
        (
            "port: 80, protocol: tls",
            "",
            "shop/one:80?protocol=http1&tls=unverified",
        ),
        ("port: 443", "", "shop/one:443?tls=service"),
        (
            "port: 80",
            "loadBalancerPolicy: {strategy: Random}",
            "shop/one:80?lb=random",
        ),
        (
            "port: 80",
            "timeoutPolicy: {idleConnection: 5m}",
            "shop/one:80?idle=300s",
        ),
        (
            "port: 80, healthPort: 81",
            "healthCheckPolicy: {path: /up}",
            "shop/one:80?health=5s,2s,3,2,port:81,,/up",
        ),
        ("port: 80, healthPort: 81", "", "shop/one:80"),
        (
            "port: 80",
            "healthCheckPolicy: {path: /up, host: up.com, intervalSeconds: 1, timeoutSeconds: 3, unhealthyThresholdCount: 4, \
             healthyThresholdCount: 5, expectedStatuses: [{start: 200, end: 300}]}",
            "shop/one:80?health=1s,3s,4,5,up.com,/up,200-300",
        ),
        (
            "port: 80, slowStartPolicy: {window: 30s, aggression: '1.5'}",
            "loadBalancerPolicy: {strategy: WeightedLeastRequest}",
            "shop/one:80?lb=least-request&slow-start=30s,1500,10",
        ),
    ] {
        assert_eq!(cluster(service, policies), expected);
    }
}

#[test]
fn the_certificates_of_backends_are_verified() {
    let service = |protocol: &str, secret: &str| {
        format!(
            "[{{services: [{{name: one, {protocol}, validation: {{caSecret: {secret}, subjectName: one.shop}}}}]}}]"
        )
    };
    let ca = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    let key = rcgen::KeyPair::generate().expect("a key");
    let ca = ca.self_signed(&key).expect("a certificate").pem();
    let world = |spec: &str, namespace: &str| {
        let mut world = World::new();
        let value = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "ca", "namespace": namespace},
            "stringData": {"ca.crt": ca},
        });
        world.put_value(value);
        world.proxy("a", spec);
        world
    };
    let own = world(&spec(&service("port: 80, protocol: tls", "ca")), "shop");
    assert_eq!(own.status("a"), "valid\n");
    assert_eq!(
        own.routes(80, "a.com"),
        "/ / -> shop/one:80?protocol=http1&tls=secret:shop/ca,one.shop\n"
    );
    // The Service itself uses TLS.
    let own = world(&spec(&service("port: 443", "ca")), "shop");
    assert_eq!(
        own.routes(80, "a.com"),
        "/ / -> shop/one:443?tls=secret:shop/ca,one.shop\n"
    );
    let plain = world(&spec(&service("port: 80", "ca")), "shop");
    assert_eq!(plain.routes(80, "a.com"), "/ / -> shop/one:80\n");
    assert!(
        plain
            .status("a")
            .contains("warning ServiceError InvalidValidation")
    );
    let missing = world(&spec(&service("port: 80, protocol: tls", "other")), "shop");
    assert_eq!(missing.routes(80, "a.com"), "/ / -> refused\n");
    assert_eq!(missing.clusters(), [""; 0]);
    assert!(
        missing
            .status("a")
            .contains("Secret shop/other does not exist")
    );
    let mut foreign = world(&spec(&service("port: 80, protocol: tls", "pki/ca")), "pki");
    assert_eq!(foreign.routes(80, "a.com"), "/ / -> refused\n");
    assert!(
        foreign
            .status("a")
            .contains("no TLSCertificateDelegation in namespace pki")
    );
    foreign.put(
        "
        apiVersion: projectsesame.io/v1
        kind: TLSCertificateDelegation
        metadata: {name: d, namespace: pki}
        spec: {delegations: [{secretName: ca, targetNamespaces: [shop]}]}
        ",
    );
    assert_eq!(foreign.status("a"), "valid\n");
    assert_eq!(
        foreign.clusters(),
        ["shop/one:80?protocol=http1&tls=secret:pki/ca,one.shop"]
    );
}

#[test]
fn timeouts_are_durations_or_infinite() {
    let timeouts = |policy: &str| {
        let forward = forward(&format!("timeoutPolicy: {policy}"));
        let idle = forward.options.and_then(|options| options.idle_timeout);
        (forward.timeout, idle)
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(timeouts("{}"), (seconds(15), None));
    assert_eq!(timeouts("{response: 0s, idle: ''}"), (seconds(15), None));
    assert_eq!(
        timeouts("{response: 1m30s, idle: 10s}"),
        (seconds(90), seconds(10))
    );
    assert_eq!(
        timeouts("{response: infinity, idle: infinite}"),
        (seconds(0), seconds(0))
    );
    let services = "services: [{name: one, port: 80}]";
    let status = refused(&format!("{services}, timeoutPolicy: {{response: soon}}"));
    assert!(
        status.contains("spec.routes[0].timeoutPolicy.response: \"soon\""),
        "{status}"
    );
}

#[test]
fn retries_follow_the_policy() {
    let retry = |policy: &str| {
        let forward = forward(&format!("retryPolicy: {policy}"));
        (forward.retry, forward.try_timeout)
    };
    let (found, limit) = retry("{count: 3, perTryTimeout: 2s}");
    let found = found.expect("retries");
    assert_eq!((found.attempts, limit), (3, Some(Duration::from_secs(2))));
    assert_eq!(found.on, ["5xx"]);
    assert_eq!(retry("{count: -1}").0, None);
    assert_eq!(retry("{count: 0}").0.expect("retries").attempts, 1);
    let (found, _) =
        retry("{retryOn: [retriable-status-codes, reset], retriableStatusCodes: [503, 429, 503]}");
    let found = found.expect("retries");
    assert_eq!(found.on, ["reset", "retriable-status-codes"]);
    assert_eq!(found.codes, [429, 503]);
    let services = "services: [{name: one, port: 80}]";
    refused(&format!("{services}, retryPolicy: {{count: -2}}"));
    refused(&format!("{services}, retryPolicy: {{retryOn: [always]}}"));
    refused(&format!(
        "{services}, retryPolicy: {{retriableStatusCodes: [99]}}"
    ));
}

#[test]
fn requests_are_hashed_by_the_strategy() {
    let hash = |policy: &str| {
        let fields = format!("services: [{{name: one, port: 80}}], loadBalancerPolicy: {policy}");
        let world = World::with(&[("a", &spec(&format!("[{{{fields}}}]")))]);
        let route = world.first("a.com");
        let Action::Forward(forward) = route.action else {
            panic!("{route:?}");
        };
        let Target::Cluster(cluster) = &forward.targets[0].target else {
            panic!("{forward:?}");
        };
        let settings = cluster
            .policy
            .as_ref()
            .and_then(|policy| policy.connections.clone());
        let hash = forward
            .options
            .as_ref()
            .map_or_else(Vec::new, |options| options.hash.clone());
        (
            settings.and_then(|settings| settings.balancing),
            hash,
            world.status("a"),
        )
    };
    let (balancing, policies, status) = hash("{strategy: Cookie}");
    let cookie = HashOf::Cookie {
        name: "X-Sesame-Session-Affinity".into(),
        path: "/".into(),
    };
    assert_eq!((balancing, &*status), (Some(Balancing::Hash), "valid\n"));
    assert_eq!(policies[0].of, cookie);
    let (balancing, policies, status) = hash(
        "{strategy: RequestHash, requestHashPolicies: [{headerHashOptions: {headerName: x}, terminal: true}, \
         {queryParameterHashOptions: {parameterName: q}}, {hashSourceIP: true}, {}, {hashSourceIP: true}, \
         {queryParameterHashOptions: {parameterName: r}}]}",
    );
    assert_eq!(balancing, Some(Balancing::Hash));
    assert!(policies[0].terminal && !policies[1].terminal);
    let parts: Vec<HashOf> = policies.into_iter().map(|policy| policy.of).collect();
    assert_eq!(
        parts,
        [
            HashOf::Header("x".into()),
            HashOf::Query("q".into()),
            HashOf::Source
        ]
    );
    for index in 3..=5 {
        let field = format!("requestHashPolicies[{index}]");
        assert!(status.contains(&field), "{field}: {status}");
    }
    let (balancing, policies, status) = hash("{strategy: RequestHash}");
    assert_eq!(
        (balancing, policies.len()),
        (Some(Balancing::RoundRobin), 0)
    );
    assert!(status.starts_with("valid\nwarning"), "{status}");
    let (balancing, _, status) = hash("{strategy: Best}");
    assert_eq!(balancing, Some(Balancing::RoundRobin));
    assert!(status.contains("unknown strategy \"Best\""), "{status}");
}
