//! `cargo xtask image`: builds images of Sesame and Envoy without a container engine.
//!
//! In: the images to build. Out: archives in the cache folder, which `cargo xtask cluster up` imports, and in an output
//! folder. Other tools use [`Image`] to build images of their programs.

mod archive;
mod libraries;
pub mod recipes;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sesame_fleet::local::binary;

pub use self::archive::Image;
use crate::cargo::{self, Profile};
use crate::envoy;
use crate::progress::Step;

/// Options of `cargo xtask image`.
#[derive(clap::Args)]
pub struct Args {
    /// Image to build
    #[arg(value_enum, default_value_t = Which::All)]
    which: Which,
    /// Copy the archives to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Build profile of Sesame: `dist` is for releases; it takes minutes longer
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,
    /// Write the image's files into this empty folder instead of an archive
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    rootfs: Option<PathBuf>,
    /// Use this Envoy instead of the downloaded one
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    Sesame,
    Envoy,
    All,
}

/// Builds the images and prints the archives' paths.
pub fn run(args: &Args) -> Result<()> {
    if args.rootfs.is_some() && args.which == Which::All {
        bail!("--rootfs needs one image: `sesame` or `envoy`");
    }
    if matches!(args.which, Which::Sesame | Which::All) {
        deliver(args, "sesame", &sesame(args.profile)?)?;
    }
    if matches!(args.which, Which::Envoy | Which::All) {
        deliver(args, "envoy", &envoy(args.envoy.as_deref())?)?;
    }
    Ok(())
}

/// Builds Sesame and its image.
pub fn sesame(profile: Profile) -> Result<Image> {
    recipes::sesame(&cargo::sesame(profile)?)
}

/// The image of the given Envoy, otherwise of the pinned Envoy.
pub fn envoy(named: Option<&Path>) -> Result<Image> {
    recipes::envoy(&envoy::obtain(named)?)
}

/// The folder of archives imported by every cluster.
pub fn archives() -> Result<PathBuf> {
    let cache = binary::cache_dir().context("no cache folder: set HOME or SESAME_CACHE")?;
    Ok(cache.join("images"))
}

/// Writes an image's archive into that folder and returns its path.
pub fn store(file: &str, image: &Image) -> Result<PathBuf> {
    let archive = archives()?.join(format!("{file}.tar"));
    let step = Step::new(format!("Packing {}", image.names.join(", ")));
    image.write(&archive)?;
    step.done();
    Ok(archive)
}

fn deliver(args: &Args, file: &str, image: &Image) -> Result<()> {
    if let Some(folder) = &args.rootfs {
        return image.files.write_folder(folder);
    }
    let mut archive = store(file, image)?;
    if let Some(out) = &args.out {
        fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
        let copy = out.join(format!("{file}.tar"));
        fs::copy(&archive, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
        archive = copy;
    }
    println!("{}", archive.display());
    Ok(())
}
