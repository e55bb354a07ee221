//! Hostile parties: a tenant with extreme objects, clients that exhaust resources, and an Envoy's stolen key.
//!
//! In: a scene with Sesame. Out: no request to the neighbours failed, their changes were served, and no container restarted.

mod clients;
mod stolen_key;
mod tenant;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::load::Load;
use super::network::Request;
use super::scene::{Scene, until};
use super::shop;
use crate::install;

/// The Gateway that the tenant shares with its neighbours, and a Gateway with Envoys of its own.
const SHARED: &str = "shared";
const APART: &str = "apart";

/// The neighbours' HTTPProxy, which the default fleet serves.
const PROXY: &str = "proxied";

/// A neighbour's host that serves only `/public`.
const PUBLIC: &str = "public";

/// The fleet of HTTPProxies, and its objects.
const DEFAULT_FLEET: &str = "default";
const DEFAULT_SERVICE: &str = "default-fleet";

/// Attacks, and returns a figure.
type Attack = fn(&Scene, &mut Neighbours<'_>) -> Result<String>;

/// Runs the test.
pub(super) fn hostile(scene: &Scene) -> Result<String> {
    shop::open(scene)?;
    let mut neighbours = Neighbours::new(scene)?;
    let before = restarts(scene)?;
    let attacks: [(&str, Attack); 4] = [
        ("tenant", tenant::attack),
        ("regular expressions", clients::expressions),
        ("clients", clients::attack),
        ("stolen key", stolen_key::attack),
    ];
    let mut figures = Vec::new();
    for (name, attack) in attacks {
        figures.push(format!("{name}: {}", neighbours.during(attack)?));
    }

    let after = restarts(scene)?;
    ensure!(
        after == before,
        "containers restarted or were replaced: {before:?}, then {after:?}"
    );
    figures.push(memory(scene)?);
    let namespaces = [tenant::NAMESPACE, shop::NAMESPACE];
    scene.kubectl(&[&["delete", "namespace"], &namespaces[..]].concat())?;
    Ok(figures.join("; "))
}

/// The parties that must not be affected.
struct Neighbours<'a> {
    scene: &'a Scene,
    /// A request to each fleet.
    requests: [Request; 3],
    version: usize,
    /// The longest time until a change was served, of those since the attack began.
    slowest: Duration,
}

impl<'a> Neighbours<'a> {
    fn new(scene: &'a Scene) -> Result<Self> {
        scene.apply(&[gateway(SHARED), gateway(APART), service(), public()])?;
        scene.apply(&Self::objects("0"))?;
        let service = [
            "-n",
            install::NAMESPACE,
            "service",
            DEFAULT_SERVICE,
            "--ignore-not-found",
        ];
        let (proxies, _) = until("the default fleet has an address", shop::START, || {
            let service = scene.get(&service)?;
            let address = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
            let address = address.as_str().context("no address yet")?;
            Ok(SocketAddr::new(address.parse()?, 80))
        })?;
        let requests = [
            shop::request(shop::programmed(scene, SHARED)?, &shop::host(SHARED)),
            shop::request(shop::programmed(scene, APART)?, &shop::host(APART)),
            shop::request(proxies, &shop::host(PROXY)),
        ];
        let neighbours = Self {
            scene,
            requests,
            version: 0,
            slowest: Duration::ZERO,
        };
        neighbours.served()?;
        Ok(neighbours)
    }

    /// Runs an attack while the neighbours get requests, none of which may fail. Returns its figures.
    fn during(&mut self, attack: Attack) -> Result<String> {
        let scene = self.scene;
        self.slowest = Duration::ZERO;
        let loads = self.requests.clone();
        let loads = loads.map(|request| Load::start(&scene.network, vec![request]));
        let figure = attack(scene, self)?;
        let mut figures = vec![figure];
        if !self.slowest.is_zero() {
            let slowest = self.slowest.as_secs_f32();
            figures.push(format!("changes served within {slowest:.1} s"));
        }
        for load in loads {
            figures.push(load.stop()?.to_string());
        }
        Ok(figures.join(", "))
    }

    /// The address of the shared Gateway.
    fn shared(&self) -> SocketAddr {
        self.requests[0].address
    }

    /// Changes an object of each fleet, and waits until the changes are served. Returns how long that took.
    fn change(&mut self) -> Result<Duration> {
        self.version += 1;
        self.scene
            .apply(&Self::objects(&self.version.to_string()))?;
        let since = Instant::now();
        self.served()?;
        let took = since.elapsed();
        self.slowest = self.slowest.max(took);
        Ok(took)
    }

    fn served(&self) -> Result<()> {
        let version = self.version.to_string();
        for request in &self.requests {
            shop::served(self.scene, request, &version)?;
        }
        Ok(())
    }

    fn objects(version: &str) -> [Value; 3] {
        let mut apart = shop::route(APART, APART, version);
        apart["spec"]["rules"][0]["backendRefs"][0]["name"] = json!(APART);
        [
            shop::route(SHARED, SHARED, version),
            apart,
            json!({
                "apiVersion": "projectsesame.io/v1",
                "kind": "HTTPProxy",
                "metadata": { "name": PROXY, "namespace": shop::NAMESPACE },
                "spec": {
                    "virtualhost": { "fqdn": shop::host(PROXY) },
                    "routes": [{
                        "services": [{ "name": "shop", "port": 8080 }],
                        "responseHeadersPolicy": { "set": [{ "name": shop::VERSION, "value": version }] },
                    }],
                },
            }),
        ]
    }
}

/// A Gateway for routes of all namespaces.
fn gateway(name: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": { "name": name, "namespace": shop::NAMESPACE },
        "spec": {
            "gatewayClassName": "sesame",
            "listeners": [{
                "name": "http",
                "port": 80,
                "protocol": "HTTP",
                "allowedRoutes": { "namespaces": { "from": "All" } },
            }],
        },
    })
}

/// The shop as a Service that only the second Gateway uses.
fn service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": APART, "namespace": shop::NAMESPACE },
        "spec": { "selector": { "app": "shop" }, "ports": [{ "port": 8080, "targetPort": "http" }] },
    })
}

/// A route whose only path is `/public`.
fn public() -> Value {
    let mut route = shop::route(SHARED, PUBLIC, "0");
    route["spec"]["rules"][0]["matches"] = json!([{ "path": { "value": "/public" } }]);
    route
}

/// The number of restarts of each container of Sesame and of the neighbours, by pod and name.
fn restarts(scene: &Scene) -> Result<BTreeMap<(String, String), u64>> {
    let mut out = BTreeMap::new();
    for namespace in [install::NAMESPACE, shop::NAMESPACE] {
        for pod in scene.list(&["-n", namespace, "pods"])? {
            let name = text(&pod["metadata"]["name"]);
            let statuses = pod["status"]["containerStatuses"].as_array();
            for container in statuses.into_iter().flatten() {
                let restarts = container["restartCount"].as_u64().unwrap_or_default();
                out.insert((name.clone(), text(&container["name"])), restarts);
            }
        }
    }
    Ok(out)
}

/// Sesame's pods.
fn replicas(scene: &Scene) -> Result<Vec<Value>> {
    let label = "app.kubernetes.io/name=sesame,!projectsesame.io/fleet";
    let pods = scene.list(&["-n", install::NAMESPACE, "pods", "-l", label])?;
    ensure!(!pods.is_empty(), "no pods of Sesame");
    Ok(pods)
}

/// Checks that the replicas' peak memory was below their limit.
fn memory(scene: &Scene) -> Result<String> {
    let mut peaks = Vec::new();
    for pod in replicas(scene)? {
        let limit = text(&pod["spec"]["containers"][0]["resources"]["limits"]["memory"]);
        let limit = limit.strip_suffix("Mi").context("no limit in Mi")?;
        let limit: u64 = limit.parse()?;
        let process = Scene::process(&pod, "sesame")?;
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.split_whitespace().next());
        let peak = peak.context("no VmHWM")?.parse::<u64>()? / 1024;
        ensure!(
            peak < limit * 9 / 10,
            "{} took {peak} MiB of {limit} MiB",
            pod["metadata"]["name"]
        );
        peaks.push(format!("{peak} MiB"));
    }
    Ok(format!("Sesame took at most {}", peaks.join(" and ")))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
