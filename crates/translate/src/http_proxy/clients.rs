//! Verification of client certificates, for each host.

use std::sync::Arc;

use sesame_api::{HTTPProxy, HttpProxyClientValidation, ObjectKey};
use sesame_engine::{Builder, Reader, Table};
use sesame_model::{
    CertificateKey, ClientValidation, ForwardedCertificate, TrustBundle, TrustBundleKey,
};

use super::findings::{About, Findings};
use super::host::Host;
use super::secrets;
use crate::inputs::Inputs;
use crate::shared::authorities::{self, Reasons};
use crate::shared::default_fleet::Sources;

/// The client validation of an HTTPProxy.
fn validation(proxy: &HTTPProxy) -> Option<&HttpProxyClientValidation> {
    let tls = proxy.spec.virtual_host.as_deref()?.tls.as_deref()?;
    tls.client_validation.as_deref()
}

/// The Secret with the CA bundle that verifies clients, whether or not the HTTPProxy may use it.
pub(super) fn authorities(proxy: &HTTPProxy) -> Option<CertificateKey> {
    secrets::named(
        &proxy.meta.namespace,
        validation(proxy)?.ca_secret.as_deref()?,
    )
}

/// The Secret with the CRLs, whether or not the HTTPProxy may use it.
pub(super) fn revoked(proxy: &HTTPProxy) -> Option<CertificateKey> {
    secrets::named(
        &proxy.meta.namespace,
        validation(proxy)?.crl_secret.as_deref()?,
    )
}

/// Reads the client validation; an error means that no client can be accepted.
pub(super) fn read(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    proxy: &HTTPProxy,
    (field, validation): (&str, &HttpProxyClientValidation),
    findings: &mut Findings,
) -> Result<Arc<ClientValidation>, ()> {
    let untrusted = validation.skip_client_cert_validation;
    let authorities = match &validation.ca_secret {
        None if untrusted => Ok(None),
        None => {
            let message = "needs caSecret, the Secret with the CA certificates that verify clients, or \
                           skipClientCertValidation";
            findings.error(About::CLIENTS, field, message);
            Err(())
        }
        Some(name) => {
            let field = format!("{field}.caSecret");
            usable_authorities(reader, of, proxy, (&field, name), findings).map(Some)
        }
    };
    let any = validation.ca_secret.is_none();
    if any && untrusted && !validation.optional_client_certificate {
        let message = "without caSecret, clients without a certificate are also accepted; set caSecret or \
                       optionalClientCertificate";
        findings.warn(About::CLIENTS, field, message);
    }
    let revoked = match &validation.crl_secret {
        None => Ok(None),
        Some(_) if untrusted => {
            let message =
                "has no effect in combination with skipClientCertValidation; remove one of them";
            findings.warn(About::CLIENTS, &format!("{field}.crlSecret"), message);
            Ok(None)
        }
        Some(name) => {
            let field = format!("{field}.crlSecret");
            usable_lists(reader, of, proxy, (&field, name), findings).map(Some)
        }
    };
    if validation.forward_client_certificate.is_some() && proxy.spec.tcp_proxy.is_some() {
        let field = format!("{field}.forwardClientCertificate");
        let message = "has no effect on forwarded connections, since Envoy doesn't parse the requests on them; \
                       remove it";
        findings.warn(About::CLIENTS, &field, message);
    }
    let (authorities, revoked) = (authorities?, revoked?);
    let revocable_leaf = revoked.is_some() && validation.crl_only_verify_leaf_cert;
    Ok(Arc::new(ClientValidation {
        authorities: authorities.map(|authorities| match revoked {
            None => TrustBundleKey::Secret(authorities),
            Some(revoked) => TrustBundleKey::Revocable {
                authorities,
                revoked,
            },
        }),
        optional: any || validation.optional_client_certificate,
        untrusted,
        revocable_leaf,
        forwarded: validation
            .forward_client_certificate
            .map(|parts| ForwardedCertificate {
                subject: parts.subject,
                certificate: parts.cert,
                chain: parts.chain,
                dns: parts.dns,
                uri: parts.uri,
            }),
    }))
}

fn usable_authorities(
    reader: &mut Reader<'_>,
    (inputs, sources): (Inputs, Sources),
    proxy: &HTTPProxy,
    (field, name): (&str, &str),
    findings: &mut Findings,
) -> Result<CertificateKey, ()> {
    let (place, namespace) = ((About::CLIENTS, field, name), &proxy.meta.namespace);
    let secret = secrets::permitted(reader, inputs, namespace, place, findings).ok_or(())?;
    let reasons = Reasons {
        kind: About::CLIENTS.1,
        object: About::CLIENTS.1,
    };
    match authorities::unusable(
        reader,
        sources.authorities,
        &secrets::object(&secret),
        reasons,
    ) {
        None => Ok(secret),
        Some(problem) => {
            findings.error(About::CLIENTS, field, problem.message());
            Err(())
        }
    }
}

fn usable_lists(
    reader: &mut Reader<'_>,
    (inputs, sources): (Inputs, Sources),
    proxy: &HTTPProxy,
    (field, name): (&str, &str),
    findings: &mut Findings,
) -> Result<CertificateKey, ()> {
    let (place, namespace) = ((About::CLIENTS, field, name), &proxy.meta.namespace);
    let secret = secrets::permitted(reader, inputs, namespace, place, findings).ok_or(())?;
    let state = reader.get(sources.revocations, &secret);
    let why = match state.as_deref() {
        Some(Ok(_)) => return Ok(secret),
        Some(Err(why)) => why,
        None => "does not exist",
    };
    findings.error(About::CLIENTS, field, format!("Secret {secret} {why}"));
    Err(())
}

/// Declares the trust bundles that include CRLs.
pub(super) fn trust_bundles(
    b: &mut Builder,
    hosts: Table<ObjectKey, Host>,
    sources: Sources,
) -> Table<TrustBundleKey, TrustBundle> {
    let keys = b.index(hosts, "http_proxy hosts by revocable", |_, host: &Host| {
        let clients = host.termination().and_then(|tls| tls.clients.as_ref());
        let bundle = clients.and_then(|clients| clients.authorities.clone());
        let revocable = bundle.filter(|key| matches!(key, TrustBundleKey::Revocable { .. }));
        revocable.into_iter().collect()
    });
    b.derive("revocable trust bundle", keys, move |reader, key| {
        let TrustBundleKey::Revocable {
            authorities,
            revoked,
        } = key
        else {
            return None;
        };
        let bundle =
            authorities::bundle(reader, sources.authorities, [secrets::object(authorities)])?;
        let lists = reader.get(sources.revocations, revoked)?;
        Some(TrustBundle {
            revoked: Some(Arc::clone(lists.as_ref().as_ref().ok()?)),
            ..bundle
        })
    })
}
