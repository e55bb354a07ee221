//! Installs Sesame in a cluster as users do.
//!
//! In: a cluster. Out: the same cluster with the Gateway API and Sesame, with the manifests' permissions.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::deploy;
use sesame_tools::cargo::Profile;
use sesame_tools::cluster::{self, Cluster};
use sesame_tools::image;
use sesame_tools::progress::Step;
use sesame_tools::wheel::last_lines;

/// The manifests' namespace.
pub(crate) const NAMESPACE: &str = "sesame-system";

/// The manifests' Deployment.
pub(crate) const DEPLOYMENT: &str = "deployment/sesame";

/// Time limit for Sesame to become ready, as a kubectl flag.
const READY: &str = "--timeout=180s";

/// Time limit for the API server to serve established kinds.
const SERVED: Duration = Duration::from_secs(60);

/// A Gateway API channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Channel {
    /// Stable kinds.
    Standard,
    /// Stable and experimental kinds.
    Experimental,
}

impl Channel {
    /// The name of the channel's folder of CRDs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Experimental => "experimental",
        }
    }
}

/// Builds the images of Sesame and Envoy. `envoy` is the executable, if not the downloaded one.
pub(crate) fn archives(envoy: Option<&Path>) -> Result<Vec<PathBuf>> {
    Ok(vec![
        image::store("sesame", &image::sesame(Profile::Release)?)?,
        image::store("envoy", &image::envoy(envoy)?)?,
    ])
}

/// Installs the Gateway API's CRDs.
pub(crate) fn gateway_api(cluster: &Cluster, channel: Channel) -> Result<()> {
    let step = Step::new(format!(
        "Installing the Gateway API, {} channel",
        channel.name()
    ));
    let definitions = cluster::definitions()?.join(channel.name());
    apply(cluster, &definitions)?;
    let established = [
        "wait",
        "--for=condition=Established",
        "crd",
        "--all",
        "--timeout=60s",
    ];
    kubectl(cluster, &established)?;
    // An established kind is served a little later.
    let until = Instant::now() + SERVED;
    while let Err(error) = kubectl(cluster, &["get", "gatewayclasses,httproutes", "-A"]) {
        if Instant::now() > until {
            return Err(error).context("the Gateway API is installed but not served");
        }
        sleep(Duration::from_secs(1));
    }
    step.done();
    Ok(())
}

/// Installs the CRD of XListenerSet, which the Gateway API's current release lacks.
pub(crate) fn early_kind(cluster: &Cluster) -> Result<()> {
    apply(cluster, &cluster::definitions()?.join("early"))
}

/// Applies Sesame's manifests and restarts existing pods.
pub(crate) fn manifests(cluster: &Cluster) -> Result<()> {
    let step = Step::new("Installing Sesame");
    // Existing pods run the previous image.
    let before = [
        "-n",
        NAMESPACE,
        "get",
        DEPLOYMENT,
        "--ignore-not-found",
        "-o",
        "name",
    ];
    let before = kubectl(cluster, &before)?;
    apply(cluster, &deploy::manifests())?;
    if !before.is_empty() {
        kubectl(
            cluster,
            &["-n", NAMESPACE, "rollout", "restart", DEPLOYMENT],
        )?;
    }
    ready(cluster)?;
    step.done();
    Ok(())
}

/// Adds flags for `sesame serve`, which last until the manifests are applied again.
pub(crate) fn flags(cluster: &Cluster, flags: &[String]) -> Result<()> {
    if flags.is_empty() {
        return Ok(());
    }
    let step = Step::new(format!("Starting Sesame with {}", flags.join(" ")));
    let end = "/spec/template/spec/containers/0/args/-";
    let patch: Vec<_> = flags
        .iter()
        .map(|flag| serde_json::json!({ "op": "add", "path": end, "value": flag }))
        .collect();
    let patch = serde_json::to_string(&patch)?;
    let args = ["-n", NAMESPACE, "patch", DEPLOYMENT, "--type=json", "-p"];
    kubectl(cluster, &[&args[..], &[&patch]].concat())?;
    ready(cluster)?;
    step.done();
    Ok(())
}

/// Waits until Sesame is ready and its GatewayClass is accepted.
///
/// # Errors
/// If it isn't ready in time; the error includes pods and logs.
pub(crate) fn ready(cluster: &Cluster) -> Result<()> {
    let accepted = [
        "wait",
        "--for=condition=Accepted",
        "gatewayclass/sesame",
        "--timeout=60s",
    ];
    let rollout = ["-n", NAMESPACE, "rollout", "status", DEPLOYMENT, READY];
    if let Err(error) = kubectl(cluster, &rollout).and_then(|_| kubectl(cluster, &accepted)) {
        bail!("Sesame isn't ready: {error:#}\n{}", state(cluster));
    }
    Ok(())
}

/// Applies a file or folder.
pub(crate) fn apply(cluster: &Cluster, what: &Path) -> Result<()> {
    let what = what.to_str().context("a path is not UTF-8")?;
    kubectl(
        cluster,
        &["apply", "--server-side", "--force-conflicts", "-f", what],
    )
    .map(drop)
}

/// kubectl's output.
pub(crate) fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<String> {
    kubectl_fed(cluster, args, "")
}

/// kubectl's output, given text on standard input.
pub(crate) fn kubectl_fed(cluster: &Cluster, args: &[&str], text: &str) -> Result<String> {
    let mut child = cluster
        .kubectl()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run kubectl")?;
    if let Some(mut stdin) = child.stdin.take() {
        // If kubectl doesn't read all of its input, it prints the reason.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child
        .wait_with_output()
        .context("cannot wait for kubectl")?;
    if !output.status.success() {
        bail!(
            "`kubectl {}` failed: {}",
            args.join(" "),
            last_lines(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Pods, events and logs from Sesame's namespace, for error messages.
pub(crate) fn state(cluster: &Cluster) -> String {
    let questions: [&[&str]; 3] = [
        &["-n", NAMESPACE, "get", "pods", "-o", "wide"],
        &[
            "-n",
            NAMESPACE,
            "get",
            "events",
            "--field-selector=type=Warning",
        ],
        &[
            "-n",
            NAMESPACE,
            "logs",
            DEPLOYMENT,
            "--tail=20",
            "--all-pods=true",
        ],
    ];
    let answers = questions
        .map(|question| kubectl(cluster, question).unwrap_or_else(|error| format!("{error:#}")));
    answers.join("\n\n")
}
