//! An Envoy with additional configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use tempfile::TempDir;

use super::binary;

/// A program that starts Envoy with additional fields in its bootstrap.
pub(crate) struct Wrapper {
    dir: TempDir,
}

impl Wrapper {
    /// Creates the program.
    pub(crate) fn new(bootstrap: &Value) -> Self {
        let dir = TempDir::with_prefix("sesame-").expect("a temporary folder");
        let envoy = binary::envoy().display();
        let script = format!("#!/bin/sh\nexec '{envoy}' \"$@\" --config-yaml '{bootstrap}'\n");
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
