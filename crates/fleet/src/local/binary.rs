//! Finds the Envoy executable.
//!
//! In: the flag, the environment, the cache folder. Out: the path of an executable, or an error that says how to fix
//! it. Doesn't download Envoy: `cargo xtask envoy` fills the cache.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The version of Envoy that Sesame is built and tested with.
pub const VERSION: &str = "1.40.0";

/// The environment variable with the path of an Envoy to use instead of the cached one.
pub const ENVIRONMENT: &str = "SESAME_ENVOY";

/// Where an Envoy was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Set by `--envoy` or [`ENVIRONMENT`].
    Explicit,
    /// The cache folder, in version [`VERSION`].
    Cache,
    /// `PATH`, in any version.
    Path,
}

/// An Envoy executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Its absolute path.
    pub path: PathBuf,
    /// Where it was found.
    pub origin: Origin,
}

/// Why there is no Envoy to run. The message says how to fix it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BinaryError {
    /// The explicitly set file can't be run. Other locations aren't tried.
    #[error(
        "{source_name} is {path:?}, which {problem}; set it to an Envoy executable, or unset it"
    )]
    Unusable {
        /// `--envoy` or [`ENVIRONMENT`].
        source_name: &'static str,
        /// The path as set.
        path: PathBuf,
        /// Such as `is not a file` or `is not executable`.
        problem: &'static str,
    },
    /// Envoy isn't set explicitly, and isn't in the cache or on `PATH`.
    #[error(
        "no Envoy found: run `cargo xtask envoy` to download Envoy {VERSION}, or set --envoy PATH or {ENVIRONMENT}"
    )]
    NotFound,
}

/// Where to search for Envoy, in this order.
#[derive(Clone, Debug, Default)]
pub struct SearchPaths {
    /// `--envoy PATH`.
    pub flag: Option<PathBuf>,
    /// The value of [`ENVIRONMENT`].
    pub environment: Option<PathBuf>,
    /// The cache folder; see [`cache_dir`].
    pub cache: Option<PathBuf>,
    /// The value of `PATH`.
    pub path: Option<OsString>,
}

impl SearchPaths {
    /// This process's environment, and the flag, if given.
    pub fn from_env(flag: Option<&Path>) -> Self {
        Self {
            flag: flag.map(Path::to_owned),
            environment: non_empty(ENVIRONMENT).map(PathBuf::from),
            cache: cache_dir(),
            path: env::var_os("PATH"),
        }
    }

    /// The explicitly set Envoy, if any.
    ///
    /// # Errors
    /// [`BinaryError::Unusable`].
    pub fn explicit(&self) -> Result<Option<Binary>, BinaryError> {
        let (source_name, path) = match (&self.flag, &self.environment) {
            (Some(path), _) => ("--envoy", path),
            (None, Some(path)) => (ENVIRONMENT, path),
            (None, None) => return Ok(None),
        };
        let fail = |problem| BinaryError::Unusable {
            source_name,
            path: path.clone(),
            problem,
        };
        executable(path).map_err(fail)?;
        let path = std::path::absolute(path).map_err(|_| fail("is not a valid path"))?;
        Ok(Some(Binary {
            path,
            origin: Origin::Explicit,
        }))
    }

    /// The Envoy to run: the explicitly set one, otherwise the cached one, otherwise the one on `PATH`.
    ///
    /// # Errors
    /// There is none, or the explicitly set one can't be run.
    pub fn find(&self) -> Result<Binary, BinaryError> {
        if let Some(binary) = self.explicit()? {
            return Ok(binary);
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
            .ok_or(BinaryError::NotFound)
    }
}

/// The Envoy to run, from the flag and this process's environment. Shorthand for [`SearchPaths::find`].
///
/// # Errors
/// See [`SearchPaths::find`].
pub fn find(flag: Option<&Path>) -> Result<Binary, BinaryError> {
    SearchPaths::from_env(flag).find()
}

/// Sesame's cache folder: `$SESAME_CACHE`, `$XDG_CACHE_HOME/sesame` or `~/.cache/sesame`; `None` without a home folder.
/// The folder need not exist.
pub fn cache_dir() -> Option<PathBuf> {
    cache_dir_of(non_empty)
}

/// The path of this machine's Envoy [`VERSION`] in a cache folder. The file exists only once it is complete.
pub fn cached(cache: &Path) -> PathBuf {
    cached_version(cache, VERSION)
}

/// The path of another version.
pub fn cached_version(cache: &Path, version: &str) -> PathBuf {
    let platform = format!("{version}-{}-{}", env::consts::OS, env::consts::ARCH);
    cache.join("envoy").join(platform).join("envoy")
}

fn cache_dir_of(variable: impl Fn(&'static str) -> Option<OsString>) -> Option<PathBuf> {
    // The XDG specification says to ignore relative paths. Our own variable may be relative.
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
        Err(_) => Err("does not exist or is not accessible"),
        Ok(meta) if !meta.is_file() => Err("is not a file"),
        Ok(meta) if meta.permissions().mode() & 0o111 == 0 => Err("is not executable"),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write_file(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn search_order_is_flag_environment_cache_path() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        write_file(&at("flag"), 0o755);
        write_file(&at("environment"), 0o755);
        write_file(&cached(&at("cache")), 0o755);
        write_file(&at("bin/envoy"), 0o755);
        let mut paths = SearchPaths {
            flag: Some(at("flag")),
            environment: Some(at("environment")),
            cache: Some(at("cache")),
            path: Some(env::join_paths([at("nothing"), at("bin")]).unwrap()),
        };
        let found = |paths: &SearchPaths| paths.find().map(|found| (found.path, found.origin));
        assert_eq!(found(&paths), Ok((at("flag"), Origin::Explicit)));
        paths.flag = None;
        assert_eq!(found(&paths), Ok((at("environment"), Origin::Explicit)));
        paths.environment = None;
        assert_eq!(found(&paths), Ok((cached(&at("cache")), Origin::Cache)));
        paths.cache = None;
        assert_eq!(found(&paths), Ok((at("bin/envoy"), Origin::Path)));
        paths.path = None;
        assert_eq!(found(&paths), Err(BinaryError::NotFound));
    }

    #[test]
    fn an_unusable_explicit_envoy_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        write_file(&cached(dir.path()), 0o755);
        let plain = dir.path().join("plain");
        write_file(&plain, 0o644);
        for (path, problem) in [
            (plain, "is not executable"),
            (dir.path().to_owned(), "is not a file"),
            (
                dir.path().join("absent"),
                "does not exist or is not accessible",
            ),
        ] {
            let paths = SearchPaths {
                environment: Some(path.clone()),
                cache: Some(dir.path().to_owned()),
                ..SearchPaths::default()
            };
            let expected = BinaryError::Unusable {
                source_name: ENVIRONMENT,
                path,
                problem,
            };
            assert_eq!(paths.find(), Err(expected));
        }
    }

    #[test]
    fn the_cache_folder_comes_from_the_environment() {
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
