use std::time::Duration;

use super::*;

#[test]
fn all_fields_are_read() {
    let text = "
workload: DaemonSet
autoscaling: {min: 2, max: 10, cpuPercent: 80}
disruptionBudget: true
service:
  type: ClusterIP
  annotations: {example.com/a: b}
  loadBalancerClass: example.com/lb
  loadBalancerSourceRanges: [192.0.2.0/24, '2001:db8::/32']
  externalTrafficPolicy: Local
image: example.com/envoy:1
imagePullSecrets: [pull]
resources:
  requests: {cpu: 0.5, memory: 128Mi}
  limits: {cpu: 2, memory: 1Gi}
nodeSelector: {kubernetes.io/os: linux}
tolerations:
- {key: a, operator: Equal, value: b, effect: NoExecute, tolerationSeconds: 30}
- {operator: Exists}
priorityClassName: high
drain: {delay: 3s, timeout: 1m}
logLevel: debug
maxConnections: 5000
";
    let all = FleetParameters {
        workload: Some(Workload::DaemonSet),
        replicas: None,
        autoscaling: Some(Autoscaling::Between {
            min: 2,
            max: 10,
            cpu_percent: 80,
        }),
        disruption_budget: Some(true),
        service_type: Some(ServiceType::ClusterIp),
        service_annotations: Some(BTreeMap::from([("example.com/a".into(), "b".into())])),
        load_balancer_class: Some("example.com/lb".into()),
        load_balancer_source_ranges: Some(vec!["192.0.2.0/24".into(), "2001:db8::/32".into()]),
        external_traffic_policy: Some(TrafficPolicy::Local),
        image: Some("example.com/envoy:1".into()),
        image_pull_secrets: Some(vec!["pull".into()]),
        cpu_request: Some(500),
        cpu_limit: Some(2_000),
        memory_request: Some(128 << 20),
        memory_limit: Some(1 << 30),
        node_selector: Some(BTreeMap::from([(
            "kubernetes.io/os".into(),
            "linux".into(),
        )])),
        tolerations: Some(vec![
            Toleration {
                key: Some("a".into()),
                value: Some("b".into()),
                effect: Some(TaintEffect::NoExecute),
                seconds: Some(30),
            },
            Toleration::default(),
        ]),
        priority_class: Some("high".into()),
        drain_delay: Some(Duration::from_secs(3)),
        drain_timeout: Some(Duration::from_secs(60)),
        log_level: Some(FleetLogLevel::Debug),
        max_connections: Some(5_000),
    };
    assert_eq!(parse(text), Ok(all));
    let few = FleetParameters {
        replicas: Some(3),
        autoscaling: Some(Autoscaling::Off),
        ..FleetParameters::default()
    };
    assert_eq!(parse(r#"{"replicas": 3, "autoscaling": false}"#), Ok(few));
    for nothing in ["", "# nothing\n", "{}", "null", "service:"] {
        assert_eq!(
            parse(nothing),
            Ok(FleetParameters::default()),
            "{nothing:?}"
        );
    }
}

/// The example in the docs is valid and has all fields.
#[test]
fn the_documented_example_has_all_fields() {
    let page = include_str!("../../../../../docs/parameters.md");
    let (_, example) = page.split_once("```yaml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("the end of the example");
    let documented = parse(example).expect("valid parameters");
    let replicas = FleetParameters {
        replicas: Some(2),
        ..FleetParameters::default()
    };
    assert!(page.contains("`replicas: 2`"));
    assert_eq!(parse("replicas: 2"), Ok(replicas.clone()));
    let all = format!("{:?}", documented.over(replicas));
    assert!(!all.contains("None"), "{all}");
}

/// A message starts with the field.
#[test]
fn errors_name_their_field() {
    for (text, start) in [
        ("replicas: two", "replicas: expected a whole number"),
        ("replicas: -1", "replicas: expected a whole number"),
        ("replicas: 0", "replicas: expected 1 or more"),
        (
            "replica: 2",
            "replica: unknown field `replica`, expected one of",
        ),
        (
            "resources: {limits: {memory: lots}}",
            "resources.limits.memory: expected a memory quantity such as 128Mi or 1Gi",
        ),
        (
            "resources: {requests: {cpu: [1]}}",
            "resources.requests.cpu: expected a CPU quantity such as 500m or 2",
        ),
        (
            "resources: {limits: {disk: 1Gi}}",
            "resources.limits.disk: unknown field",
        ),
        (
            "resources: {requests: {cpu: 2}, limits: {cpu: 1500m}}",
            "resources.requests.cpu: must not exceed resources.limits.cpu",
        ),
        (
            "resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}",
            "resources.requests.memory: must not exceed",
        ),
        (
            "service: {type: ExternalName}",
            "service.type: unknown variant",
        ),
        (
            "service: {loadBalancerSourceRanges: [192.0.2.0/33]}",
            "service.loadBalancerSourceRanges[0]: expected a range",
        ),
        (
            "service: {loadBalancerSourceRanges: [192.0.2.0]}",
            "service.loadBalancerSourceRanges[0]: expected a range",
        ),
        ("service: [LoadBalancer]", "service: expected a mapping"),
        (
            "autoscaling: true",
            "autoscaling: expected false, or a mapping",
        ),
        ("autoscaling: {min: 2}", "autoscaling.max: is required"),
        (
            "autoscaling: {min: 3, max: 2, cpuPercent: 80}",
            "autoscaling.max: must not be less than autoscaling.min (3)",
        ),
        (
            "autoscaling: {min: 0, max: 2, cpuPercent: 80}",
            "autoscaling.min: expected 1",
        ),
        (
            "autoscaling: {min: 1, max: 2, cpuPercent: 0}",
            "autoscaling.cpuPercent: expected 1",
        ),
        (
            "{replicas: 2, autoscaling: {min: 1, max: 2, cpuPercent: 80}}",
            "replicas: cannot be combined",
        ),
        ("drain: {delay: 3}", "drain.delay: expected"),
        (
            "drain: {timeout: soon}",
            "drain.timeout: expected a duration",
        ),
        ("logLevel: 3", "logLevel: expected a string, found"),
        ("logLevel: loud", "logLevel: unknown variant `loud`"),
        ("maxConnections: 0", "maxConnections: expected 1"),
        ("image: ''", "image: expected a name"),
        (
            "priorityClassName: a b",
            "priorityClassName: expected a name",
        ),
        (
            "tolerations: [{}, {operator: Exists, key: a, value: b}]",
            "tolerations[1]: operator Exists",
        ),
        ("tolerations: [{value: b}]", "tolerations[0]: a value"),
        (
            "tolerations: [{tolerationSeconds: 1}]",
            "tolerations[0]: tolerationSeconds",
        ),
        ("- replicas", "expected a mapping"),
        ("replicas", "expected a mapping"),
        ("replicas: 1\nreplicas: 2", "invalid YAML: "),
        ("{replicas: 1", "invalid YAML: "),
        ("a: &a [*a]", "invalid YAML: "),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.starts_with(start), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn oversized_texts_are_rejected_with_short_errors() {
    let deep = format!("{}{}", "[".repeat(MAX_TEXT / 2), "]".repeat(MAX_TEXT / 2));
    let many = "a: 1\n".repeat(MAX_TEXT);
    let laughs = "
a: &a [x, x, x, x, x, x, x, x, x, x]
b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]
c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]
d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]
e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]
f: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]
g: &g [*f, *f, *f, *f, *f, *f, *f, *f, *f, *f]
h: [*g, *g, *g, *g, *g, *g, *g, *g, *g, *g]
";
    for text in [deep.as_str(), many.as_str(), laughs] {
        let error = parse(text).expect_err("too much");
        assert!(error.len() < 1_000, "{}", error.len());
    }
}
