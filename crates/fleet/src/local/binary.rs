//! Which Envoy to run.
//!
//! In: the flag, the environment, the cache folder. Out: the path of an executable, or an error that says what to do.
//! Downloads nothing: `cargo xtask envoy` fills the cache.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The version of Envoy that Sesame is built and tested with.
pub const VERSION: &str = "1.40.0";

/// The environment variable with the path of another Envoy than the cached one.
pub const ENVIRONMENT: &str = "SESAME_ENVOY";

/// Where an Envoy was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user named it, by `--envoy` or [`ENVIRONMENT`].
    Given,
    /// In the cache folder: it is of [`VERSION`].
    Cache,
    /// On `PATH`: it may be of any version.
    Path,
}

/// An Envoy that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Absolute.
    pub path: PathBuf,
    /// Where it was found.
    pub origin: Origin,
}

/// Why there is no Envoy to run. The message says what to do.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NotFound {
    /// The given file can't be run. No other is tried.
    #[error(
        "{given_by} is {path:?}, which is {problem}; set it to an Envoy executable, or leave it out"
    )]
    Given {
        /// `--envoy` or [`ENVIRONMENT`].
        given_by: &'static str,
        /// As it was given.
        path: PathBuf,
        /// `not a file`, `not executable` or the like.
        problem: &'static str,
    },
    /// None was given, and there is none in the usual places.
    #[error(
        "no Envoy found: run `cargo xtask envoy` to fetch {VERSION}, or set --envoy PATH or {ENVIRONMENT}"
    )]
    Nowhere,
}

/// Where to search, in this order.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `--envoy PATH`.
    pub flag: Option<PathBuf>,
    /// The value of [`ENVIRONMENT`].
    pub environment: Option<PathBuf>,
    /// The cache folder; see [`cache_dir`].
    pub cache: Option<PathBuf>,
    /// The value of `PATH`.
    pub path: Option<OsString>,
}

impl Places {
    /// This process's environment, and the flag if there is one.
    pub fn from_env(flag: Option<&Path>) -> Self {
        Self {
            flag: flag.map(Path::to_owned),
            environment: non_empty(ENVIRONMENT).map(PathBuf::from),
            cache: cache_dir(),
            path: env::var_os("PATH"),
        }
    }

    /// The Envoy that the user named, if any.
    ///
    /// # Errors
    /// [`NotFound::Given`] if it can't be run.
    pub fn given(&self) -> Result<Option<Binary>, NotFound> {
        let (given_by, path) = match (&self.flag, &self.environment) {
            (Some(path), _) => ("--envoy", path),
            (None, Some(path)) => (ENVIRONMENT, path),
            (None, None) => return Ok(None),
        };
        let fail = |problem| NotFound::Given {
            given_by,
            path: path.clone(),
            problem,
        };
        executable(path).map_err(fail)?;
        let path = std::path::absolute(path).map_err(|_| fail("not a usable path"))?;
        Ok(Some(Binary {
            path,
            origin: Origin::Given,
        }))
    }

    /// The Envoy to run: the named one, else the cached one, else the one on `PATH`.
    ///
    /// # Errors
    /// If there is none, or the named one can't be run.
    pub fn find(&self) -> Result<Binary, NotFound> {
        if let Some(given) = self.given()? {
            return Ok(given);
        }
        let cached = self.cache.iter().map(|dir| (cached(dir), Origin::Cache));
        let on_path = self
            .path
            .iter()
            .flat_map(env::split_paths)
            .filter(|dir| dir.is_absolute())
            .map(|dir| (dir.join("envoy"), Origin::Path));
        cached
            .chain(on_path)
            .find(|(path, _)| executable(path).is_ok())
            .map(|(path, origin)| Binary { path, origin })
            .ok_or(NotFound::Nowhere)
    }
}

/// The Envoy to run, from the flag and this process's environment. Short for [`Places::find`].
///
/// # Errors
/// If there is none, or the named one can't be run.
pub fn find(flag: Option<&Path>) -> Result<Binary, NotFound> {
    Places::from_env(flag).find()
}

/// Sesame's cache folder: `$SESAME_CACHE`, `$XDG_CACHE_HOME/sesame` or `~/.cache/sesame`; `None` without a home.
/// It need not exist.
pub fn cache_dir() -> Option<PathBuf> {
    cache_dir_of(non_empty)
}

/// Where a cache folder keeps the Envoy of [`VERSION`] for this machine. The file is there only when it is whole.
pub fn cached(cache: &Path) -> PathBuf {
    let platform = format!("{VERSION}-{}-{}", env::consts::OS, env::consts::ARCH);
    cache.join("envoy").join(platform).join("envoy")
}

fn cache_dir_of(variable: impl Fn(&'static str) -> Option<OsString>) -> Option<PathBuf> {
    // The XDG specification has relative paths ignored; ours is made absolute, since the user wrote it for us.
    let ours = variable("SESAME_CACHE").and_then(|dir| std::path::absolute(dir).ok());
    let xdg = || {
        let dir = PathBuf::from(variable("XDG_CACHE_HOME")?);
        dir.is_absolute().then(|| dir.join("sesame"))
    };
    let home = || Some(PathBuf::from(variable("HOME")?).join(".cache/sesame"));
    ours.or_else(xdg).or_else(home)
}

fn non_empty(variable: &'static str) -> Option<OsString> {
    env::var_os(variable).filter(|value| !value.is_empty())
}

fn executable(path: &Path) -> Result<(), &'static str> {
    match path.metadata() {
        Err(_) => Err("not there"),
        Ok(meta) if !meta.is_file() => Err("not a file"),
        Ok(meta) if meta.permissions().mode() & 0o111 == 0 => Err("not executable"),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn place(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn flag_then_environment_then_cache_then_path() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        place(&at("flag"), 0o755);
        place(&at("environment"), 0o755);
        place(&cached(&at("cache")), 0o755);
        place(&at("bin/envoy"), 0o755);
        let mut places = Places {
            flag: Some(at("flag")),
            environment: Some(at("environment")),
            cache: Some(at("cache")),
            path: Some(env::join_paths([at("nothing"), at("bin")]).unwrap()),
        };
        let found = |places: &Places| places.find().map(|found| (found.path, found.origin));
        assert_eq!(found(&places), Ok((at("flag"), Origin::Given)));
        places.flag = None;
        assert_eq!(found(&places), Ok((at("environment"), Origin::Given)));
        places.environment = None;
        assert_eq!(found(&places), Ok((cached(&at("cache")), Origin::Cache)));
        places.cache = None;
        assert_eq!(found(&places), Ok((at("bin/envoy"), Origin::Path)));
        places.path = None;
        assert_eq!(found(&places), Err(NotFound::Nowhere));
    }

    #[test]
    fn a_given_envoy_that_cannot_be_run_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        place(&cached(dir.path()), 0o755);
        let plain = dir.path().join("plain");
        place(&plain, 0o644);
        for (path, problem) in [
            (plain, "not executable"),
            (dir.path().to_owned(), "not a file"),
            (dir.path().join("absent"), "not there"),
        ] {
            let places = Places {
                environment: Some(path.clone()),
                cache: Some(dir.path().to_owned()),
                ..Places::default()
            };
            let expected = NotFound::Given {
                given_by: ENVIRONMENT,
                path,
                problem,
            };
            assert_eq!(places.find(), Err(expected));
        }
    }

    #[test]
    fn cache_folder_follows_the_environment() {
        let with = |vars: &'static [(&str, &str)]| {
            cache_dir_of(|name| {
                let (_, value) = vars.iter().find(|(key, _)| *key == name)?;
                Some(OsString::from(value))
            })
        };
        let all = with(&[
            ("SESAME_CACHE", "/s"),
            ("XDG_CACHE_HOME", "/x"),
            ("HOME", "/h"),
        ]);
        assert_eq!(all, Some(PathBuf::from("/s")));
        let xdg = with(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]);
        assert_eq!(xdg, Some(PathBuf::from("/x/sesame")));
        let relative = with(&[("XDG_CACHE_HOME", "x"), ("HOME", "/h")]);
        assert_eq!(relative, Some(PathBuf::from("/h/.cache/sesame")));
        assert_eq!(with(&[]), None);
    }
}
