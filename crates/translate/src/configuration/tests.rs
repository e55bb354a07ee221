use std::collections::BTreeMap;
use std::time::Duration;

use sesame_api::Object;
use sesame_model::{
    Autoscaling, ClassParameters, CreatedClass, FleetLogLevel, FleetParameters, OuterClass,
    Publishing, TaintEffect, Toleration, TrafficPolicy, Workload,
};

use super::*;

/// Reads the parameters in the text of a ConfigMap, or returns all errors.
fn read(text: &str) -> Result<FleetParameters, String> {
    let spec = parse(text)?;
    let parameters = spec.envoy.as_deref().map(parameters).transpose();
    let parameters = parameters.map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        errors.join(", ")
    })?;
    Ok(parameters.unwrap_or_default())
}

#[test]
fn all_fields_of_envoys_are_read() {
    let text = "
envoy:
  managed: false
  networkPublishing:
    type: ClusterIPService
    annotations: {example.com/a: b}
    loadBalancer: {provider: {type: GCP}}
    loadBalancerClass: example.com/lb
    loadBalancerSourceRanges: [192.0.2.0/24, '2001:db8::/32']
    externalTrafficPolicy: Local
  workload: DaemonSet
  autoscaling: {minReplicas: 2, maxReplicas: 10, cpuPercent: 80}
  disruptionBudget: true
  networkPolicy: true
  image: example.com/envoy:1
  imagePullSecrets: [pull]
  serviceAccountAnnotations: {example.com/role: edge}
  resources:
    requests: {cpu: '0.5', memory: 128Mi}
    limits: {cpu: '2', memory: 1Gi}
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
        managed: Some(false),
        workload: Some(Workload::DaemonSet),
        replicas: None,
        autoscaling: Some(Autoscaling::Between {
            min: 2,
            max: 10,
            cpu_percent: 80,
        }),
        disruption_budget: Some(true),
        network_policy: Some(true),
        publishing: Some(Publishing::ClusterIp),
        load_balancer_annotations: Some(BTreeMap::new()),
        service_annotations: Some(BTreeMap::from([("example.com/a".into(), "b".into())])),
        load_balancer_class: Some("example.com/lb".into()),
        load_balancer_source_ranges: Some(vec!["192.0.2.0/24".into(), "2001:db8::/32".into()]),
        external_traffic_policy: Some(TrafficPolicy::Local),
        image: Some("example.com/envoy:1".into()),
        image_pull_secrets: Some(vec!["pull".into()]),
        service_account_annotations: Some(BTreeMap::from([(
            "example.com/role".into(),
            "edge".into(),
        )])),
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
    assert_eq!(read(text), Ok(all));
    // A fixed number of replicas turns off inherited autoscaling.
    let few = FleetParameters {
        replicas: Some(3),
        autoscaling: Some(Autoscaling::Off),
        ..FleetParameters::default()
    };
    assert_eq!(read(r#"{"envoy": {"replicas": 3}}"#), Ok(few));
    for nothing in [
        "",
        "# nothing\n",
        "{}",
        "null",
        "envoy:",
        "envoy: {networkPublishing: {}}",
    ] {
        assert_eq!(read(nothing), Ok(FleetParameters::default()), "{nothing:?}");
    }
}

/// The example in the docs is valid and has all fields.
#[test]
fn the_documented_example_has_all_fields() {
    let page = include_str!("../../../../docs/configuration.md");
    let (_, example) = page.split_once("```yaml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("the end of the example");
    let value = serde_saphyr::from_str(example).expect("YAML");
    let object = Object::decode(value).expect("a valid object");
    let Some(Object::SesameConfiguration(configuration)) = object else {
        panic!("{object:?}");
    };
    let configured = settings(&Settings::new(Mode::Managed), &configuration).expect("valid");
    assert!(page.contains("`replicas: 2`"));
    let replicas = read("envoy: {replicas: 2}").expect("valid");
    let FleetSettings {
        parameters,
        listeners,
        choices,
    } = configured.fleet;
    let choices = format!("{choices:?}");
    assert!(!choices.contains("None"), "{choices}");
    let listeners = format!("{listeners:?}");
    assert!(!listeners.contains("None"), "{listeners}");
    let all = format!("{:?}", parameters.over(replicas));
    assert!(!all.contains("None"), "{all}");
    let mut ingress = configured.ingress;
    let limits = ingress.rate_limits.as_mut().expect("limits");
    // Each entry of a descriptor has only one of the fields.
    let default = limits.default.replace(GlobalRateLimitPolicy::default());
    assert!(default.is_some_and(|default| !default.descriptors.is_empty()));
    let sections = format!("{ingress:?} {:?}", configured.tracing);
    assert!(!sections.contains("None"), "{sections}");
}

/// The annotations of the Service for a load balancer.
fn annotations(load_balancer: &str) -> Vec<String> {
    let text = format!("envoy: {{networkPublishing: {{loadBalancer: {load_balancer}}}}}");
    let parameters = read(&text).expect(load_balancer);
    let annotations = parameters.load_balancer_annotations.expect("annotations");
    let short = |key: &str| key.replace("service.beta.kubernetes.io/", "");
    annotations
        .iter()
        .map(|(key, value)| format!("{}={value}", short(key)))
        .collect()
}

#[test]
fn load_balancers_of_clouds_have_their_annotations() {
    for (load_balancer, expected) in [
        (
            "{provider: {type: AWS}}",
            &[
                "aws-load-balancer-scheme=internet-facing",
                "aws-load-balancer-type=nlb",
            ][..],
        ),
        (
            "{scope: External, provider: {type: AWS, aws: {type: NLB, allocationIDs: [eipalloc-0a, eipalloc-1b]}}}",
            &[
                "aws-load-balancer-eip-allocations=eipalloc-0a,eipalloc-1b",
                "aws-load-balancer-scheme=internet-facing",
                "aws-load-balancer-type=nlb",
            ],
        ),
        (
            "{scope: Internal, provider: {type: AWS, aws: {type: Classic}}}",
            &[
                "aws-load-balancer-backend-protocol=tcp",
                "aws-load-balancer-internal=true",
                "aws-load-balancer-scheme=internal",
            ],
        ),
        ("{provider: {type: Azure}}", &[]),
        (
            "{provider: {type: Azure, azure: {addressIP: 192.0.2.1, resourceGroup: edge}}}",
            &[
                "azure-load-balancer-ipv4=192.0.2.1",
                "azure-load-balancer-resource-group=edge",
            ],
        ),
        (
            "{scope: Internal, provider: {type: Azure, azure: {addressIP: '2001:DB8::1', subnet: edge}}}",
            &[
                "azure-load-balancer-internal=true",
                "azure-load-balancer-internal-subnet=edge",
                "azure-load-balancer-ipv6=2001:db8::1",
            ],
        ),
        ("{provider: {type: GCP}}", &[]),
        (
            "{scope: Internal, provider: {type: GCP, gcp: {subnet: edge}}}",
            &[
                "cloud.google.com/load-balancer-type=Internal",
                "networking.gke.io/internal-load-balancer-subnet=edge",
                "networking.gke.io/load-balancer-type=Internal",
            ],
        ),
    ] {
        assert_eq!(annotations(load_balancer), expected, "{load_balancer}");
    }
}

#[test]
fn the_class_of_an_outer_gateway_exists_or_is_created() {
    let publishing = |gateway: &str| {
        let text = format!("envoy: {{networkPublishing: {{type: Gateway, gateway: {gateway}}}}}");
        read(&text).map(|parameters| parameters.publishing.expect("a type"))
    };
    assert_eq!(
        publishing("{className: outer}"),
        Ok(Publishing::Gateway(OuterClass::Existing("outer".into())))
    );
    let created = |parameters| {
        Ok(Publishing::Gateway(OuterClass::Created(CreatedClass {
            controller_name: "example.com/lb".into(),
            parameters,
        })))
    };
    assert_eq!(
        publishing("{controllerName: example.com/lb}"),
        created(None)
    );
    let reference = "{group: '', kind: ConfigMap, name: lb, namespace: edge}";
    assert_eq!(
        publishing(&format!(
            "{{controllerName: example.com/lb, parametersRef: {reference}}}"
        )),
        created(Some(ClassParameters {
            group: String::new(),
            kind: "ConfigMap".into(),
            name: "lb".into(),
            namespace: Some("edge".into()),
        }))
    );
}

/// Each message starts with the field.
#[test]
fn errors_name_their_field() {
    for (text, start) in [
        ("replicas: two", "replicas: expected a whole number"),
        ("replicas: -1", "replicas: expected a whole number"),
        ("replicas: 0", "replicas: expected a number from 1"),
        (
            "replica: 2",
            "replica: unknown field `replica`, expected one of",
        ),
        (
            "resources: {limits: {memory: lots}}",
            "resources.limits.memory: expected a memory quantity such as 128Mi or 1Gi, found \"lots\"",
        ),
        (
            "resources: {requests: {cpu: [1]}}",
            "resources.requests.cpu: expected a string",
        ),
        (
            "resources: {requests: {cpu: half}}",
            "resources.requests.cpu: expected a CPU quantity such as 500m or 2",
        ),
        (
            "resources: {limits: {disk: 1Gi}}",
            "resources.limits.disk: unknown field",
        ),
        (
            "resources: {requests: {cpu: '2'}, limits: {cpu: 1500m}}",
            "resources.requests.cpu: must not exceed envoy.resources.limits.cpu",
        ),
        (
            "resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}",
            "resources.requests.memory: must not exceed",
        ),
        (
            "networkPublishing: {type: ExternalName}",
            "networkPublishing.type: expected one of LoadBalancerService,",
        ),
        (
            "networkPublishing: {loadBalancerSourceRanges: [192.0.2.0/33]}",
            "networkPublishing.loadBalancerSourceRanges[0]: expected a range",
        ),
        (
            "networkPublishing: {loadBalancerSourceRanges: [192.0.2.0]}",
            "networkPublishing.loadBalancerSourceRanges[0]: expected a range",
        ),
        (
            "networkPublishing: {loadBalancer: {provider: {type: OCI}}}",
            "networkPublishing.loadBalancer.provider.type: expected one of AWS, Azure, GCP",
        ),
        (
            "networkPublishing: {loadBalancer: {provider: {type: Azure, azure: {addressIP: edge}}}}",
            "networkPublishing.loadBalancer.provider.azure.addressIP: expected an IP address",
        ),
        (
            "networkPublishing: {type: Gateway}",
            "networkPublishing: gateway must be set if type is Gateway",
        ),
        (
            "networkPublishing: {type: Gateway, gateway: {}}",
            "networkPublishing.gateway: exactly one of className and controllerName",
        ),
        (
            "networkPublishing: [LoadBalancer]",
            "networkPublishing: expected a mapping",
        ),
        ("autoscaling: true", "autoscaling: expected a mapping"),
        (
            "autoscaling: {minReplicas: 2, cpuPercent: 80}",
            "autoscaling.maxReplicas: is required",
        ),
        (
            "autoscaling: {minReplicas: 3, maxReplicas: 2, cpuPercent: 80}",
            "autoscaling: minReplicas must not exceed maxReplicas",
        ),
        (
            "autoscaling: {minReplicas: 0, maxReplicas: 2, cpuPercent: 80}",
            "autoscaling.minReplicas: expected a number from 1",
        ),
        (
            "{replicas: 2, autoscaling: {minReplicas: 1, maxReplicas: 2, cpuPercent: 80}}",
            ": replicas and autoscaling are mutually exclusive",
        ),
        ("drain: {delay: 3}", "drain.delay: expected"),
        (
            "drain: {timeout: soon}",
            "drain.timeout: expected a duration",
        ),
        ("logLevel: loud", "logLevel: expected one of trace,"),
        ("maxConnections: 0", "maxConnections: expected 1"),
        (
            "gatewayChoices: {fields: [image]}",
            "gatewayChoices.fields[0]: expected one of autoscaling,",
        ),
        (
            "gatewayChoices: {fields: [drain, drain]}",
            "gatewayChoices.fields[1]: is a duplicate",
        ),
        (
            "gatewayChoices: {maxReplicas: 0}",
            "gatewayChoices.maxReplicas: expected a number from 1",
        ),
        ("image: ''", "image: must not be empty"),
        ("image: a b", "image: expected a name"),
        (
            "tolerations: [{}, {operator: Exists, key: a, value: b}]",
            "tolerations[1]: the Exists operator",
        ),
        ("tolerations: [{value: b}]", "tolerations[0]: a value"),
        (
            "tolerations: [{tolerationSeconds: 1}]",
            "tolerations[0]: tolerationSeconds",
        ),
    ] {
        let text = match text.starts_with('{') {
            true => format!("envoy: {text}"),
            false => format!("envoy: {{{text}}}"),
        };
        let error = read(&text).expect_err(&text);
        let start = match start.strip_prefix(':') {
            Some(_) => format!("envoy{start}"),
            None => format!("envoy.{start}"),
        };
        assert!(error.starts_with(&start), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    for (text, start) in [
        ("- replicas", "expected a mapping"),
        ("replicas", "expected a mapping"),
        ("envoy: {}\nenvoy: {}", "invalid YAML: "),
        ("{envoy: {}", "invalid YAML: "),
        ("a: &a [*a]", "invalid YAML: "),
        (
            "defaultPorts: {http: 443}",
            "defaultPorts: http and https must differ",
        ),
        ("gateway: {}", "gateway.controllerName: is required"),
        (
            "gateway: {controllerName: sesame}",
            "gateway.controllerName: expected a domain",
        ),
        (
            "{gateway: {controllerName: example.com/a}, envoy: {networkPublishing: {type: Gateway, gateway: {controllerName: example.com/a}}}}",
            "envoy.networkPublishing.gateway.controllerName must differ",
        ),
        (
            "{envoy: {}, unmanagedEnvoy: {}}",
            "envoy and unmanagedEnvoy are mutually exclusive",
        ),
        (
            "ingress: {classNames: []}",
            "ingress.classNames: at least one",
        ),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.starts_with(start), "{text}: {error}");
    }
    // Errors that the schema can't detect are reported together.
    let both = "envoy: {resources: {limits: {cpu: a, memory: b}}}";
    let error = read(both).expect_err(both);
    assert!(
        error.contains("limits.cpu") && error.contains("limits.memory"),
        "{error}"
    );
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
        let error = read(text).expect_err("too much");
        assert!(error.len() < 1_000, "{}", error.len());
    }
}
