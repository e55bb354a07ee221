//! A cluster for tests, and queries on it.
//!
//! In: kubectl arguments and objects. Out: objects from the cluster, at once or when they are as expected.

use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::network::{Network, Request, Response};
use crate::install;
use sesame_tools::cluster::Cluster;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Time limit for the end of all objects that are being deleted.
const SETTLED: Duration = Duration::from_secs(120);

/// Kinds whose objects Kubernetes creates and deletes on its own.
const VOLATILE: [&str; 2] = ["events", "leases"];

/// A cluster and the test settings.
pub(super) struct Scene {
    pub(super) cluster: Cluster,
    pub(super) network: Network,
    /// Duration of the API server's outage.
    pub(super) outage: Duration,
    /// Number of changes of the configuration, if not one for each value.
    pub(super) changes: Option<usize>,
}

impl Scene {
    /// The scene for a running cluster.
    pub(super) fn new(cluster: Cluster, outage: Duration, changes: Option<usize>) -> Result<Self> {
        let network = Network::new(cluster.network()?);
        Ok(Self {
            cluster,
            network,
            outage,
            changes,
        })
    }

    /// kubectl's output.
    pub(super) fn kubectl(&self, args: &[&str]) -> Result<String> {
        install::kubectl(&self.cluster, args)
    }

    /// The output of `kubectl get`, as JSON.
    pub(super) fn get(&self, args: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["get", "-o", "json"], args].concat())?;
        serde_json::from_str(&text).context("kubectl printed invalid JSON")
    }

    /// The objects that `kubectl get` returns.
    pub(super) fn list(&self, args: &[&str]) -> Result<Vec<Value>> {
        let mut list = self.get(args)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => bail!("`kubectl get {}` printed no list", args.join(" ")),
        }
    }

    /// Applies objects.
    pub(super) fn apply(&self, objects: &[Value]) -> Result<()> {
        let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
        let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        install::kubectl_fed(&self.cluster, &args, &texts.join("\n---\n")).map(drop)
    }

    /// Sends a request.
    pub(super) fn send(&self, request: &Request) -> Result<Response> {
        self.network.send(request)
    }

    /// All objects in the cluster as `Kind namespace/name`, except [`VOLATILE`] kinds.
    pub(super) fn everything(&self) -> Result<BTreeSet<String>> {
        let objects = self.with_deletions()?.into_iter();
        Ok(objects.map(|(name, _)| name).collect())
    }

    /// The same, once no object is being deleted: pods end later than their Deployment.
    pub(super) fn settled(&self) -> Result<BTreeSet<String>> {
        let look = || {
            let objects = self.with_deletions()?;
            let ending = objects.iter().find(|(_, deleted)| *deleted);
            ensure!(ending.is_none(), "being deleted: {ending:?}");
            Ok(objects.into_iter().map(|(name, _)| name).collect())
        };
        until("no object is being deleted", SETTLED, look).map(|(objects, _)| objects)
    }

    /// All objects, and whether each is being deleted.
    fn with_deletions(&self) -> Result<Vec<(String, bool)>> {
        let kinds = self.kubectl(&["api-resources", "--verbs=list", "-o", "name"])?;
        let restless = |kind: &&str| {
            let plural = kind.split('.').next().unwrap_or_default();
            !VOLATILE.contains(&plural)
        };
        let kinds: Vec<&str> = kinds.lines().filter(restless).collect();
        let line = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{\"\\t\"}\
                    {.metadata.deletionTimestamp}{\"\\n\"}{end}";
        let all = self.kubectl(&["get", &kinds.join(","), "-A", "-o", line])?;
        let lines = all.lines().filter_map(|line| line.split_once('\t'));
        Ok(lines
            .map(|(name, deleted)| (name.to_owned(), !deleted.is_empty()))
            .collect())
    }

    /// Kills a pod's program.
    pub(super) fn kill(&self, namespace: &str, pod: &str, program: &str) -> Result<()> {
        let pod = self.get(&["-n", namespace, "pod", pod])?;
        kill(Self::process(&pod, program)?, Signal::SIGKILL).context("cannot kill")
    }

    /// A pod's only process of a program. It is a process on this machine, found by the pod's UID in its cgroup name.
    pub(super) fn process(pod: &Value, program: &str) -> Result<Pid> {
        let uid = pod["metadata"]["uid"]
            .as_str()
            .context("a pod without a UID")?;
        let mut found = Vec::new();
        for process in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = process
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            // The process may have exited.
            let read = |file| fs::read_to_string(process.path().join(file)).unwrap_or_default();
            if read("comm").trim() == program && read("cgroup").contains(uid) {
                found.push(Pid::from_raw(pid));
            }
        }
        match *found {
            [one] => Ok(one),
            _ => bail!(
                "expected 1 process of {program} in the pod, found {}",
                found.len()
            ),
        }
    }
}

/// Retries `look` until it succeeds. Also returns the time it took.
///
/// # Errors
/// The last error, after the time limit.
pub(super) fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<T>,
) -> Result<(T, Duration)> {
    let since = Instant::now();
    loop {
        match look() {
            Ok(found) => return Ok((found, since.elapsed())),
            Err(error) if since.elapsed() > limit => {
                return Err(error)
                    .with_context(|| format!("timeout after {limit:?}; expected: {what}"));
            }
            Err(_) => sleep(PAUSE),
        }
    }
}

/// Fails unless a condition is true for the object's current generation.
pub(super) fn is_true(object: &Value, conditions: &Value, condition: &str) -> Result<()> {
    let conditions = conditions.as_array().into_iter().flatten();
    let found = conditions
        .filter(|one| one["type"] == condition)
        .find(|one| one["observedGeneration"] == object["metadata"]["generation"]);
    let name = &object["metadata"]["name"];
    match found {
        Some(found) if found["status"] == "True" => Ok(()),
        Some(found) => bail!("{name} is not {condition}: {}", found["message"]),
        None => bail!("{name} has no current condition {condition}"),
    }
}
