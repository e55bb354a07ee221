//! Metrics of a run.
//!
//! In: counts and durations. Out: OpenMetrics text. This module must not depend on how the text is served.

mod collect;
mod replica;
mod streams;

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use sesame_api::Kind;
use sesame_xds as xds;

pub(crate) use self::replica::ReplicaMetrics;
use self::streams::StreamMetrics;

/// All metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    commits: Counter,
    keys_run: Counter,
    commit_seconds: Histogram,
    served_seconds: Histogram,
    objects: Family<KindLabels, Gauge>,
    problems: Gauge,
    fleets: Gauge,
    rejections: Family<ResourceLabels, Counter>,
    rejected: Gauge,
    rejected_parts: Gauge,
    expiring: Gauge,
    envoy_starts: Counter,
    envoy_exits: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: String,
}

/// Histogram buckets from 0.1 ms to 30 s, each two to three times the previous one.
const SECONDS: [f64; 17] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0,
];

impl Metrics {
    /// All metrics at zero, including those of a replica in a cluster.
    pub(crate) fn of_replica(streams: xds::Registry, replica: ReplicaMetrics) -> Self {
        let mut metrics = Self::new(streams);
        metrics.registry.register_collector(Box::new(replica));
        metrics
    }

    /// All metrics at zero.
    pub(crate) fn new(streams: xds::Registry) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("sesame"),
            commits: Counter::default(),
            keys_run: Counter::default(),
            commit_seconds: Histogram::new(SECONDS),
            served_seconds: Histogram::new(SECONDS),
            objects: Family::default(),
            problems: Gauge::default(),
            fleets: Gauge::default(),
            rejections: Family::default(),
            rejected: Gauge::default(),
            rejected_parts: Gauge::default(),
            expiring: Gauge::default(),
            envoy_starts: Counter::default(),
            envoy_exits: Counter::default(),
        };
        metrics.register();
        let streams = Box::new(StreamMetrics(streams));
        metrics.registry.register_collector(streams);
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "commits",
            "Engine commits; each applies all changes queued at that point",
            self.commits.clone(),
        );
        registry.register(
            "keys_run",
            "Keys processed by stages, a measure of the cost of changes",
            self.keys_run.clone(),
        );
        registry.register_with_unit(
            "commit",
            "Time from dequeuing changes to publishing resources",
            Unit::Seconds,
            self.commit_seconds.clone(),
        );
        registry.register_with_unit(
            "served",
            "Time from detecting a change until an Envoy ACKs it",
            Unit::Seconds,
            self.served_seconds.clone(),
        );
        registry.register("objects", "Objects read, by kind", self.objects.clone());
        registry.register("problems", "Errors in files", self.problems.clone());
        registry.register("fleets", "Fleets", self.fleets.clone());
        registry.register(
            "rejections",
            "Resources rejected by an Envoy, by type",
            self.rejections.clone(),
        );
        registry.register(
            "rejected_resources",
            "Resources whose latest version was rejected by an Envoy",
            self.rejected.clone(),
        );
        registry.register(
            "rejected_parts",
            "Hosts and filter chains whose latest version was rejected by an Envoy",
            self.rejected_parts.clone(),
        );
        registry.register(
            "certificates_expiring",
            "Certificates in use that expire within 14 days, have expired, or aren't valid yet",
            self.expiring.clone(),
        );
        registry.register(
            "envoy_starts",
            "Envoy processes started",
            self.envoy_starts.clone(),
        );
        registry.register(
            "envoy_exits",
            "Envoy processes that exited",
            self.envoy_exits.clone(),
        );
    }

    pub(crate) fn committed(&self, keys: usize, took: Duration) {
        self.commits.inc();
        self.keys_run.inc_by(keys as u64);
        self.commit_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn served(&self, after: Duration) {
        self.served_seconds.observe(after.as_secs_f64());
    }

    /// Changes the number of objects of a kind.
    pub(crate) fn object(&self, kind: Kind, by: i64) {
        let kind = kind.to_string();
        self.objects.get_or_create(&KindLabels { kind }).inc_by(by);
    }

    pub(crate) fn problems(&self, number: usize) {
        self.problems.set(number as i64);
    }

    pub(crate) fn fleets(&self, number: usize) {
        self.fleets.set(number as i64);
    }

    pub(crate) fn rejection(&self, resource: String) {
        self.rejections
            .get_or_create(&ResourceLabels { resource })
            .inc();
    }

    pub(crate) fn rejected(&self, resources: usize, parts: usize) {
        self.rejected.set(resources as i64);
        self.rejected_parts.set(parts as i64);
    }

    pub(crate) fn expiring(&self, number: usize) {
        self.expiring.set(number as i64);
    }

    pub(crate) fn envoy_started(&self) {
        self.envoy_starts.inc();
    }

    pub(crate) fn envoy_exited(&self) {
        self.envoy_exits.inc();
    }

    /// All metrics as text.
    ///
    /// # Errors
    /// Never: writing to a string doesn't fail.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
