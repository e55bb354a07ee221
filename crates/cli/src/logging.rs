//! Logs.
//!
//! In: flags, the environment, the `logging` section of the configuration. Out: lines on standard error, or above the live
//! table.

use std::env;
use std::io::{self, Write};

use anyhow::{Context, Result};
use sesame_api::{LoggingConfiguration, LoggingFormat, LoggingLevel};
use tokio::sync::watch;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, Layered, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::args::{LogFormat, LogLevel};

/// Turns off the client library's logs: it logs failed requests without context, and callers log them with context.
const NO_CLIENT_LOGS: &str = "kube_client::client=off";

/// The filter comes first, so that it applies to the format.
type Filtered = Layered<reload::Layer<EnvFilter, Registry>, Registry>;
type Format = Box<dyn Layer<Filtered> + Send + Sync>;

/// How to log, unless the configuration says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSettings {
    /// The level; `None` means `RUST_LOG`, or a default.
    pub(crate) level: Option<LogLevel>,
    pub(crate) format: LogFormat,
    /// Whether text is coloured.
    pub(crate) colour: bool,
    /// In a cluster, logs are read after the fact, so the default level is more verbose.
    pub(crate) in_cluster: bool,
}

/// The logs of this process.
pub(crate) struct Logs {
    settings: LogSettings,
    formatter: Box<dyn Fn(LogSettings) -> Format>,
    filter: reload::Handle<EnvFilter, Registry>,
    format: reload::Handle<Format, Filtered>,
}

/// Starts logging.
///
/// # Errors
/// If the filter in `RUST_LOG` is invalid.
pub(crate) fn start<W>(settings: LogSettings, writer: W) -> Result<Logs>
where
    W: for<'a> MakeWriter<'a> + Clone + Send + Sync + 'static,
{
    let (filter, filter_handle) = reload::Layer::new(env_filter(settings)?);
    let formatter = move |settings| format(settings, writer.clone());
    let (format, format_handle) = reload::Layer::new(formatter(settings));
    let subscriber = tracing_subscriber::registry().with(filter).with(format);
    subscriber.try_init().context("cannot start logging")?;
    Ok(Logs {
        settings,
        formatter: Box::new(formatter),
        filter: filter_handle,
        format: format_handle,
    })
}

impl Logs {
    /// Follows the configuration. Never returns.
    pub(crate) async fn follow(&self, mut configured: watch::Receiver<LoggingConfiguration>) {
        loop {
            let configuration = configured.borrow_and_update().clone();
            if let Err(error) = self.apply(&configuration) {
                tracing::warn!("cannot change the log settings: {error:#}");
            }
            if configured.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn apply(&self, configuration: &LoggingConfiguration) -> Result<()> {
        let settings = self.settings.with(configuration);
        self.filter.reload(env_filter(settings)?)?;
        self.format.reload((self.formatter)(settings))?;
        Ok(())
    }
}

impl LogSettings {
    fn with(self, configuration: &LoggingConfiguration) -> Self {
        let level = configuration.level.as_ref().and_then(|level| match level {
            LoggingLevel::Error => Some(LogLevel::Error),
            LoggingLevel::Warn => Some(LogLevel::Warn),
            LoggingLevel::Info => Some(LogLevel::Info),
            LoggingLevel::Debug => Some(LogLevel::Debug),
            LoggingLevel::Trace => Some(LogLevel::Trace),
            LoggingLevel::Other(_) => None,
        });
        let format = configuration
            .format
            .as_ref()
            .and_then(|format| match format {
                LoggingFormat::Json => Some(LogFormat::Json),
                LoggingFormat::Text => Some(LogFormat::Text),
                LoggingFormat::Other(_) => None,
            });
        Self {
            level: level.or(self.level),
            format: format.unwrap_or(self.format),
            ..self
        }
    }

    /// A filter for tracing-subscriber.
    fn filter(self, rust_log: Option<String>) -> String {
        let level = match self.level {
            Some(LogLevel::Error) => "error",
            Some(LogLevel::Warn) => "warn",
            Some(LogLevel::Info) => "info",
            // Excludes debug logs of libraries, which would drown out Sesame's.
            Some(LogLevel::Debug) => {
                return "info,envoy=debug,sesame_control=debug,sesame_xds=debug".to_owned();
            }
            Some(LogLevel::Trace) => return "trace".to_owned(),
            None => match (rust_log, self.in_cluster) {
                (Some(filter), _) => return filter,
                (None, true) => "info",
                (None, false) => "warn",
            },
        };
        match self.in_cluster {
            true => format!("{level},{NO_CLIENT_LOGS}"),
            false => level.to_owned(),
        }
    }
}

fn env_filter(settings: LogSettings) -> Result<EnvFilter> {
    let rust_log = env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = settings.filter(rust_log);
    EnvFilter::try_new(&filter)
        .with_context(|| format!("RUST_LOG: invalid filter {filter:?}; try RUST_LOG=info"))
}

fn format<W>(settings: LogSettings, writer: W) -> Format
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match settings.format {
        LogFormat::Text => layer.with_ansi(settings.colour).boxed(),
        // A span that began before a change of the format has no JSON.
        LogFormat::Json => layer
            .json()
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
    }
}

/// Standard error; write errors are ignored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A log entry that can't be written is dropped.
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Stderr {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: LogSettings = LogSettings {
        level: None,
        format: LogFormat::Text,
        colour: false,
        in_cluster: false,
    };

    #[test]
    fn a_flag_overrides_the_environment() {
        let rust_log = || Some("sesame_xds=trace".to_owned());
        assert_eq!(SETTINGS.filter(None), "warn");
        assert_eq!(SETTINGS.filter(rust_log()), "sesame_xds=trace");
        let error = LogSettings {
            level: Some(LogLevel::Error),
            ..SETTINGS
        };
        assert_eq!(error.filter(rust_log()), "error");
    }

    #[test]
    fn the_configuration_overrides_the_flags() {
        let configured = SETTINGS.with(&LoggingConfiguration {
            format: Some(LoggingFormat::Json),
            level: Some(LoggingLevel::Info),
        });
        assert_eq!(configured.format, LogFormat::Json);
        assert_eq!(configured.filter(Some("trace".to_owned())), "info");
        assert_eq!(
            SETTINGS.with(&LoggingConfiguration::default()).filter(None),
            "warn"
        );
    }
}
