//! Writes image archives without a container engine.
//!
//! In: an image's files and settings. Out: a tar file with an OCI image layout (image specification 1.1: `oci-layout`,
//! `index.json`, `blobs/`) and the `manifest.json` for older engines.
//! The same image always produces the same bytes: times, owners and order are fixed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, Header};

use super::tree::Tree;
use crate::wheel::hex;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Full names, with registry and tag.
    pub names: Vec<String>,
    /// Its files, as a single layer.
    pub files: Tree,
    /// How to run it.
    pub run: Run,
}

/// Default settings for running an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The program and its arguments.
    pub entrypoint: Vec<String>,
    /// `uid:gid`; root if empty.
    pub user: String,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Ports as `port/protocol`, for information only.
    pub ports: Vec<String>,
}

impl Image {
    /// Writes the archive atomically and returns the digest of the image's manifest (`sha256:…`).
    pub fn write(&self, archive: &Path) -> Result<String> {
        ensure!(!self.names.is_empty(), "an image needs a name");
        let folder = archive.parent().context("an archive needs a folder")?;
        let unwritable = || format!("cannot write {}", archive.display());
        fs::create_dir_all(folder).with_context(unwritable)?;
        let mut layer = Hashed::new(tempfile::tempfile_in(folder).with_context(unwritable)?);
        self.files.write_layer(&mut layer)?;
        let (mut layer, size, layer_hash) = layer.finish();
        layer.rewind().with_context(unwritable)?;

        let mut blobs = BTreeMap::new();
        let mut blob = |media_type: &str, value: &Value| -> Result<Value> {
            let bytes = serde_json::to_vec(value)?;
            let hash = hex(&Sha256::digest(&bytes));
            let descriptor = json!({"mediaType": media_type, "digest": format!("sha256:{hash}"), "size": bytes.len()});
            blobs.insert(format!("blobs/sha256/{hash}"), bytes);
            Ok(descriptor)
        };
        let config = blob(CONFIG, &self.config(&layer_hash)?)?;
        let manifest = blob(
            MANIFEST,
            &json!({
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": config,
                "layers": [{"mediaType": LAYER, "digest": format!("sha256:{layer_hash}"), "size": size}],
            }),
        )?;
        let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
        let named = self.names.iter().map(|name| {
            let mut entry = manifest.clone();
            // containerd reads the first annotation. Other tools read the second, which is in the specification and
            // contains only the tag.
            entry["annotations"] = json!({
                "io.containerd.image.name": name,
                "org.opencontainers.image.ref.name": tag(name),
            });
            entry
        });
        let index =
            json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": named.collect::<Vec<_>>()});
        let layer_path = format!("blobs/sha256/{layer_hash}");
        let config_hash = config["digest"].as_str().unwrap_or_default();
        let for_engines = json!([{
            "Config": format!("blobs/sha256/{}", config_hash.trim_start_matches("sha256:")),
            "RepoTags": self.names,
            "Layers": [layer_path],
        }]);
        blobs.insert("index.json".to_owned(), serde_json::to_vec(&index)?);
        blobs.insert(
            "manifest.json".to_owned(),
            serde_json::to_vec(&for_engines)?,
        );
        let layout = json!({"imageLayoutVersion": "1.0.0"});
        blobs.insert("oci-layout".to_owned(), serde_json::to_vec(&layout)?);

        // Readable by other users: nodes and engines may run as a different user.
        let readable = fs::Permissions::from_mode(0o666);
        let part = tempfile::Builder::new()
            .permissions(readable)
            .tempfile_in(folder)
            .with_context(unwritable)?;
        let mut tar = Builder::new(io::BufWriter::new(part));
        for (path, bytes) in &blobs {
            append(&mut tar, path, bytes.len() as u64, bytes.as_slice())
                .with_context(unwritable)?;
        }
        append(&mut tar, &layer_path, size, layer).with_context(unwritable)?;
        let part = tar.into_inner().with_context(unwritable)?;
        let part = part.into_inner().map_err(io::IntoInnerError::into_error);
        let part = part.with_context(unwritable)?;
        part.persist(archive).with_context(unwritable)?;
        Ok(digest)
    }

    /// The image's configuration as defined in the specification.
    fn config(&self, layer_hash: &str) -> Result<Value> {
        let run = &self.run;
        let environment: Vec<String> = run
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let ports: BTreeMap<&str, Value> = run
            .ports
            .iter()
            .map(|port| (port.as_str(), json!({})))
            .collect();
        Ok(json!({
            "architecture": architecture()?,
            "os": "linux",
            "config": {
                "Entrypoint": run.entrypoint,
                "Env": environment,
                "ExposedPorts": ports,
                "Labels": run.labels,
                "User": run.user,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_hash}")]},
        }))
    }
}

/// The machine's architecture in Go's terms, as required by the specification.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => anyhow::bail!("cannot build images on {other}: only on x86_64 and aarch64"),
    }
}

/// The tag in a name: the part after the last colon, unless that is a port.
fn tag(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((_, tag)) if !tag.contains('/') => tag,
        _ => "latest",
    }
}

fn append<W: Write>(
    tar: &mut Builder<W>,
    path: &str,
    size: u64,
    content: impl Read,
) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mode(0o644);
    header.set_size(size);
    tar.append_data(&mut header, path, content)
}

/// A writer that counts and hashes bytes.
struct Hashed<W> {
    to: W,
    size: u64,
    hasher: Sha256,
}

impl<W: Write> Hashed<W> {
    fn new(to: W) -> Self {
        Self {
            to,
            size: 0,
            hasher: Sha256::new(),
        }
    }

    /// The inner writer, the number of bytes, and their hash.
    fn finish(self) -> (W, u64, String) {
        (self.to, self.size, hex(&self.hasher.finalize()))
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests;
