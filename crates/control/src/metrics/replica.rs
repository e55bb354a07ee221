//! Metrics of a replica in a cluster, collected on each scrape.
//!
//! In: counters from other crates. Out: their current values. The number of series doesn't grow with the number of
//! objects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use sesame_api::Kind;
use sesame_status::{Counters, WriteResult};
use sesame_xds as xds;

use super::collect::{counters, gauge};
use crate::serve::health::Health;

/// Sources of the metrics.
#[derive(Debug)]
pub(crate) struct ReplicaMetrics {
    pub(crate) counters: Arc<Counters>,
    pub(crate) health: Arc<Health>,
    pub(crate) refusals: xds::tls::Refusals,
}

impl Collector for ReplicaMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let is_leader = i64::from(self.health.is_leader());
        let help = "1 if this replica is the leader, else 0";
        gauge(encoder, "leader", help, is_leader)?;
        let waiting = i64::try_from(self.counters.waiting()).unwrap_or(i64::MAX);
        let help = "Statuses waiting to be written";
        gauge(encoder, "statuses_waiting", help, waiting)?;
        self.writes(encoder)?;
        self.watch_failures(encoder)?;
        self.rejected(encoder)
    }
}

impl ReplicaMetrics {
    fn writes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.has_status());
        let writes = kinds.flat_map(|kind| WriteResult::ALL.map(|result| (kind, result)));
        let counts = writes.map(|(kind, result)| {
            let labels = [
                ("kind", kind.to_string()),
                ("result", result.as_str().to_owned()),
            ];
            (labels, self.counters.writes(kind, result))
        });
        let help = "Status writes to the API server, by kind and result";
        let counts = counts.filter(|(_, count)| *count > 0);
        counters(encoder, "status_writes", help, counts)
    }

    fn watch_failures(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        for failure in self.health.watch_failures() {
            *counts.entry(failure.reason.as_str()).or_default() += 1;
        }
        let help = "Failing watches, by reason";
        let mut family =
            encoder.encode_descriptor("watch_failures", help, None, MetricType::Gauge)?;
        for (reason, count) in counts {
            ConstGauge::new(count).encode(family.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }

    fn rejected(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.refusals.counts().into_iter();
        let counts = counts.filter(|(_, count)| *count > 0);
        let help = "Rejected connections and streams from Envoys, by reason";
        let counts = counts.map(|(reason, count)| ([("reason", reason.as_str())], count));
        counters(encoder, "xds_refused", help, counts)
    }
}
