//! `sesame bootstrap`.
//!
//! In: flags. Out: a bootstrap configuration. Doesn't read files: the certificates are on the Envoy's machine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sesame_control::{Admin, BootstrapOptions, FleetId, HeapLimit, XdsAddress, XdsTls};

use crate::args::BootstrapArgs;
use crate::output;

pub(crate) fn run(args: &BootstrapArgs) -> Result<ExitCode> {
    let bootstrap = sesame_control::bootstrap(&options(args)?)?;
    output::print(&bootstrap, args.output)?;
    Ok(ExitCode::SUCCESS)
}

fn options(args: &BootstrapArgs) -> Result<BootstrapOptions> {
    let fleet = match &args.fleet {
        Some(gateway) => FleetId::of_gateway(gateway.namespace.clone(), gateway.name.clone()),
        None => FleetId::Unmanaged,
    };
    let node_id = args.node_id.clone();
    Ok(BootstrapOptions {
        node_id: node_id.unwrap_or_else(|| fleet.to_string()),
        fleet,
        xds: xds_address(args)?,
        admin: admin(&args.admin)?,
        readiness: args.readiness_socket.clone(),
        max_connections: args.max_connections,
        heap_limit: args.memory_limit.map(HeapLimit::Bytes),
        module: args.module,
    })
}

fn xds_address(args: &BootstrapArgs) -> Result<XdsAddress> {
    if let Some(path) = args.xds_address.strip_prefix("unix:") {
        if args.tls_certificate.is_some() {
            bail!("--tls-certificate: TLS is not supported on a Unix socket; remove the flag");
        }
        return Ok(XdsAddress::Unix(path.into()));
    }
    let (host, port) = host_and_port(&args.xds_address).with_context(|| {
        format!(
            "--xds-address {}: expected HOST:PORT or unix:PATH",
            args.xds_address
        )
    })?;
    let paths = (&args.tls_certificate, &args.tls_key, &args.tls_authority);
    let tls = match paths {
        (Some(certificate), Some(private_key), Some(authority)) => Some(XdsTls {
            certificate: certificate.clone(),
            private_key: private_key.clone(),
            authority: authority.clone(),
            server_name: args.tls_server_name.clone().unwrap_or_else(|| host.clone()),
            secrets: None,
        }),
        _ => None,
    };
    Ok(XdsAddress::Tcp { host, port, tls })
}

/// `name:1`, `192.0.2.1:1` or `[2001:db8::1]:1`.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!bare.is_empty()).then(|| (bare.to_owned(), port))
}

fn admin(text: &str) -> Result<Admin> {
    Ok(match (text, text.strip_prefix("unix:")) {
        ("none", _) => Admin::None,
        (_, Some(path)) => Admin::Unix(PathBuf::from(path)),
        (address, None) => {
            Admin::Tcp(address.parse().with_context(|| {
                format!("--admin {address}: expected IP:PORT, unix:PATH or none")
            })?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse() {
        let parsed = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(host_and_port("sesame:8001"), parsed("sesame", 8001));
        assert_eq!(host_and_port("192.0.2.1:1"), parsed("192.0.2.1", 1));
        assert_eq!(host_and_port("[2001:db8::1]:80"), parsed("2001:db8::1", 80));
        for bad in [
            "",
            "sesame",
            ":1",
            "sesame:",
            "sesame:0",
            "sesame:70000",
            "a:b:1",
            "[]:1",
            "[::1:1",
        ] {
            assert_eq!(host_and_port(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn admin_addresses_parse() {
        assert_eq!(admin("none").unwrap(), Admin::None);
        assert_eq!(admin("unix:/a/b").unwrap(), Admin::Unix("/a/b".into()));
        assert_eq!(
            admin("[::1]:1").unwrap(),
            Admin::Tcp("[::1]:1".parse().unwrap())
        );
        assert!(admin("localhost:1").is_err());
    }
}
