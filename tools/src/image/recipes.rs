//! The images and their contents.
//!
//! In: executables. Out: images with the files they need from this machine. `deploy/Dockerfile` builds the same images
//! with a container engine; a test compares them.

use std::path::Path;

use anyhow::{Context, Result};
use sesame_fleet::local::binary::VERSION as ENVOY_VERSION;

use super::archive::{Image, Run};
use super::libraries;
use super::tree::Tree;

/// Sesame's version and image tag.
pub const SESAME_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The registry for published images.
const REGISTRY: &str = "ghcr.io/projectsesame";

/// The images' user: the conventional UID and GID of `nonroot`.
pub const NONROOT: &str = "65532:65532";

/// Paths of the host's CA bundle on Debian, Fedora and Alpine.
const CA_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Path of the CA bundle in images, as expected by Envoy's configuration.
const CA_BUNDLE_IN_IMAGE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The Sesame image.
pub fn sesame(program: &Path) -> Result<Image> {
    let name = format!("{REGISTRY}/sesame:{SESAME_VERSION}");
    let mut image = Image::of_program(&name, program, "/usr/local/bin/sesame")?;
    image.add_ca_bundle()?;
    image.run.user = NONROOT.to_owned();
    image.run.labels = labels(
        "Sesame",
        "A Kubernetes ingress controller and Gateway API implementation",
        SESAME_VERSION,
    );
    image.run.ports = vec!["8080/tcp".to_owned(), "18000/tcp".to_owned()];
    Ok(image)
}

/// An image of the Envoy that Sesame is tested with.
pub fn envoy(program: &Path) -> Result<Image> {
    let name = format!("{REGISTRY}/envoy:{ENVOY_VERSION}");
    let mut image = Image::of_program(&name, program, "/usr/local/bin/envoy")?;
    image.add_ca_bundle()?;
    image.run.user = NONROOT.to_owned();
    image.run.labels = labels(
        "Envoy",
        "The Envoy that Sesame is tested with",
        ENVOY_VERSION,
    );
    Ok(image)
}

impl Image {
    /// An image that runs a program from this machine as root: the program at `path`, its loader and libraries, `/tmp`,
    /// users and name resolution. Callers can add files or set another user.
    pub fn of_program(name: &str, program: &Path, path: &str) -> Result<Self> {
        let mut files = Tree::default();
        for library in libraries::of(program)? {
            let place = library.to_str().context("a library's path isn't UTF-8")?;
            files.file(place, &library)?;
        }
        files.file(path, program)?;
        files.folder("/tmp", 0o1777)?;
        files.text(
            "/etc/passwd",
            "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n",
        )?;
        files.text("/etc/group", "root:x:0:\nnonroot:x:65532:\n")?;
        files.text("/etc/nsswitch.conf", "hosts: files dns\n")?;
        Ok(Self {
            names: vec![name.to_owned()],
            files,
            run: Run {
                entrypoint: vec![path.to_owned()],
                environment: [("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]
                    .into(),
                ..Run::default()
            },
        })
    }

    /// Adds this machine's CA bundle.
    fn add_ca_bundle(&mut self) -> Result<()> {
        let found = CA_BUNDLES
            .iter()
            .map(Path::new)
            .find(|path| path.is_file())
            .context("this machine has no CA certificates: install ca-certificates")?;
        self.files.file(CA_BUNDLE_IN_IMAGE, found)
    }
}

fn labels(
    title: &str,
    description: &str,
    version: &str,
) -> std::collections::BTreeMap<String, String> {
    [
        ("title", title),
        ("description", description),
        ("version", version),
        ("licenses", "Apache-2.0"),
    ]
    .map(|(key, value)| (format!("org.opencontainers.image.{key}"), value.to_owned()))
    .into()
}

#[cfg(test)]
mod tests;
