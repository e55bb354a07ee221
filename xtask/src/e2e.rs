//! `cargo xtask e2e`: end-to-end tests of Sesame in a cluster, from installation to removal, under constant load.
//!
//! In: names of tests. Out: a line for each, with diagnostics if it failed. The cluster is created for the run and
//! removed at the end.

mod configuration;
mod contour;
mod deletions;
mod drift;
mod envoys;
mod experimental;
mod hostile;
mod ingress;
mod installs;
mod load;
mod network;
mod operator;
mod outage;
mod outer;
mod own_namespace;
mod parameters;
mod policies;
mod replicas;
mod scene;
mod shop;
mod workflows;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::ValueEnum as _;

use self::scene::Scene;
use crate::deploy;
use crate::install::{self, Channel};
use sesame_tools::cluster::Cluster;

/// Options of `cargo xtask e2e`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Tests to run, in this order [default: all except hostile]
    #[arg(value_enum, value_name = "TEST")]
    tests: Vec<Test>,
    /// Duration of the API server's outage, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    outage: u64,
    /// Number of changes in the test `configuration` [default: a valid and an invalid one of each field]
    #[arg(long, value_name = "N")]
    changes: Option<usize>,
    /// Keep the cluster
    #[arg(long)]
    keep: bool,
    /// Name of the cluster
    #[arg(long, value_name = "CLUSTER", default_value = "e2e")]
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Test {
    /// Install Sesame with the chart, use it and remove it: no objects remain
    Helm,
    /// Install Sesame with the manifests, use it and remove it: no objects remain
    Manifests,
    /// docs/workflows/operator-gateway-api.md: from the installation to the removal, with an upgrade
    WorkflowOperatorGatewayApi,
    /// docs/workflows/operator-ingress.md
    WorkflowOperatorIngress,
    /// docs/workflows/managed.md
    WorkflowManaged,
    /// docs/workflows/unmanaged-gateway-api.md
    WorkflowUnmanagedGatewayApi,
    /// docs/workflows/unmanaged-ingress.md
    WorkflowUnmanagedIngress,
    /// Envoys get labels and parameters, and keep running if the parameters are invalid
    Parameters,
    /// The default fleet serves Ingresses and HTTPProxies, and is removed with the last of them
    Ingress,
    /// Sesame applies changes to its SesameConfiguration, and leaves unmanaged Envoys unchanged
    Configuration,
    /// The operator runs two instances beside this one, upgrades and removes them
    Operator,
    /// A Gateway of a second instance is in front of the Envoys
    Outer,
    /// All Envoys run in Sesame's namespace, with permissions for that namespace only
    OwnNamespace,
    /// With NetworkPolicies enforced, Sesame and its Envoys work
    Policies,
    /// A Contour installation migrates to Sesame and back
    Contour,
    /// Edited and deleted fleet objects are restored
    Drift,
    /// Classes, namespaces and Sesame are deleted before the Gateways that need them
    Deletions,
    /// Envoys roll out and scale
    Envoys,
    /// The leader is killed during changes
    Leader,
    /// Sesame's replicas are replaced during changes
    Rollout,
    /// Sesame and its Envoys are upgraded and downgraded
    Upgrade,
    /// The API server is down
    Outage,
    /// The experimental channel replaces the standard one, and its fields take effect
    Experimental,
    /// A tenant, clients and the holder of an Envoy's key attack Sesame
    Hostile,
    /// Sesame's permissions match its requests
    Rights,
}

/// Runs the tests.
pub(crate) fn run(args: &Args) -> Result<()> {
    let archives = install::archives(None)?;
    let cluster = Cluster::up(&args.name)?;
    let done = cluster
        .load(&archives)
        .and_then(|()| install::gateway_api(&cluster, Channel::Standard))
        .and_then(|()| Scene::new(cluster, Duration::from_secs(args.outage), args.changes))
        .and_then(|scene| all(args, &scene));
    if args.keep {
        println!(
            "The cluster keeps running: `cargo xtask cluster --name {} kubectl get gateways -A`",
            args.name
        );
    } else {
        Cluster::down(&args.name)?;
    }
    done
}

fn all(args: &Args, scene: &Scene) -> Result<()> {
    let every = Test::value_variants().iter().copied();
    let tests: Vec<Test> = match args.tests.as_slice() {
        // It runs nightly.
        [] => every
            .filter(|test| !matches!(test, Test::Hostile))
            .collect(),
        tests => tests.to_vec(),
    };
    installs::renew(scene)?;
    let mut failed = Vec::new();
    for test in tests {
        let name = test.name();
        let begun = Instant::now();
        let outcome = test.run(scene, args.tests.is_empty());
        let took = begun.elapsed().as_secs_f32();
        match outcome {
            Ok(figures) => println!("ok      {name} ({took:.0} s): {figures}"),
            Err(error) => {
                println!("FAILED  {name} ({took:.0} s): {error:#}");
                eprintln!("{}", diagnostics(scene));
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

impl Test {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn run(self, scene: &Scene, all: bool) -> Result<String> {
        match self {
            Self::Helm => return installs::helm(scene),
            Self::WorkflowOperatorGatewayApi
            | Self::WorkflowOperatorIngress
            | Self::WorkflowManaged
            | Self::WorkflowUnmanagedGatewayApi
            | Self::WorkflowUnmanagedIngress => return workflows::workflow(scene, &self.name()),
            Self::Manifests => return installs::manifests(scene),
            Self::Rights => return rights(scene, all),
            _ => installs::ensure_installed(scene)?,
        }
        match self {
            Self::Helm
            | Self::Manifests
            | Self::WorkflowOperatorGatewayApi
            | Self::WorkflowOperatorIngress
            | Self::WorkflowManaged
            | Self::WorkflowUnmanagedGatewayApi
            | Self::WorkflowUnmanagedIngress
            | Self::Rights => bail!("this test has already run"),
            Self::Parameters => parameters::chosen(scene),
            Self::Ingress => ingress::ingress(scene),
            Self::Configuration => configuration::configuration(scene),
            Self::Operator => operator::operator(scene),
            Self::Outer => outer::outer(scene),
            Self::OwnNamespace => own_namespace::own_namespace(scene),
            Self::Policies => policies::policies(scene),
            Self::Contour => contour::contour(scene),
            Self::Drift => drift::drift(scene),
            Self::Deletions => deletions::deletions(scene),
            Self::Envoys => envoys::envoys(scene),
            Self::Leader => replicas::leader(scene),
            Self::Rollout => replicas::rollout(scene),
            Self::Upgrade => replicas::upgrade(scene),
            Self::Outage => outage::outage(scene),
            Self::Experimental => experimental::experimental(scene),
            Self::Hostile => hostile::hostile(scene),
        }
    }
}

/// Compares the permissions of each flavour of the manifests with the requests in all previous tests. After a full run, none
/// may be unused.
fn rights(scene: &Scene, all: bool) -> Result<String> {
    let audit = [scene.cluster.audit_log()];
    // Two of the tests need more permissions.
    let managed = deploy::rendered(&["contourCompat=write", "envoy.publishThroughGateways=true"])?;
    let managed = deploy::rbac::compare_rendered(&managed, &audit)?;
    ensure!(managed.suffices(), "managed: {managed}");
    let operator = deploy::rendered(&["mode=operator"])?;
    let operator = deploy::rbac::compare_rendered(&operator, &audit)?;
    ensure!(operator.suffices(), "operator: {operator}");
    // The account is that of the managed flavour, so the workflows check that these permissions suffice. The verbs for its
    // Secrets are those of a managed fleet's.
    let unmanaged = deploy::rendered(&["mode=unmanaged", "contourCompat=write"])?;
    let unmanaged = deploy::rbac::compare_verbs(&unmanaged, &audit)?;
    for (flavour, verdict) in [
        ("managed", &managed),
        ("operator", &operator),
        ("unmanaged", &unmanaged),
    ] {
        ensure!(!all || verdict.is_used(), "{flavour}: {verdict}");
    }
    Ok(format!(
        "managed: {}; operator: {}; unmanaged: {}",
        managed.usage(),
        operator.usage(),
        unmanaged.usage()
    ))
}

/// Diagnostics for a failure.
fn diagnostics(scene: &Scene) -> String {
    let states = "-o=jsonpath={range .items[*]}{.metadata.name}: \
                  {range .status.containerStatuses[?(@.ready==false)]}{.name} {.state}, {.restartCount} restarts; {end}{'\\n'}{end}";
    let questions: [&[&str]; 4] = [
        &[
            "get",
            "gateways,httproutes,deployments,daemonsets,services,pods",
        ],
        &["get", "events", "--field-selector", "type=Warning"],
        &["get", "pods", states],
        &[
            "logs",
            "--selector=projectsesame.io/fleet",
            "--all-containers",
            "--prefix",
            "--tail=10",
        ],
    ];
    let responses = questions.map(|question| {
        let response = scene.kubectl(&[&["-n", shop::NAMESPACE], question].concat());
        response.unwrap_or_else(|error| format!("{error:#}"))
    });
    // The test's own objects come last, since the start of a run's log is often cut off.
    format!(
        "{}\n{}",
        install::state(&scene.cluster),
        responses.join("\n")
    )
}
