//! The listeners of a port that can serve a domain. Reading them doesn't depend on other listeners of the port.

use std::sync::Arc;

use sesame_api::ObjectKey;
use sesame_engine::{Index, Reader};
use sesame_model::{ListenerKey, Port};

use crate::shared::hostname;
use crate::shared::listeners::{AttachPoints, ListenerPoint, isolated};

/// The index of listeners by port and hostname.
pub(crate) type PointsByDomain = Index<ObjectKey, AttachPoints, (ListenerKey, Arc<str>)>;

/// Listeners whose hostname covers a domain.
pub(crate) struct Covering<'a> {
    port: Port,
    domain: &'a str,
    owners: Vec<(Arc<str>, Arc<AttachPoints>)>,
}

impl<'a> Covering<'a> {
    /// Reads the listeners of a port whose hostname covers `domain`.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        points: PointsByDomain,
        port: &ListenerKey,
        domain: &'a Arc<str>,
    ) -> Self {
        let mut owners = Vec::new();
        for wider in hostname::widening(domain) {
            // Shares its allocation with the row's key: there is one such key per domain.
            let wider = match *wider == **domain {
                true => Arc::clone(domain),
                false => wider.into(),
            };
            for points in reader.values_by(points, &(port.clone(), Arc::clone(&wider))) {
                owners.push((Arc::clone(&wider), points));
            }
        }
        Self {
            port: port.port,
            domain,
            owners,
        }
    }

    /// The listeners that serve the domain: its requests and connections don't belong to more specific listeners. All
    /// of them have the same hostname.
    pub(crate) fn serving(&self) -> impl Iterator<Item = &ListenerPoint> {
        self.points()
            .filter(|point| !isolated(point, self.points(), self.domain))
    }

    /// The listener for connections whose server name has no listener of its own.
    pub(crate) fn any_host(&self) -> Option<&ListenerPoint> {
        self.points().find(|point| *point.domain == *hostname::ANY)
    }

    fn points(&self) -> impl Iterator<Item = &ListenerPoint> {
        self.owners.iter().flat_map(|(domain, points)| {
            let on_port = points.serving_on(self.port);
            on_port.filter(move |point| point.domain == *domain)
        })
    }
}
