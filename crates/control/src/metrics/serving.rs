//! Metrics of a replica in a cluster that are collected when they are read.
//!
//! In: counters of other crates. Out: their values at the time of the scrape. The number of series doesn't grow with the
//! number of objects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use sesame_api::Kind;
use sesame_status::{Counters, WriteResult};
use sesame_xds as xds;

use crate::serve::health::Health;

/// Sources of the counters.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) counters: Arc<Counters>,
    pub(crate) health: Arc<Health>,
    pub(crate) refusals: xds::tls::Refusals,
    pub(crate) registry: xds::Registry,
}

impl Collector for Serving {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let leads = i64::from(self.health.leads());
        gauge(encoder, "leader", "1 where this replica leads", leads)?;
        let waiting = i64::try_from(self.counters.waiting()).unwrap_or(i64::MAX);
        let help = "Statuses that are not written yet";
        gauge(encoder, "statuses_waiting", help, waiting)?;
        let envoys = self.registry.fleets().into_iter().filter_map(|fleet| {
            let status = self.registry.status(&fleet)?;
            i64::try_from(status.clients.len()).ok()
        });
        let help = "Envoys that are connected to this replica";
        gauge(encoder, "envoys", help, envoys.sum())?;
        self.pushed(encoder)?;
        self.writes(encoder)?;
        self.troubles(encoder)?;
        self.refused(encoder)
    }
}

impl Serving {
    fn pushed(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let totals = self.registry.sent();
        let by_resource = |count: fn(&xds::SentTotals) -> u64| {
            let each = totals.iter();
            each.map(move |sent| ([("resource", sent.resource_type.to_string())], count(sent)))
        };
        let help = "Bytes of resources sent to Envoys";
        let bytes = by_resource(|sent| sent.bytes);
        counters(encoder, "xds_sent_bytes", help, bytes)?;
        let help = "Responses sent to Envoys";
        let responses = by_resource(|sent| sent.responses);
        counters(encoder, "xds_responses", help, responses)
    }

    fn writes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.has_status());
        let writes = kinds.flat_map(|kind| WriteResult::ALL.map(|result| (kind, result)));
        let counts = writes.map(|(kind, result)| {
            let labels = [("kind", kind.as_str()), ("result", result.as_str())];
            (labels, self.counters.writes(kind, result))
        });
        let help = "Statuses sent to the API server, by how that ended";
        let counts = counts.filter(|(_, count)| *count > 0);
        counters(encoder, "status_writes", help, counts)
    }

    fn troubles(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        for trouble in self.health.troubles() {
            *counts.entry(trouble.reason.as_str()).or_default() += 1;
        }
        let help = "What is wrong with what the API server tells, by reason";
        let mut family =
            encoder.encode_descriptor("source_troubles", help, None, MetricType::Gauge)?;
        for (reason, count) in counts {
            ConstGauge::new(count).encode(family.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }

    fn refused(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.refusals.counts().into_iter();
        let counts = counts.filter(|(_, count)| *count > 0);
        let help = "Connections and streams of Envoys that were refused, by reason";
        let counts = counts.map(|(reason, count)| ([("reason", reason.as_str())], count));
        counters(encoder, "xds_refused", help, counts)
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

/// A counter for each set of labels.
fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: impl Iterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in counts {
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
