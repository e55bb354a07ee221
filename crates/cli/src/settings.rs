//! What was typed, as it is meant on this machine.
//!
//! In: arguments, the environment, what standard output is. Out: settings in which nothing is left open.

use std::env;
use std::io::{self, IsTerminal};

use anyhow::Result;
use sesame_control::files::FilesConfig;
use sesame_control::local::Config;
use sesame_control::{EnvoyLog, binary};

use crate::args::{LocalArgs, LocalOutput, LogFormat, LogLevel};

/// How `sesame local` runs and what it shows.
#[derive(Debug)]
pub(crate) struct LocalSettings {
    /// What is run.
    pub(crate) run: Config,
    /// How it is shown.
    pub(crate) show: Show,
    /// Colours on standard output.
    pub(crate) colour: bool,
    /// What is logged, in tracing-subscriber's words.
    pub(crate) log_filter: String,
    /// How it is logged.
    pub(crate) log_format: LogFormat,
}

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// A table that is drawn again, with lines above.
    Screen,
    /// Lines.
    Lines,
    /// JSON.
    Json,
}

impl LocalSettings {
    /// # Errors
    /// If there is no Envoy to run.
    pub(crate) fn resolve(args: &LocalArgs) -> Result<Self> {
        let envoy = binary::find(args.envoy.as_deref())?;
        let files = FilesConfig {
            watch: args.watch,
            ..FilesConfig::new(&args.paths)
        };
        let terminal = io::stdout().is_terminal();
        let rust_log = env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
        Ok(Self {
            run: Config {
                port_offset: args.port_offset,
                sharding: args.route_shards.into(),
                module: args.envoy_module,
                concurrency: Some(args.concurrency),
                envoy_log: envoy_log(args.log_level),
                admin: args.admin,
                ..Config::new(files, envoy.path)
            },
            show: match args.output {
                LocalOutput::Json => Show::Json,
                LocalOutput::Table if terminal => Show::Screen,
                LocalOutput::Table => Show::Lines,
            },
            colour: terminal && colours(),
            log_filter: log_filter(args.log_level, rust_log),
            log_format: args.log_format,
        })
    }
}

/// See no-color.org; a terminal that calls itself dumb can't do it either.
pub(crate) fn colours() -> bool {
    let forbidden = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !forbidden && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// What is logged: the flag, else the environment, else warnings.
pub(crate) fn log_filter(flag: Option<LogLevel>, rust_log: Option<String>) -> String {
    let level = match flag {
        Some(LogLevel::Error) => "error",
        Some(LogLevel::Warn) => "warn",
        Some(LogLevel::Info) => "info",
        // What libraries say at these levels hides what we say.
        Some(LogLevel::Debug) => "info,envoy=debug,sesame_control=debug,sesame_xds=debug",
        Some(LogLevel::Trace) => "trace",
        None => return rust_log.unwrap_or_else(|| "warn".to_owned()),
    };
    level.to_owned()
}

/// What Envoys print; ours is filtered once more.
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
    fn the_flag_is_stronger_than_the_environment() {
        let variable = || Some("sesame_xds=trace".to_owned());
        assert_eq!(log_filter(None, None), "warn");
        assert_eq!(log_filter(None, variable()), "sesame_xds=trace");
        assert_eq!(log_filter(Some(LogLevel::Error), variable()), "error");
    }
}
