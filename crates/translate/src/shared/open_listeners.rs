//! Listeners of Gateways and ListenerSets that name HTTPProxy or Ingress in `allowedRoutes.kinds`: these objects have
//! no parentRefs, so all of them in permitted namespaces attach, in addition to the default fleet.
//!
//! In: listeners. Out: the hosts of objects on these listeners.

use std::sync::Arc;

use sesame_api::{Kind, ObjectKey};
use sesame_engine::{Builder, Index, Reader, Table};

use super::hosts::AttachedHost;
use super::listeners::{AttachPoints, Protocol};
use super::namespaces::{self, Labels};

/// The kinds that may attach without a parentRef.
pub(crate) const KINDS: [Kind; 2] = [Kind::HTTPProxy, Kind::Ingress];

/// The maximum number of ports of a Gateway or ListenerSet that serve these kinds: each port has a copy of all hosts.
pub(crate) const MAX_PORTS: usize = 2;

/// The tables that attachments depend on.
#[derive(Clone, Copy)]
pub(crate) struct OpenListeners {
    by_kind: Index<ObjectKey, AttachPoints, Kind>,
    namespaces: Table<Arc<str>, Labels>,
}

/// Declares the index.
pub(crate) fn stages(
    b: &mut Builder,
    points: Table<ObjectKey, AttachPoints>,
    namespaces: Table<Arc<str>, Labels>,
) -> OpenListeners {
    OpenListeners {
        by_kind: b.index(points, "open listeners by kind", |_, points| {
            let listeners = || points.listeners.iter();
            let open = |kind: &Kind| listeners().any(|point| point.kinds.contains(kind));
            KINDS.into_iter().filter(open).collect()
        }),
        namespaces,
    }
}

impl OpenListeners {
    /// The hosts of an object with this kind, namespace and hostname, on the listeners with one of these protocols.
    pub(crate) fn hosts(
        self,
        reader: &mut Reader<'_>,
        (kind, namespace): (Kind, &Arc<str>),
        hostname: &Arc<str>,
        protocols: &[Protocol],
    ) -> Vec<AttachedHost> {
        let mut hosts = Vec::new();
        for points in reader.values_by(self.by_kind, &kind) {
            let listeners = points.listeners.iter();
            for point in listeners.filter(|_| points.closed.is_none()) {
                if protocols.contains(&point.protocol)
                    && point.kinds.contains(&kind)
                    && namespaces::permits(reader, self.namespaces, point, namespace)
                {
                    hosts.extend(AttachedHost::on(point, std::slice::from_ref(hostname)));
                }
            }
        }
        hosts
    }
}
