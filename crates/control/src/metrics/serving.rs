//! Counts that others keep, as a replica in a cluster shows them.
//!
//! In: counters of the rooms. Out: the same, at the moment at which somebody asks. The number of series doesn't grow with
//! the number of objects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use sesame_api::Kind;
use sesame_status::{Counters, Sent};
use sesame_xds as xds;

use crate::serve::health::Health;

/// What there is to count.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) counters: Arc<Counters>,
    pub(crate) health: Arc<Health>,
    pub(crate) refusals: xds::tls::Refusals,
    pub(crate) registry: xds::Registry,
}

impl Collector for Serving {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let leads = ConstGauge::new(i64::from(self.health.leads()));
        gauge(&mut encoder, "leader", "1 where this replica leads", &leads)?;
        let waiting = i64::try_from(self.counters.waiting()).unwrap_or(i64::MAX);
        gauge(
            &mut encoder,
            "statuses_waiting",
            "Statuses that are not written yet",
            &ConstGauge::new(waiting),
        )?;
        let envoys = self.registry.fleets().into_iter().filter_map(|fleet| {
            let status = self.registry.status(&fleet)?;
            i64::try_from(status.clients.len()).ok()
        });
        gauge(
            &mut encoder,
            "envoys",
            "Envoys that are connected to this replica",
            &ConstGauge::new(envoys.sum::<i64>()),
        )?;
        self.pushed(&mut encoder)?;
        self.writes(&mut encoder)?;
        self.troubles(&mut encoder)?;
        self.refused(&mut encoder)
    }
}

impl Serving {
    fn pushed(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "xds_sent_bytes",
            "Bytes of resources sent to Envoys",
            None,
            MetricType::Counter,
        )?;
        for sent in self.registry.traffic() {
            let resource = sent.resource_type.to_string();
            let labels = [("resource", resource.as_str())];
            ConstCounter::new(sent.bytes).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "xds_responses",
            "Responses sent to Envoys",
            None,
            MetricType::Counter,
        )?;
        for sent in self.registry.traffic() {
            let resource = sent.resource_type.to_string();
            let labels = [("resource", resource.as_str())];
            ConstCounter::new(sent.responses).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn writes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "status_writes",
            "Statuses sent to the API server, by how that ended",
            None,
            MetricType::Counter,
        )?;
        for kind in Kind::ALL.into_iter().filter(|kind| kind.has_status()) {
            for sent in Sent::ALL {
                let count = self.counters.writes(kind, sent);
                if count > 0 {
                    let labels = [("kind", kind.as_str()), ("result", sent.as_str())];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }

    fn troubles(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        for trouble in self.health.troubles() {
            *counts.entry(trouble.reason.as_str()).or_default() += 1;
        }
        let mut family = encoder.encode_descriptor(
            "source_troubles",
            "What is wrong with what the API server tells, by reason",
            None,
            MetricType::Gauge,
        )?;
        for (reason, count) in counts {
            ConstGauge::new(count).encode(family.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }

    fn refused(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "xds_refused",
            "Connections and streams of Envoys that were refused, by reason",
            None,
            MetricType::Counter,
        )?;
        for (reason, count) in self.refusals.counts() {
            if count > 0 {
                let labels = [("reason", reason.as_str())];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    gauge: &ConstGauge<i64>,
) -> fmt::Result {
    gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}
