//! SesameConfigurations: changes apply without a restart and without failed requests.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request};

use crate::harness::{
    DefaultFleet, Folder, Sesame, Summary, backends, becomes, certificate, eventually,
};

/// The file with a configuration.
pub(crate) const FILE: &str = "sesame.yaml";

pub(crate) fn configuration(spec: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1alpha1\nkind: SesameConfiguration\nmetadata: {{name: sesame}}\nspec: {{{spec}}}\n"
    )
}

/// Starts a default fleet whose configuration is in a separate folder.
pub(crate) async fn configured(spec: &str, objects: &str) -> (DefaultFleet, Folder) {
    let folder = Folder::new(&[(FILE, configuration(spec))]);
    let file = folder.file(FILE);
    let file = file.to_str().expect("a readable path");
    let fleet = DefaultFleet::start("HTTPProxy", objects, &["--config", file]).await;
    (fleet, folder)
}

/// An HTTPProxy that redirects requests without TLS, except those below /plain.
fn proxy(identity: &Identity) -> String {
    certificate("web", identity)
        + "
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost: {fqdn: web.test, tls: {secretName: web}}
  routes:
  - services: [{name: a, port: 80}]
  - conditions: [{prefix: /plain}]
    permitInsecure: true
    services: [{name: a, port: 80}]
---
"
}

/// Waits until the status observes the last valid version of the file, or reports an invalid one.
async fn is_accepted(sesame: &Sesame, generation: i64, accepted: bool) {
    eventually("the status observes the change", async || {
        let status = sesame.status("SesameConfiguration", "sesame").await?;
        let conditions = status["conditions"].as_array().context("no conditions")?;
        for condition in conditions {
            ensure!(condition["observedGeneration"] == generation, "{status}");
            let expected = if accepted { "True" } else { "False" };
            ensure!(condition["status"] == expected, "{status}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn ports_of_the_default_fleet_move_with_listeners_and_redirects() {
    let identity = Identity::self_signed(&["web.test"]).expect("a certificate");
    let (_backends, services) = backends(&["a"]).await;
    let (fleet, folder) = configured("", &(services + &proxy(&identity))).await;
    let request = Request::get("web.test", "/");
    let ip = fleet.http.ip();
    let offset = fleet.http.port() - 80;
    let redirects = async |http: SocketAddr, https: SocketAddr| {
        let location = format!("https://web.test:{}/", https.port());
        eventually(&format!("redirects to {location}"), async || {
            let found = Connect::plain().send(http, &request).await?;
            ensure!(found.header("location") == location, "{found:?}");
            Ok(())
        })
        .await;
    };
    redirects(fleet.http, fleet.https).await;
    let [http, https] = free_ports(ip, offset);
    let ports = format!(
        "defaultPorts: {{http: {}, https: {}}}",
        http.port() - offset,
        https.port() - offset
    );
    folder.replace(FILE, &configuration(&ports));
    redirects(http, https).await;
    let tls = Connect::tls("web.test");
    let response = tls.send(https, &request).await.expect("a response");
    assert_eq!(response.status, 200, "{response:?}");
    eventually("the previous port is closed", async || {
        let closed = Connect::plain().send(fleet.http, &request).await.is_err();
        ensure!(closed, "it still responds");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn settings_of_listeners_apply_to_the_default_fleet() {
    let identity = Identity::self_signed(&["web.test"]).expect("a certificate");
    let (_backends, services) = backends(&["a"]).await;
    let objects = services + &proxy(&identity);
    let (fleet, folder) = configured("listeners: {headersWithUnderscores: Allow}", &objects).await;
    let becomes = async |expected: &str| {
        eventually(&format!("an underscore means {expected}"), async || {
            let request = Request::get("web.test", "/plain").header("x_a", "b");
            let found = request.of(fleet.http).await;
            ensure!(found == expected, "{found}");
            Ok(())
        })
        .await;
    };
    becomes("a").await;
    folder.replace(FILE, &configuration(""));
    becomes("400").await;
}

#[tokio::test]
async fn requests_to_the_default_fleet_are_traced() {
    let (backends, services) = backends(&["a", "otel"]).await;
    let objects = services
        + "
apiVersion: projectsesame.io/v1alpha1
kind: ExtensionService
metadata: {name: collector}
spec: {services: [{name: otel, port: 80}], protocol: h2c}
---
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost: {fqdn: web.test}
  routes: [{services: [{name: a, port: 80}]}]
";
    let (fleet, folder) = configured("", &objects).await;
    let request = Request::get("web.test", "/").header("x-user", "me");
    assert_eq!(request.of(fleet.http).await, "a");
    assert!(backends[1].spans().is_empty());
    let tracing = "tracing: {extensionService: {namespace: default, name: collector}, maxPathTagLength: 4, \
                   customTags: [{tagName: user, requestHeaderName: X-User}, {tagName: env, literal: 5%}]}";
    folder.replace(FILE, &configuration(tracing));
    eventually("requests are traced", async || {
        request.of(fleet.http).await;
        ensure!(!backends[1].spans().is_empty(), "no spans");
        Ok(())
    })
    .await;
    let long = Request::get("web.test", "/long").header("x-user", "you");
    assert_eq!(long.of(fleet.http).await, "a");
    eventually("the span has the settings", async || {
        let spans = backends[1].spans();
        let mut spans = spans.iter();
        let span = spans.find(|span| {
            span.attributes
                .get("user")
                .is_some_and(|user| user == "you")
        });
        let span = span.context("no span")?;
        let attribute = |name: &str| span.attributes.get(name).map(String::as_str);
        ensure!(attribute("env") == Some("5%"), "{span:?}");
        ensure!(
            attribute("http.url") == Some("http://web.test/lon"),
            "{span:?}"
        );
        ensure!(attribute("k8s.pod.name").is_none(), "{span:?}");
        ensure!(span.service == "sesame", "{span:?}");
        Ok(())
    })
    .await;
    let missing = tracing.replace("collector", "missing");
    folder.replace(FILE, &configuration(&missing));
    eventually("the status reports the missing collector", async || {
        let status = fleet.sesame.status("SesameConfiguration", "sesame").await?;
        let programmed = &status["conditions"][1];
        let message = programmed["errors"][0]["message"]
            .as_str()
            .unwrap_or_default();
        let expected =
            "spec.tracing.extensionService: ExtensionService default/missing does not exist";
        ensure!(
            programmed["reason"] == "Unresolved" && message == expected,
            "{status}"
        );
        Ok(())
    })
    .await;
    assert_eq!(request.of(fleet.http).await, "a");
}

/// Two free ports on an address, starting 1,000 above the offset.
fn free_ports(ip: IpAddr, offset: u16) -> [SocketAddr; 2] {
    let ports = (offset + 1000..).map(|port| SocketAddr::new(ip, port));
    let mut free = ports.filter(|address| TcpListener::bind(address).is_ok());
    [(); 2].map(|()| free.next().expect("a free port"))
}

/// Each field of the sections that a local run applies or checks, with a valid and an invalid value.
const FIELDS: &[(&str, &str)] = &[
    (
        "gateway: {controllerName: example.com/other}",
        "gateway: {controllerName: other}",
    ),
    (
        "gateway: {controllerName: example.com/a, name: web, namespace: default}",
        "gateway: {controllerName: example.com/a, name: web}",
    ),
    ("envoy: {replicas: 2}", "envoy: {replicas: 0}"),
    ("envoy: {workload: DaemonSet}", "envoy: {workload: Job}"),
    (
        "envoy: {autoscaling: {minReplicas: 1, maxReplicas: 2, cpuPercent: 80}}",
        "envoy: {autoscaling: {minReplicas: 3, maxReplicas: 2, cpuPercent: 80}}",
    ),
    (
        "envoy: {disruptionBudget: true}",
        "envoy: {disruptionBudget: 1}",
    ),
    ("envoy: {networkPolicy: true}", "envoy: {networkPolicy: {}}"),
    (
        "envoy: {networkPublishing: {type: NodePortService, externalTrafficPolicy: Local}}",
        "envoy: {networkPublishing: {type: ExternalName}}",
    ),
    (
        "envoy: {networkPublishing: {loadBalancerClass: a/b, annotations: {a: b}}}",
        "envoy: {networkPublishing: {annotations: [a]}}",
    ),
    (
        "envoy: {networkPublishing: {loadBalancerSourceRanges: [192.0.2.0/24]}}",
        "envoy: {networkPublishing: {loadBalancerSourceRanges: [192.0.2.0]}}",
    ),
    (
        "envoy: {image: a:1, imagePullSecrets: [a]}",
        "envoy: {image: a b}",
    ),
    (
        "envoy: {resources: {requests: {cpu: 1m}, limits: {cpu: 2m, memory: 1Gi}}}",
        "envoy: {resources: {requests: {cpu: 2m}, limits: {cpu: 1m}}}",
    ),
    (
        "envoy: {nodeSelector: {a: b}, priorityClassName: high}",
        "envoy: {nodeSelector: a}",
    ),
    (
        "envoy: {tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 3}]}",
        "envoy: {tolerations: [{operator: Exists, value: a}]}",
    ),
    (
        "envoy: {drain: {delay: 1s, timeout: 2s}}",
        "envoy: {drain: {delay: 1}}",
    ),
    (
        "envoy: {logLevel: debug, maxConnections: 9}",
        "envoy: {logLevel: loud}",
    ),
    (
        "listeners: {tls: {minimumProtocolVersion: '1.3', cipherSuites: [AES256-SHA]}}",
        "listeners: {tls: {cipherSuites: [RC4-SHA]}}",
    ),
    (
        "listeners: {proxyProtocol: Optional, compression: [Gzip], trustedHops: 1}",
        "listeners: {proxyProtocol: Sometimes}",
    ),
    (
        "listeners: {accessLog: {level: Critical, text: '%PROTOCOL%'}}",
        "listeners: {accessLog: {level: Critical, text: '%PROTOCOL'}}",
    ),
    (
        "listeners: {timeouts: {requestHeaders: 5s, delayedClose: 0s}}",
        "listeners: {timeouts: {requestHeaders: 5}}",
    ),
    (
        "listeners: {limits: {concurrentStreams: 10, requestHeadersKiB: 16}}",
        "listeners: {limits: {requestHeadersKiB: 0}}",
    ),
    (
        "listeners: {paths: {escapedSlashes: Reject}, headersWithUnderscores: Drop}",
        "listeners: {paths: {escapedSlashes: Refuse}}",
    ),
    (
        "unmanagedEnvoy: {addresses: [192.0.2.1]}",
        "unmanagedEnvoy: {addresses: []}",
    ),
    (
        "unmanagedEnvoy: {service: {namespace: a, name: b}}",
        "unmanagedEnvoy: {service: {name: b}}",
    ),
    (
        "defaultPorts: {https: 8444}",
        "defaultPorts: {http: 8444, https: 8444}",
    ),
    (
        "ingress: {classNames: [other, sesame]}",
        "ingress: {classNames: []}",
    ),
    (
        "httpProxy: {rootNamespaces: [default, shop]}",
        "httpProxy: {rootNamespaces: default}",
    ),
    (
        "httpProxy: {fallbackCertificate: {namespace: default, name: web}}",
        "httpProxy: {fallbackCertificate: {name: web}}",
    ),
    (
        "rateLimitService: {extensionService: {namespace: default, name: called}, domain: a, failOpen: true, \
         enableXRateLimitHeaders: true, enableResourceExhaustedCode: true}",
        "rateLimitService: {domain: a}",
    ),
    (
        "rateLimitService: {extensionService: {namespace: default, name: called}, \
         defaultGlobalRateLimitPolicy: {descriptors: [{entries: [{requestHeader: {headerName: x-a, descriptorKey: a}}]}]}, failOpen: true}",
        "rateLimitService: {extensionService: {namespace: default, name: called}, \
         defaultGlobalRateLimitPolicy: {descriptors: [{entries: [{requestHeader: {headerName: x a, descriptorKey: a}}]}]}}",
    ),
    (
        "globalAuth: {extensionService: {namespace: default, name: called}, authPolicy: {disabled: true, context: {a: b}}, \
         failOpen: true, responseTimeout: 1s, withRequestBody: {maxRequestBytes: 9, packAsBytes: true}}",
        "globalAuth: {extensionService: {namespace: default, name: called}, withRequestBody: {maxRequestBytes: 0}}",
    ),
    (
        "policy: {requestHeaders: {set: [{name: x-a, value: b}]}, responseHeaders: {remove: [x-b]}, applyToIngress: true}",
        "policy: {requestHeaders: {set: [{name: host, value: b}]}}",
    ),
    (
        "tracing: {extensionService: {namespace: default, name: called}, serviceName: a, overallSampling: '5', \
         includePodDetail: false, maxPathTagLength: 9, customTags: [{tagName: a, literal: b}]}",
        "tracing: {extensionService: {namespace: default, name: called}, overallSampling: '101'}",
    ),
];

/// The ExtensionService that they refer to.
const EXTENSION: &str = "
apiVersion: projectsesame.io/v1alpha1
kind: ExtensionService
metadata: {name: called}
spec: {services: [{name: a, port: 80}], protocol: h2c}
---
";

#[tokio::test]
async fn valid_and_invalid_changes_of_every_field_fail_no_request() {
    let identity = Identity::self_signed(&["web.test"]).expect("a certificate");
    let (_backends, services) = backends(&["a"]).await;
    let objects = services + EXTENSION + &proxy(&identity);
    let (fleet, folder) = configured("", &objects).await;
    let request = Request::get("web.test", "/plain");
    becomes(fleet.http, "web.test", "/plain", "a").await;
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (stop, request, to) = (Arc::clone(&stop), request.clone(), fleet.http);
        async move {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                let answer = request.of(to).await;
                assert_eq!(answer, "a", "after {count} requests");
                count += 1;
            }
            count
        }
    });
    let mut generation = 1;
    for (valid, invalid) in FIELDS {
        folder.replace(FILE, &configuration(valid));
        generation += 1;
        is_accepted(&fleet.sesame, generation, true).await;
        let problems = async || fleet.sesame.page("/problems").await;
        folder.replace(FILE, &configuration(invalid));
        eventually("the invalid version is reported", async || {
            let problems = problems().await?.to_string();
            if problems.contains("SesameConfiguration") {
                return Ok(());
            }
            // The status reports violations that the schema can't express.
            let status = fleet.sesame.status("SesameConfiguration", "sesame").await?;
            ensure!(
                status.to_string().contains("InvalidField"),
                "{invalid}: {problems}"
            );
            generation += 1;
            Ok(())
        })
        .await;
    }
    folder.replace(FILE, &configuration(""));
    is_accepted(&fleet.sesame, generation + 1, true).await;
    stop.store(true, Ordering::Relaxed);
    let count: u32 = load.await.expect("no request fails");
    assert!(count > 100, "{count}");
    assert_eq!(fleet.sesame.envoys().len(), 1);
}
