//! Image archives, made without a container engine.
//!
//! In: what an image holds and how it is run. Out: one tar file in the layout of the Open Container Initiative (image
//! specification 1.1: `oci-layout`, `index.json`, `blobs/`), with the `manifest.json` beside it that older engines read.
//! The same image gives the same bytes: no time, no owner, no order but the one that is written here.

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

/// An image: what is in it, and how it is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Under which names a node finds it, each whole, with host and tag.
    pub(crate) names: Vec<String>,
    /// Its files: one layer.
    pub(crate) files: Tree,
    /// How it is run.
    pub(crate) run: Run,
}

/// How an image is run, unless a pod says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// The program and its first arguments.
    pub(crate) entrypoint: Vec<String>,
    /// `uid:gid`; root where empty.
    pub(crate) user: String,
    /// Variables of the environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// What is said about the image.
    pub(crate) labels: BTreeMap<String, String>,
    /// `port/protocol`: where it listens. This opens nothing.
    pub(crate) ports: Vec<String>,
}

impl Image {
    /// Writes the archive, which appears whole or not at all, and says the image's digest (`sha256:…`, of its manifest).
    pub(crate) fn write(&self, archive: &Path) -> Result<String> {
        ensure!(!self.names.is_empty(), "an image needs a name");
        let folder = archive.parent().context("an archive needs a folder")?;
        let unwritable = || format!("can't write {}", archive.display());
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
            // The first is what containerd goes by, the second the specification's own, which holds a tag.
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

        // As readable as any file that the user makes: nodes and engines may run as somebody else.
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

    /// The image's configuration, as the specification has it.
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

/// The machine's architecture, as Go and with it the specification calls it.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => anyhow::bail!("images can't be made on {other}: only on x86_64 and aarch64"),
    }
}

/// The tag of a name: what stands behind its last colon, unless that is a port's.
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

/// Counts and hashes what goes through it.
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

    /// What was written to, the number of bytes, and their hash.
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
