//! Mutual TLS between Envoy and Sesame.
//!
//! In: file paths. Out: a transport socket, and SDS files that make Envoy reload rotated certificates. It doesn't read
//! files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use envoy_types::util::pack_any;
use prost::Name;
use serde_json::json;

use crate::cluster::TLS_SOCKET;
use crate::render::to_json;

/// Files for mutual TLS with Sesame, as paths in Envoy's file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsTls {
    /// Envoy's certificate chain, PEM.
    pub certificate: PathBuf,
    /// Envoy's private key, PEM.
    pub private_key: PathBuf,
    /// The CA bundle that verifies Sesame's certificate, PEM.
    pub authority: PathBuf,
    /// A DNS name that Sesame's certificate must have.
    pub server_name: String,
    /// The folder with the files from [`xds_secrets`]. If set, Envoy reloads the three files above when a file is moved
    /// into their folder (so replace them by renaming, as the kubelet does), and keeps open connections. If `None`,
    /// Envoy reads them once, at startup.
    pub secrets: Option<PathBuf>,
}

/// The name of the SDS secret for Envoy's certificate, and of the secret's file.
const CERTIFICATE: &str = "xds-certificate";
/// The name of the SDS secret for the CA bundle, and of the secret's file.
const AUTHORITY: &str = "xds-authority";

/// Contents of the files in [`XdsTls::secrets`] by file name: discovery responses, each with one secret that refers
/// to files. Envoy watches certificate files only if they are configured through SDS.
pub fn xds_secrets(paths: &XdsTls) -> BTreeMap<String, String> {
    use tls::secret::Type;
    let secrets = [
        (CERTIFICATE, Type::TlsCertificate(certificate(paths, true))),
        (AUTHORITY, Type::ValidationContext(authority(paths, true))),
    ];
    let files = secrets.map(|(name, content)| {
        let secret = tls::Secret {
            name: name.to_owned(),
            r#type: Some(content),
        };
        let mut secret = to_json(&secret).expect("file names convert to JSON");
        secret["@type"] = json!(tls::Secret::type_url());
        let response = json!({ "resources": [secret] });
        (file_name(name), response.to_string())
    });
    files.into_iter().collect()
}

/// The transport socket for connections to Sesame.
pub(super) fn transport_socket(paths: &XdsTls) -> core::TransportSocket {
    use tls::common_tls_context::{CombinedCertificateValidationContext, ValidationContextType};
    let mut common = tls::CommonTlsContext {
        tls_params: Some(tls::TlsParameters {
            tls_minimum_protocol_version: tls::tls_parameters::TlsProtocol::TlSv13.into(),
            tls_maximum_protocol_version: tls::tls_parameters::TlsProtocol::TlSv13.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let validation = match &paths.secrets {
        None => {
            common.tls_certificates = vec![certificate(paths, false)];
            ValidationContextType::ValidationContext(tls::CertificateValidationContext {
                trusted_ca: authority(paths, false).trusted_ca,
                ..server_name(paths)
            })
        }
        Some(folder) => {
            common.tls_certificate_sds_secret_configs = vec![from_file(folder, CERTIFICATE)];
            ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
                default_validation_context: Some(server_name(paths)),
                validation_context_sds_secret_config: Some(from_file(folder, AUTHORITY)),
                ..Default::default()
            })
        }
    };
    common.validation_context_type = Some(validation);
    let context = tls::UpstreamTlsContext {
        common_tls_context: Some(common),
        sni: paths.server_name.clone(),
        ..Default::default()
    };
    core::TransportSocket {
        name: TLS_SOCKET.to_owned(),
        config_type: Some(core::transport_socket::ConfigType::TypedConfig(pack_any(
            context,
        ))),
    }
}

fn certificate(paths: &XdsTls, watched: bool) -> tls::TlsCertificate {
    tls::TlsCertificate {
        certificate_chain: Some(file(&paths.certificate)),
        private_key: Some(file(&paths.private_key)),
        watched_directory: watched.then(|| folder_of(&paths.certificate)).flatten(),
        ..Default::default()
    }
}

fn authority(paths: &XdsTls, watched: bool) -> tls::CertificateValidationContext {
    tls::CertificateValidationContext {
        trusted_ca: Some(file(&paths.authority)),
        watched_directory: watched.then(|| folder_of(&paths.authority)).flatten(),
        ..Default::default()
    }
}

fn server_name(paths: &XdsTls) -> tls::CertificateValidationContext {
    tls::CertificateValidationContext {
        match_typed_subject_alt_names: vec![tls::SubjectAltNameMatcher {
            san_type: tls::subject_alt_name_matcher::SanType::Dns.into(),
            matcher: Some(StringMatcher {
                match_pattern: Some(MatchPattern::Exact(paths.server_name.clone())),
                ..Default::default()
            }),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn from_file(folder: &Path, name: &str) -> tls::SdsSecretConfig {
    let path = folder.join(file_name(name));
    tls::SdsSecretConfig {
        name: name.to_owned(),
        sds_config: Some(core::ConfigSource {
            resource_api_version: core::ApiVersion::V3.into(),
            config_source_specifier: Some(
                core::config_source::ConfigSourceSpecifier::PathConfigSource(
                    core::PathConfigSource {
                        path: text(&path),
                        ..Default::default()
                    },
                ),
            ),
            ..Default::default()
        }),
    }
}

fn file_name(name: &str) -> String {
    format!("{name}.json")
}

fn folder_of(path: &Path) -> Option<core::WatchedDirectory> {
    path.parent().map(|folder| core::WatchedDirectory {
        path: text(folder),
        ..Default::default()
    })
}

fn file(path: &Path) -> core::DataSource {
    core::DataSource {
        specifier: Some(core::data_source::Specifier::Filename(text(path))),
        ..Default::default()
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
