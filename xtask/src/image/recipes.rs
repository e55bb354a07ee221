//! Which images there are, and what is in each.
//!
//! In: executables. Out: images, the files of this machine that they need included. `deploy/Dockerfile` describes the same
//! images for those who build with an engine; a test below holds the two together.

use std::path::Path;

use anyhow::{Context, Result};
use sesame_fleet::local::binary::VERSION as ENVOY_VERSION;

use super::archive::{Image, Run};
use super::libraries;
use super::tree::Tree;

/// Sesame's version, which is its image's tag too.
pub(crate) const SESAME_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where images are published.
const REGISTRY: &str = "ghcr.io/projectsesame";

/// The user that images run as: not root, and the same number that others use for it.
pub(crate) const NONROOT: &str = "65532:65532";

/// Where authorities' certificates lie on this machine: Debian's place, Fedora's, Alpine's.
const AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Where they lie in an image, which is where Envoy is told to look.
const AUTHORITIES_IN_IMAGE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Sesame's own image.
pub(crate) fn sesame(program: &Path) -> Result<Image> {
    let name = format!("{REGISTRY}/sesame:{SESAME_VERSION}");
    let mut image = Image::of_program(&name, program, "/usr/local/bin/sesame")?;
    image.add_authorities()?;
    image.run.user = NONROOT.to_owned();
    image.run.labels = labels(
        "Sesame",
        "A Kubernetes ingress controller and Gateway API implementation",
        SESAME_VERSION,
    );
    image.run.ports = vec!["8080/tcp".to_owned(), "18000/tcp".to_owned()];
    Ok(image)
}

/// The Envoy that Sesame is tested with.
pub(crate) fn envoy(program: &Path) -> Result<Image> {
    let name = format!("{REGISTRY}/envoy:{ENVOY_VERSION}");
    let mut image = Image::of_program(&name, program, "/usr/local/bin/envoy")?;
    image.add_authorities()?;
    image.run.user = NONROOT.to_owned();
    image.run.labels = labels(
        "Envoy",
        "The Envoy that Sesame is tested with",
        ENVOY_VERSION,
    );
    Ok(image)
}

impl Image {
    /// An image that runs a program of this machine as root: the program at `path`, what loads it, and what any program
    /// may look for: `/tmp`, users, how names are looked up. More files and another user are the caller's to add.
    pub(crate) fn of_program(name: &str, program: &Path, path: &str) -> Result<Self> {
        let mut files = Tree::default();
        for library in libraries::of(program)? {
            let place = library.to_str().context("a library's path is no text")?;
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

    /// Adds the certificates of the authorities that this machine trusts.
    fn add_authorities(&mut self) -> Result<()> {
        let found = AUTHORITIES
            .iter()
            .map(Path::new)
            .find(|path| path.is_file())
            .context("this machine has no authorities' certificates: install ca-certificates")?;
        self.files.file(AUTHORITIES_IN_IMAGE, found)
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
