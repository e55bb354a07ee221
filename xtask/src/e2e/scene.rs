//! What every test stands on: a cluster of its own, and questions to it.
//!
//! In: kubectl's arguments, objects. Out: what the cluster says, as it is or when it is as it should be.

use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::network::{Answer, Ask, Network};
use crate::cluster::Cluster;
use crate::install;

/// Between two looks at something that is awaited.
const PAUSE: Duration = Duration::from_millis(100);

/// Kinds that come and go by themselves.
const RESTLESS: [&str; 2] = ["events", "leases"];

/// A cluster, and what is asked of the tests in it.
pub(super) struct Scene {
    pub(super) cluster: Cluster,
    pub(super) network: Network,
    /// How long the API server is away.
    pub(super) outage: Duration,
}

impl Scene {
    /// A running cluster.
    pub(super) fn new(cluster: Cluster, outage: Duration) -> Result<Self> {
        let network = Network::new(cluster.network()?);
        Ok(Self {
            cluster,
            network,
            outage,
        })
    }

    /// What kubectl prints.
    pub(super) fn kubectl(&self, args: &[&str]) -> Result<String> {
        install::kubectl(&self.cluster, args)
    }

    /// What `kubectl get` says, as JSON.
    pub(super) fn get(&self, args: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["get", "-o", "json"], args].concat())?;
        serde_json::from_str(&text).context("kubectl doesn't print JSON")
    }

    /// The objects that `kubectl get` says there are.
    pub(super) fn list(&self, args: &[&str]) -> Result<Vec<Value>> {
        let mut list = self.get(args)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => bail!("`kubectl get {}` gives no list", args.join(" ")),
        }
    }

    /// Applies objects.
    pub(super) fn apply(&self, objects: &[Value]) -> Result<()> {
        let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
        let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        install::kubectl_fed(&self.cluster, &args, &texts.join("\n---\n")).map(drop)
    }

    /// One request.
    pub(super) fn ask(&self, ask: &Ask) -> Result<Answer> {
        self.network.ask(ask)
    }

    /// All objects that there are in the cluster, as `Kind namespace/name`, but for those that come and go by themselves.
    pub(super) fn everything(&self) -> Result<BTreeSet<String>> {
        let kinds = self.kubectl(&["api-resources", "--verbs=list", "-o", "name"])?;
        let restless = |kind: &&str| {
            let plural = kind.split('.').next().unwrap_or_default();
            !RESTLESS.contains(&plural)
        };
        let kinds: Vec<&str> = kinds.lines().filter(restless).collect();
        let line = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
        let all = self.kubectl(&["get", &kinds.join(","), "-A", "-o", line])?;
        Ok(all.lines().map(str::to_owned).collect())
    }

    /// Ends the program of a pod, as a crash would. The process is one of this machine's: it is found by the pod's uid, which
    /// its control group is called by and no other's.
    pub(super) fn kill(&self, namespace: &str, pod: &str, program: &str) -> Result<()> {
        let pod = self.get(&["-n", namespace, "pod", pod])?;
        let uid = pod["metadata"]["uid"].as_str().context("a pod has a uid")?;
        let mut killed = 0;
        for process in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = process
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            // One that has just ended has no files any more.
            let read = |file| fs::read_to_string(process.path().join(file)).unwrap_or_default();
            if read("comm").trim() == program && read("cgroup").contains(uid) {
                kill(Pid::from_raw(pid), Signal::SIGKILL).context("can't kill")?;
                killed += 1;
            }
        }
        ensure!(
            killed == 1,
            "{killed} processes of {program} in the pod, not 1"
        );
        Ok(())
    }
}

/// Looks until there is an answer, and says how long that took.
///
/// # Errors
/// If there is none within a time: the last look's error.
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
                return Err(error).with_context(|| format!("not within {limit:?}: {what}"));
            }
            Err(_) => sleep(PAUSE),
        }
    }
}

/// A condition of an object's, if it is said of the object as it stands now.
pub(super) fn is_true(object: &Value, conditions: &Value, condition: &str) -> Result<()> {
    let conditions = conditions.as_array().into_iter().flatten();
    let found = conditions
        .filter(|one| one["type"] == condition)
        .find(|one| one["observedGeneration"] == object["metadata"]["generation"]);
    let name = &object["metadata"]["name"];
    match found {
        Some(found) if found["status"] == "True" => Ok(()),
        Some(found) => bail!("{name} is not {condition}: {}", found["message"]),
        None => bail!("nobody says whether {name} is {condition}"),
    }
}
