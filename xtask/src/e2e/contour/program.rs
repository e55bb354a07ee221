//! Contour, built once per version of the Go module's files.
//!
//! In: the module `tools/go/contour`, Go. Out: an image with the program, and the manifests in Contour's module.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;
use sesame_fleet::local::binary::{self, VERSION as ENVOY_VERSION};

use crate::conformance::suite::{build, fingerprint};
use sesame_tools::cargo;
use sesame_tools::go;
use sesame_tools::image::Image;
use sesame_tools::progress::Step;
use sesame_tools::wheel;

/// Contour's module, and the package of its program.
const MODULE: &str = "github.com/projectcontour/contour";
const PACKAGE: &str = "github.com/projectcontour/contour/cmd/contour";

/// The folder of its manifests, and the suffix of the CRD file's name.
const MANIFESTS: &str = "examples/contour";

/// The image's name.
const IMAGE: &str = "projectsesame.io/tests/contour:built";

/// How long an Envoy may drain, in seconds: a short time, since the test waits for it.
const GRACE: u64 = 5;

/// The program and the manifests.
pub(super) struct Contour {
    home: PathBuf,
}

/// Builds Contour unless it exists. Building takes minutes.
pub(super) fn obtain() -> Result<Contour> {
    let module = cargo::root().join("tools/go/contour");
    let shelf = binary::cache_dir()
        .context("no cache folder: set HOME or SESAME_CACHE")?
        .join("contour");
    let home = shelf.join(fingerprint(&module)?);
    wheel::place("Contour", &shelf, &home, |scratch| {
        let go = go::obtain()?;
        let step = Step::new("Building Contour (takes minutes)");
        let folder = scratch.join("built");
        fs::create_dir_all(&folder)?;
        build(&go, &module, &["build"], PACKAGE, &folder.join("contour"))?;
        let source = go.output(&module, ["list", "-m", "-f", "{{.Dir}}", MODULE])?;
        for file in fs::read_dir(Path::new(&source).join(MANIFESTS))? {
            let path = file?.path();
            if path.extension().is_some_and(|of| of == "yaml") {
                let name = path.file_name().unwrap_or_default();
                fs::write(folder.join(name), fs::read(&path)?)?;
            }
        }
        step.done();
        Ok(folder)
    })
    .context("cannot build Contour")?;
    Ok(Contour { home })
}

impl Contour {
    /// An image with the program.
    pub(super) fn image(&self) -> Result<Image> {
        Image::of_program(IMAGE, &self.home.join("contour"), "/bin/contour")
    }

    /// The objects in Contour's manifests, with one replica, adapted to the test cluster's images and nodes.
    pub(super) fn objects(&self) -> Result<Vec<Value>> {
        let mut files: Vec<PathBuf> = fs::read_dir(&self.home)?
            .map(|file| file.map(|file| file.path()))
            .collect::<Result<_, _>>()?;
        files.retain(|path| path.extension().is_some_and(|of| of == "yaml"));
        files.sort();
        let mut objects = Vec::new();
        for path in files {
            let text = fs::read_to_string(&path)?;
            let all: Vec<Value> = serde_saphyr::from_multiple(&text)
                .with_context(|| format!("{} is not valid YAML", path.display()))?;
            objects.extend(all.into_iter().filter(Value::is_object));
        }
        for object in &mut objects {
            if object["kind"] != "CustomResourceDefinition" {
                adapt(object);
            }
        }
        Ok(objects)
    }
}

/// Adapts an object, or a part of it, to the test cluster.
fn adapt(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(adapt),
        Value::Object(fields) => {
            // The cluster doesn't support host ports; kube-proxy forwards to the only node.
            fields.remove("hostPort");
            fields.remove("externalTrafficPolicy");
            // An octal number in YAML 1.1 syntax.
            fields.remove("defaultMode");
            for (name, value) in fields.iter_mut() {
                match (name.as_str(), value.as_str()) {
                    ("image", Some(image)) if image.contains("/contour:") => {
                        *value = IMAGE.into();
                    }
                    ("image", Some(_)) => {
                        *value = format!("ghcr.io/projectsesame/envoy:{ENVOY_VERSION}").into();
                    }
                    ("replicas", _) => *value = 1.into(),
                    ("terminationGracePeriodSeconds", _) => *value = GRACE.into(),
                    _ => adapt(value),
                }
            }
        }
        _ => {}
    }
}
