//! Resolved settings for `sesame local`.
//!
//! In: arguments, the environment, whether standard output is a terminal. Out: settings with all defaults resolved.

use std::env;
use std::io::{self, IsTerminal};

use anyhow::Result;
use sesame_control::files::FilesConfig;
use sesame_control::local::LocalConfig;
use sesame_control::{EnvoyLog, Mode, binary};

use crate::args::{LocalArgs, LocalOutput, LogFormat, LogLevel};
use crate::config;

/// Settings for `sesame local`.
#[derive(Debug)]
pub(crate) struct LocalSettings {
    pub(crate) run: LocalConfig,
    /// How events are shown.
    pub(crate) display: DisplayMode,
    /// Whether standard output is coloured.
    pub(crate) colour: bool,
    /// A filter for tracing-subscriber.
    pub(crate) log_filter: String,
    pub(crate) log_format: LogFormat,
}

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisplayMode {
    /// A live table below lines.
    Screen,
    /// Lines of text.
    Lines,
    /// Lines of JSON.
    Json,
}

impl LocalSettings {
    /// # Errors
    /// If no Envoy is found.
    pub(crate) fn resolve(args: &LocalArgs) -> Result<Self> {
        let envoy = binary::find(args.envoy.as_deref())?;
        let settings = args.ingress.settings(Mode::Local);
        let (settings, paths) = config::of_local(settings, args.config.as_deref(), &args.paths)?;
        let files = FilesConfig {
            contour: args.ingress.contour().reads(),
            watch: args.watch,
            ..FilesConfig::new(paths)
        };
        let terminal = io::stdout().is_terminal();
        let rust_log = env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
        Ok(Self {
            run: LocalConfig {
                port_offset: args.port_offset,
                settings,
                sharding: args.route_shards.into(),
                module: args.envoy_module,
                concurrency: Some(args.concurrency),
                envoy_log: envoy_log(args.log_level),
                admin: args.admin,
                ..LocalConfig::new(files, envoy.path)
            },
            display: match args.output {
                LocalOutput::Json => DisplayMode::Json,
                LocalOutput::Table if terminal => DisplayMode::Screen,
                LocalOutput::Table => DisplayMode::Lines,
            },
            colour: terminal && colours(),
            log_filter: log_filter(args.log_level, rust_log),
            log_format: args.log_format,
        })
    }
}

/// Whether colours are enabled; see no-color.org. `dumb` terminals don't support them.
pub(crate) fn colours() -> bool {
    let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !no_color && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The log filter, from the flag, else the environment, else `warn`.
pub(crate) fn log_filter(flag: Option<LogLevel>, rust_log: Option<String>) -> String {
    let level = match flag {
        Some(LogLevel::Error) => "error",
        Some(LogLevel::Warn) => "warn",
        Some(LogLevel::Info) => "info",
        // Excludes debug logs of libraries, which would drown out Sesame's.
        Some(LogLevel::Debug) => "info,envoy=debug,sesame_control=debug,sesame_xds=debug",
        Some(LogLevel::Trace) => "trace",
        None => return rust_log.unwrap_or_else(|| "warn".to_owned()),
    };
    level.to_owned()
}

/// Envoy's log level. Sesame's log filter also applies to Envoy's logs.
fn envoy_log(flag: Option<LogLevel>) -> EnvoyLog {
    match flag {
        Some(LogLevel::Error) => EnvoyLog::Error,
        Some(LogLevel::Warn) | None => EnvoyLog::Warning,
        Some(LogLevel::Info) => EnvoyLog::Info,
        Some(LogLevel::Debug) => EnvoyLog::Debug,
        Some(LogLevel::Trace) => EnvoyLog::Trace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_overrides_the_environment() {
        let rust_log = || Some("sesame_xds=trace".to_owned());
        assert_eq!(log_filter(None, None), "warn");
        assert_eq!(log_filter(None, rust_log()), "sesame_xds=trace");
        assert_eq!(log_filter(Some(LogLevel::Error), rust_log()), "error");
    }
}
