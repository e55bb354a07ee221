//! Metrics of the xDS server, collected on each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use sesame_xds as xds;

use super::collect::{counters, gauge};

/// The source of the metrics.
#[derive(Debug)]
pub(super) struct StreamMetrics(pub(super) xds::Registry);

impl Collector for StreamMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let envoys = self.0.fleets().into_iter().filter_map(|fleet| {
            let status = self.0.status(&fleet)?;
            i64::try_from(status.clients.len()).ok()
        });
        let help = "Connected Envoys";
        gauge(encoder, "envoys", help, envoys.sum())?;
        let totals = self.0.sent();
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
}
