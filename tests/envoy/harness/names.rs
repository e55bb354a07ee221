//! Names that Envoy resolves in a test.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::json;
use sesame_testkit::dns::Dns;
use tempfile::TempDir;

use super::{Folder, Sesame, binary};

/// A DNS server, and an Envoy that uses it instead of the machine's resolver.
pub(crate) struct Names {
    /// The server.
    pub(crate) dns: Dns,
    dir: TempDir,
}

impl Names {
    /// Starts the server with these names for 127.0.0.1.
    pub(crate) async fn new(names: &[&str]) -> Self {
        let dns = Dns::start().await.expect("a DNS server");
        for name in names {
            dns.set(name, &[[127, 0, 0, 1].into()]);
        }
        let dir = TempDir::with_prefix("sesame-").expect("a temporary folder");
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
        let envoy = binary::envoy().display();
        let script = format!("#!/bin/sh\nexec '{envoy}' \"$@\" --config-yaml '{resolver}'\n");
        let names = Self { dns, dir };
        fs::write(names.envoy(), script).expect("a script");
        let executable = fs::Permissions::from_mode(0o700);
        fs::set_permissions(names.envoy(), executable).expect("an executable script");
        names
    }

    /// Starts Sesame with this Envoy, as [`Sesame::serving`] does.
    pub(crate) async fn serving(&self, ip: IpAddr, files: &[(&'static str, String)]) -> Sesame {
        let envoy = self.envoy();
        let envoy = envoy.to_str().expect("a readable path");
        let sesame = Sesame::start(ip, Folder::new(files), &["--envoy", envoy]).await;
        sesame.programmed().await;
        sesame
    }

    /// This Envoy.
    pub(crate) fn envoy(&self) -> PathBuf {
        self.dir.path().join("envoy")
    }
}
