//! An Envoy with additional configuration, or without some of its extensions.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use tempfile::TempDir;

use super::binary;

/// A program that starts Envoy with additional arguments.
pub(crate) struct Wrapper {
    dir: TempDir,
}

impl Wrapper {
    /// With additional fields in the bootstrap.
    pub(crate) fn new(bootstrap: &Value) -> Self {
        Self::with("--config-yaml", &bootstrap.to_string())
    }

    /// Without an extension, as `CATEGORY/NAME`. Envoy then rejects the configuration that needs it.
    pub(crate) fn without(extension: &str) -> Self {
        Self::with("--disable-extensions", extension)
    }

    fn with(option: &str, value: &str) -> Self {
        let dir = TempDir::with_prefix("sesame-").expect("a temporary folder");
        let envoy = binary::envoy().display();
        let script = format!("#!/bin/sh\nexec '{envoy}' \"$@\" {option} '{value}'\n");
        let path = dir.path().join("envoy");
        fs::write(&path, script).expect("a script");
        let executable = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&path, executable).expect("an executable script");
        Self { dir }
    }

    /// The program's path.
    pub(crate) fn path(&self) -> String {
        let path = self.dir.path().join("envoy");
        path.to_str().expect("a readable path").to_owned()
    }
}
