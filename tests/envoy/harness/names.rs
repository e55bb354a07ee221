//! Names that Envoy resolves in a test.

use std::net::IpAddr;

use serde_json::json;
use sesame_testkit::dns::Dns;

use super::{Folder, Sesame, Wrapper};

/// A DNS server, and an Envoy that uses it instead of the machine's resolver.
pub(crate) struct Names {
    /// The server.
    pub(crate) dns: Dns,
    envoy: Wrapper,
}

impl Names {
    /// Starts the server with these names for 127.0.0.1.
    pub(crate) async fn new(names: &[&str]) -> Self {
        let dns = Dns::start().await.expect("a DNS server");
        for name in names {
            dns.set(name, &[[127, 0, 0, 1].into()]);
        }
        let resolver = json!({"typed_dns_resolver_config": {
            "name": "envoy.network.dns_resolver.cares",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
                "resolvers": [{"socket_address": {
                    "address": dns.address().ip(),
                    "port_value": dns.address().port(),
                }}],
            },
        }});
        let envoy = Wrapper::new(&resolver);
        Self { dns, envoy }
    }

    /// Starts Sesame with this Envoy, as [`Sesame::serving`] does.
    pub(crate) async fn serving(&self, ip: IpAddr, files: &[(&'static str, String)]) -> Sesame {
        let arguments = ["--envoy", &*self.envoy()];
        let sesame = Sesame::start(ip, Folder::new(files), &arguments).await;
        sesame.programmed().await;
        sesame
    }

    /// The path of this Envoy.
    pub(crate) fn envoy(&self) -> String {
        self.envoy.path()
    }
}
