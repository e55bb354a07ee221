//! `cargo xtask image`: images of Sesame and of Envoy, without a container engine.
//!
//! In: what to pack. Out: archives in the cache folder, from where a cluster of `cargo xtask cluster` takes them, and in a
//! folder of the user's choice. Other parts make images of their own programs with [`Image`].

mod archive;
mod libraries;
pub(crate) mod recipes;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sesame_fleet::local::binary;

pub(crate) use self::archive::Image;
use crate::cargo::{self, Profile};
use crate::envoy;
use crate::progress::Step;

/// Options of `cargo xtask image`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which image
    #[arg(value_enum, default_value_t = Which::All)]
    which: Which,
    /// Put the archives there too
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How Sesame is built: `dist` is what is shipped, and takes minutes longer
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,
    /// Write the image's files into this new folder instead of an archive
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    rootfs: Option<PathBuf>,
    /// Pack this Envoy instead of the one that is fetched
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    Sesame,
    Envoy,
    All,
}

/// Makes the images and prints the archives' paths.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.rootfs.is_some() && args.which == Which::All {
        bail!("one folder holds the files of one image: say which, `sesame` or `envoy`");
    }
    if matches!(args.which, Which::Sesame | Which::All) {
        hand_out(args, "sesame", &sesame(args.profile)?)?;
    }
    if matches!(args.which, Which::Envoy | Which::All) {
        hand_out(args, "envoy", &envoy(args.envoy.as_deref())?)?;
    }
    Ok(())
}

/// The image of Sesame, which is built for it.
pub(crate) fn sesame(profile: Profile) -> Result<Image> {
    recipes::sesame(&cargo::sesame(profile)?)
}

/// The image of Envoy: the named one, else the pinned one.
pub(crate) fn envoy(named: Option<&Path>) -> Result<Image> {
    recipes::envoy(&envoy::obtain(named)?)
}

/// The folder whose archives every cluster gets.
pub(crate) fn archives() -> Result<PathBuf> {
    let cache =
        binary::cache_dir().context("there is no cache folder: set HOME or SESAME_CACHE")?;
    Ok(cache.join("images"))
}

/// Writes an image's archive where clusters find it, and says where that is.
pub(crate) fn store(file: &str, image: &Image) -> Result<PathBuf> {
    let archive = archives()?.join(format!("{file}.tar"));
    let step = Step::new(format!("Packing {}", image.names.join(", ")));
    image.write(&archive)?;
    step.done();
    Ok(archive)
}

fn hand_out(args: &Args, file: &str, image: &Image) -> Result<()> {
    if let Some(folder) = &args.rootfs {
        return image.files.write_folder(folder);
    }
    let mut archive = store(file, image)?;
    if let Some(out) = &args.out {
        fs::create_dir_all(out).with_context(|| format!("can't create {}", out.display()))?;
        let copy = out.join(format!("{file}.tar"));
        fs::copy(&archive, &copy).with_context(|| format!("can't write {}", copy.display()))?;
        archive = copy;
    }
    println!("{}", archive.display());
    Ok(())
}
