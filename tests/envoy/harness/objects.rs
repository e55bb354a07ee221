//! Objects as text in YAML's flow style, which keeps each rule on one line.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use sesame_testkit::backend::Backend;
use sesame_testkit::certs::Identity;

/// The fields of a plain listener.
pub(crate) const HTTP: &str = "name: http, protocol: HTTP, port: 8080";

/// A Gateway with an address. A listener is the text of its fields: `name: http, protocol: HTTP, port: 8080`.
pub(crate) fn gateway(name: &str, ip: IpAddr, listeners: &[impl AsRef<str>]) -> String {
    let mut text = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: {name}}}\nspec:\n  \
         gatewayClassName: sesame\n  addresses: [{{type: IPAddress, value: \"{ip}\"}}]\n  listeners:\n"
    );
    for listener in listeners {
        let _ = writeln!(text, "  - {{{}}}", listener.as_ref());
    }
    text + "---\n"
}

/// An HTTPS listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Https<'a> {
    /// The name.
    pub(crate) name: &'a str,
    /// The port.
    pub(crate) port: u16,
    /// Empty if absent.
    pub(crate) hostname: &'a str,
    /// Names of Secrets.
    pub(crate) certificates: &'a [&'a str],
}

/// The fields of an HTTPS listener.
pub(crate) fn https(listener: Https<'_>) -> String {
    let Https {
        name,
        port,
        hostname,
        certificates,
    } = listener;
    let hostname = match hostname {
        "" => String::new(),
        hostname => format!("hostname: {hostname:?}, "),
    };
    let references: Vec<_> = certificates
        .iter()
        .map(|name| format!("{{name: {name}}}"))
        .collect();
    format!(
        "name: {name}, protocol: HTTPS, port: {port}, {hostname}tls: {{certificateRefs: [{}]}}",
        references.join(", ")
    )
}

/// An HTTPRoute. A parent is its name plus any other fields, such as `web, sectionName: http`; a rule is the text of
/// its fields.
pub(crate) fn route(
    name: &str,
    parents: &[&str],
    hostnames: &[&str],
    rules: &[impl AsRef<str>],
) -> String {
    any_route("HTTPRoute", name, parents, hostnames, rules)
}

/// A GRPCRoute, with the same parameters as [`route`].
pub(crate) fn grpc_route(
    name: &str,
    parents: &[&str],
    hostnames: &[&str],
    rules: &[impl AsRef<str>],
) -> String {
    any_route("GRPCRoute", name, parents, hostnames, rules)
}

/// A TLSRoute, with the same parameters as [`route`].
pub(crate) fn tls_route(
    name: &str,
    parents: &[&str],
    hostnames: &[&str],
    rules: &[impl AsRef<str>],
) -> String {
    any_route("TLSRoute", name, parents, hostnames, rules)
}

/// A TCPRoute, with the same parameters as [`route`].
pub(crate) fn tcp_route(name: &str, parents: &[&str], rules: &[impl AsRef<str>]) -> String {
    any_route("TCPRoute", name, parents, &[], rules)
}

/// A UDPRoute, with the same parameters as [`route`].
pub(crate) fn udp_route(name: &str, parents: &[&str], rules: &[impl AsRef<str>]) -> String {
    any_route("UDPRoute", name, parents, &[], rules)
}

fn any_route(
    kind: &str,
    name: &str,
    parents: &[&str],
    hostnames: &[&str],
    rules: &[impl AsRef<str>],
) -> String {
    let parents = parents.join("}, {name: ");
    let hostnames = match hostnames {
        [] => String::new(),
        _ => format!("  hostnames: {hostnames:?}\n"),
    };
    let mut text = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: {parents}}}]\n{hostnames}  rules:\n"
    );
    for rule in rules {
        let _ = writeln!(text, "  - {{{}}}", rule.as_ref());
    }
    text + "---\n"
}

/// The same object with a creation date such as `2026-01-31`.
pub(crate) fn created(object: &str, day: &str) -> String {
    let since = format!("metadata: {{creationTimestamp: \"{day}T00:00:00Z\", ");
    object.replacen("metadata: {", &since, 1)
}

/// The `backendRefs` of a rule.
pub(crate) fn to(backend: &str) -> String {
    format!("backendRefs: [{{name: {backend}, port: 80}}]")
}

/// A rule for a path prefix.
pub(crate) fn at(path: &str, backend: &str) -> String {
    on(&format!("{{path: {{value: {path}}}}}"), backend)
}

/// A rule for these matches.
pub(crate) fn on(matches: &str, backend: &str) -> String {
    format!("matches: [{matches}], {}", to(backend))
}

/// A Service with port 80, and an EndpointSlice for each address.
pub(crate) fn service(name: &str, addresses: &[SocketAddr]) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80}}]}}\n---\n"
    );
    for (index, address) in addresses.iter().enumerate() {
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let _ = write!(
            text,
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-{index}, labels: \
             {{kubernetes.io/service-name: {name}}}}}\naddressType: {family}\nports: [{{port: {}}}]\nendpoints: \
             [{{addresses: [\"{}\"]}}]\n---\n",
            address.port(),
            address.ip()
        );
    }
    text
}

/// Starts a backend on a free port. Also returns a Service for it, with the same name.
pub(crate) async fn backend(name: &str) -> (Backend, String) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let backend = Backend::start(name, any).await.expect("a backend");
    let text = service(name, &[backend.address()]);
    (backend, text)
}

/// Starts several backends. Also returns their objects.
pub(crate) async fn backends(names: &[&str]) -> (Vec<Backend>, String) {
    let mut all = (Vec::new(), String::new());
    for name in names {
        let (backend, text) = backend(name).await;
        all.0.push(backend);
        all.1 += &text;
    }
    all
}

/// A Secret with a certificate.
pub(crate) fn certificate(name: &str, identity: &Identity) -> String {
    let indent = |pem: &str| pem.trim_end().replace('\n', "\n    ");
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n    \
         {}\n  tls.key: |\n    {}\n---\n",
        indent(&identity.chain),
        indent(&identity.private_key)
    )
}

/// A Namespace.
pub(crate) fn namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n---\n")
}

/// A ReferenceGrant in namespace `to` that allows HTTPRoutes in namespace `default` to refer to Services.
pub(crate) fn grant(to: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {{name: grant, namespace: {to}}}\n\
         spec:\n  from: [{{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: default}}]\n  to: [{{group: \
         \"\", kind: Service}}]\n---\n"
    )
}
