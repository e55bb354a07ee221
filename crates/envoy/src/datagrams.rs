//! UDP ports: the filter, cluster and endpoints of each.
//!
//! In: [`Datagrams`]. Out: a listener filter, a `Cluster` and a `ClusterLoadAssignment`.
//!
//! Replacing a UDP listener or its cluster ends all sessions. Therefore neither depends on routes: the cluster is named
//! after the port and never changes, and backend weights are in its endpoints. Remaining endpoints keep their sessions.

use std::net::{IpAddr, Ipv4Addr};

use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::endpoint::v3 as pb;
use envoy_types::pb::envoy::config::listener::v3::{ListenerFilter, listener_filter};
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::udp_proxy_config::RouteSpecifier;
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::{Route, UdpProxyConfig};
use envoy_types::pb::xds::core::v3::TypedExtensionConfig;
use envoy_types::pb::xds::r#type::matcher::v3::Matcher;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::{OnMatch, on_match};
use envoy_types::util::pack_any;
use sesame_model::{Datagrams, Endpoint, ListenerKey};

use crate::cluster::{by_locality, with_eds};
use crate::endpoint::{locality, share};
use crate::names;

/// An endpoint to which datagrams can't be sent, which gets the sessions to drop. A locality without endpoints wouldn't
/// get any sessions, whatever its weight.
const NOWHERE: Endpoint = Endpoint {
    address: IpAddr::V4(Ipv4Addr::LOCALHOST),
    port: 0,
    health_port: None,
};

/// The filter that forwards a port's datagrams, by session (a client's address and port). A session ends after a minute
/// without datagrams, Envoy's default.
pub(crate) fn filter(key: &ListenerKey) -> ListenerFilter {
    let route = Route {
        cluster: names::datagrams(key),
    };
    let proxy = UdpProxyConfig {
        stat_prefix: names::listener(key),
        route_specifier: Some(RouteSpecifier::Matcher(Matcher {
            on_no_match: Some(Box::new(OnMatch {
                on_match: Some(on_match::OnMatch::Action(TypedExtensionConfig {
                    name: "route".to_owned(),
                    typed_config: Some(pack_any(route)),
                })),
                ..Default::default()
            })),
            ..Default::default()
        })),
        ..Default::default()
    };
    ListenerFilter {
        name: "envoy.filters.udp_listener.udp_proxy".to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(pack_any(proxy))),
        ..Default::default()
    }
}

/// The cluster for a UDP port.
pub fn datagram_cluster(key: &ListenerKey) -> cluster::Cluster {
    cluster::Cluster {
        common_lb_config: Some(by_locality()),
        ..with_eds(names::datagrams(key))
    }
}

/// The endpoints for a UDP port, with a locality for each backend.
pub fn datagram_endpoints(key: &ListenerKey, datagrams: &Datagrams) -> pb::ClusterLoadAssignment {
    let localities = datagrams.shares.iter().map(share);
    let dropped = datagrams.dropped;
    let nowhere = (dropped > 0).then(|| locality(names::REFUSED.to_owned(), dropped, &[NOWHERE]));
    pb::ClusterLoadAssignment {
        cluster_name: names::datagrams(key),
        endpoints: localities.chain(nowhere).collect(),
        ..Default::default()
    }
}
