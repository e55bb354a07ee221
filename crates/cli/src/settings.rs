//! Resolved settings for `sesame local`.
//!
//! In: arguments, the environment, whether standard output is a terminal. Out: settings with all defaults resolved.

use std::env;
use std::io::{self, IsTerminal};

use anyhow::Result;
use sesame_control::files::FilesConfig;
use sesame_control::local::LocalConfig;
use sesame_control::{EnvoyLog, Mode, binary};

use crate::args::{LocalArgs, LocalOutput, LogLevel};
use crate::config;

/// Settings for `sesame local`.
#[derive(Debug)]
pub(crate) struct LocalSettings {
    pub(crate) run: LocalConfig,
    /// How events are shown.
    pub(crate) display: DisplayMode,
    /// Whether standard output is coloured.
    pub(crate) colour: bool,
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
            contour: args.ingress.contour(&settings).reads(),
            watch: args.watch,
            ..FilesConfig::new(paths)
        };
        let terminal = io::stdout().is_terminal();
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
        })
    }
}

/// Whether colours are enabled; see no-color.org. `dumb` terminals don't support them.
pub(crate) fn colours() -> bool {
    let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !no_color && env::var_os("TERM").is_none_or(|term| term != "dumb")
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
