//! Sesame in a cluster, as a user would install it.
//!
//! In: a cluster. Out: the Gateway API and Sesame in it, under the rights that its manifests give it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::cargo::Profile;
use crate::cluster::{self, Cluster};
use crate::deploy;
use crate::image;
use crate::progress::Step;
use crate::wheel::last_lines;

/// Where the manifests put Sesame.
pub(crate) const NAMESPACE: &str = "sesame-system";

/// How they call it.
pub(crate) const DEPLOYMENT: &str = "deployment/sesame";

/// How long Sesame may take until it is ready, for kubectl.
const READY: &str = "--timeout=180s";

/// A channel of the Gateway API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Channel {
    /// What is stable.
    Standard,
    /// With what is being tried.
    Experimental,
}

impl Channel {
    /// As the folder of its definitions is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Experimental => "experimental",
        }
    }
}

/// Archives of what is installed: Sesame, built for it, and Envoy.
pub(crate) fn archives() -> Result<Vec<PathBuf>> {
    Ok(vec![
        image::store("sesame", &image::sesame(Profile::Release)?)?,
        image::store("envoy", &image::envoy(None)?)?,
    ])
}

/// The kinds of the Gateway API.
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
    step.done();
    Ok(())
}

/// Sesame, of the manifests. Whatever of it is there already is started anew.
pub(crate) fn manifests(cluster: &Cluster) -> Result<()> {
    let step = Step::new("Installing Sesame");
    // One that is there already runs what the image was before.
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

/// More flags for `sesame serve`, until the manifests are applied again.
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

/// Waits until Sesame is ready, and its class is accepted.
///
/// # Errors
/// If it doesn't become so: with all that is known of it.
pub(crate) fn ready(cluster: &Cluster) -> Result<()> {
    let accepted = [
        "wait",
        "--for=condition=Accepted",
        "gatewayclass/sesame",
        "--timeout=60s",
    ];
    let rollout = ["-n", NAMESPACE, "rollout", "status", DEPLOYMENT, READY];
    if let Err(error) = kubectl(cluster, &rollout).and_then(|_| kubectl(cluster, &accepted)) {
        bail!("Sesame doesn't become ready: {error:#}\n{}", state(cluster));
    }
    Ok(())
}

/// Applies a file, or the files of a folder.
pub(crate) fn apply(cluster: &Cluster, what: &Path) -> Result<()> {
    let what = what.to_str().context("a path is not UTF-8")?;
    kubectl(
        cluster,
        &["apply", "--server-side", "--force-conflicts", "-f", what],
    )
    .map(drop)
}

/// What kubectl prints.
pub(crate) fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<String> {
    kubectl_fed(cluster, args, "")
}

/// What kubectl prints when it reads a text.
pub(crate) fn kubectl_fed(cluster: &Cluster, args: &[&str], text: &str) -> Result<String> {
    let mut child = cluster
        .kubectl()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("kubectl can't be run")?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it doesn't read it all, it says why.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child
        .wait_with_output()
        .context("kubectl can't be waited for")?;
    if !output.status.success() {
        bail!(
            "`kubectl {}` failed: {}",
            args.join(" "),
            last_lines(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What stands in Sesame's namespace and what it said last, for somebody who must find out why.
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
