//! `policies`: rotation of a CA that many BackendTLSPolicies share.
//!
//! Each policy targets a Service with its own route. A second CA certificate is added to the ConfigMap and removed
//! again. The second CA issued the certificate of an additional backend, whose route responds only in between. Another
//! client requests the other routes throughout.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::{Value, json};
use sesame_testkit::backend::Backend;
use sesame_testkit::certs::Authority;
use sesame_testkit::many::{self, NAMESPACE};

use crate::Settings;
use crate::local::{self, ADDRESS, Local};
use crate::probe::Probe;
use crate::report::{Figure, Samples, Unit};
use crate::rig;

const PORT: u16 = 10_000;
/// The name in the certificates of backends.
const HOSTNAME: &str = "backend.test";
/// Number of rotations.
const ROTATIONS: usize = 10;
/// Apps per file.
const IN_A_FILE: usize = 100;
/// Time between two requests.
const PACE: Duration = Duration::from_millis(1);
/// Pause between changes.
const REST: Duration = Duration::from_millis(500);
/// Time limit for a change.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let count = settings.objects;
    eprintln!("policies: rotating the CA of {count} BackendTLSPolicies");
    let runtime = rig::runtime("backends")?;
    let (first, second) = (Authority::new()?, Authority::new()?);
    let start = |authority: &Authority| {
        let config = authority.issue(&[HOSTNAME])?.server_config()?;
        let any_port = SocketAddr::new(ADDRESS, 0);
        anyhow::Ok(runtime.block_on(Backend::start_tls("backend", any_port, config))?)
    };
    let (backend, further) = (start(&first)?, start(&second)?);

    let listener = json!({"name": "http", "protocol": "HTTP", "port": PORT});
    let gateway = local::gateway(&[listener]);
    let apps: Vec<Value> = (0..=count)
        .flat_map(|index| {
            let of = if index < count { &backend } else { &further };
            let [route, service, slice] = many::app(index, of.address());
            [route, service, slice, policy(&many::name(index))]
        })
        .collect();
    let bundles = [authorities(&[&first]), authorities(&[&first, &second])];
    let shared = [gateway];
    // Each app consists of four objects.
    let files = apps.chunks(4 * IN_A_FILE).enumerate();
    let files = files.map(|(number, some)| (format!("apps-{number}.yaml"), some));
    let local = Local::start(
        settings,
        files.chain([
            ("gateway.yaml".to_owned(), &shared[..]),
            ("ca.yaml".to_owned(), &bundles[0][..]),
        ]),
    )?;

    let address = SocketAddr::new(ADDRESS, PORT);
    let mut probe = Probe::connect(address)?;
    let mut until = |wanted: u16| -> Result<f64> {
        let since = Instant::now();
        loop {
            // Every request needs a new connection to the backend, and thus a new handshake.
            let path = "/?set-header=connection:close";
            let status = probe.get_path(&many::host(count), path)?.status;
            if status == wanted {
                return Ok(since.elapsed().as_secs_f64() * 1e3);
            }
            ensure!(since.elapsed() < PATIENCE, "still {status}, not {wanted}");
            thread::sleep(PACE);
        }
    };
    until(503)?;
    let stop = Arc::new(AtomicBool::new(false));
    let others = {
        let stop = Arc::clone(&stop);
        thread::spawn(move || ask_for_others(address, count, &stop))
    };
    let mut added = Samples::default();
    for _ in 0..ROTATIONS {
        thread::sleep(REST);
        local.write("ca.yaml", &bundles[1])?;
        added.push(until(200)?);
        thread::sleep(REST);
        local.write("ca.yaml", &bundles[0])?;
        until(503)?;
    }
    thread::sleep(REST);
    stop.store(true, Ordering::SeqCst);
    let counts = others.join().map_err(|_| anyhow!("a client panicked"))?;
    let (requests, failed) = counts?;
    local.end()?;
    Ok(vec![
        Figure::of(
            format!("{count} BackendTLSPolicies: CA added to first response"),
            Unit::Milliseconds,
            &added,
        ),
        Figure::new(
            format!("{count} BackendTLSPolicies: failed requests"),
            Unit::Count,
            failed as f64,
        )
        .exactly(0.0)
        .note(format!("of {requests}, over {} rotations", 2 * ROTATIONS)),
    ])
}

fn policy(service: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "BackendTLSPolicy",
        "metadata": {"namespace": NAMESPACE, "name": service},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": service}],
            "validation": {
                "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}],
                "hostname": HOSTNAME,
            },
        },
    })
}

/// The ConfigMap with these CA certificates.
fn authorities(all: &[&Authority]) -> [Value; 1] {
    let bundle: String = all.iter().map(|authority| authority.pem()).collect();
    [json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": NAMESPACE, "name": "ca"},
        "data": {"ca.crt": bundle},
    })]
}

/// Requests one route after another; returns the numbers of requests and failures.
fn ask_for_others(address: SocketAddr, count: usize, stop: &AtomicBool) -> Result<(usize, usize)> {
    let mut probe = Probe::connect(address)?;
    let (mut requests, mut failed) = (0, 0);
    while !stop.load(Ordering::SeqCst) {
        let host = many::host(requests * 7919 % count);
        let response = probe.send(&host);
        if !matches!(&response, Ok(response) if response.status == 200) {
            failed += 1;
            eprintln!("{host}: {response:?}");
            ensure!(failed < 100, "too many failed requests");
        }
        requests += 1;
        thread::sleep(PACE);
    }
    Ok((requests, failed))
}
