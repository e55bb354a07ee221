//! The instance's SesameConfiguration, read from a file.
//!
//! In: the path. Out: the object and the settings in it, or all errors with their locations.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use sesame_api::{Object, SesameConfiguration};
use sesame_control::files::{self, FilesConfig};
use sesame_control::{Settings, configured_settings};

/// Reads a file with one SesameConfiguration and no other object.
pub(crate) fn read(file: &Path) -> Result<SesameConfiguration> {
    let path = file.display();
    let snapshot = files::load(&FilesConfig::new([file]));
    if !snapshot.errors.is_empty() {
        let errors: Vec<String> = snapshot.errors.iter().map(ToString::to_string).collect();
        bail!("{}", errors.join("\n"));
    }
    let mut objects = snapshot.objects.into_iter();
    match (objects.next(), objects.next()) {
        (Some(Object::SesameConfiguration(configuration)), None) => Ok(*configuration),
        _ => bail!(
            "{path}: expected one SesameConfiguration and no other object; its apiVersion is {}",
            sesame_api::Kind::SesameConfiguration.api_version()
        ),
    }
}

/// The settings in a configuration. Settings that it lacks are taken from `started`.
pub(crate) fn settings(
    file: &Path,
    started: &Settings,
    configuration: &SesameConfiguration,
) -> Result<Settings> {
    configured_settings(started, configuration).map_err(|errors| {
        let path = file.display();
        let errors: Vec<String> = errors
            .iter()
            .map(|error| format!("{path}: spec.{error}"))
            .collect();
        anyhow::anyhow!("{}", errors.join("\n"))
    })
}

/// The settings for a local run, and the files to read.
pub(crate) fn of_local(
    flags: Settings,
    file: Option<&Path>,
    paths: &[PathBuf],
) -> Result<(Settings, Vec<PathBuf>)> {
    let mut paths = paths.to_vec();
    let Some(file) = file else {
        return Ok((flags, paths));
    };
    let configured = settings(file, &flags, &read(file)?)?;
    // Changes to the file arrive like changes to other objects.
    paths.push(file.to_owned());
    Ok((configured, paths))
}
