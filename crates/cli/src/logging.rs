//! Logs.
//!
//! Out: lines on standard error, or above the live table.

use std::io::{self, Write};

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::args::LogFormat;

/// Starts logging.
///
/// # Errors
/// If the filter is invalid.
pub(crate) fn start<W>(filter: &str, format: LogFormat, colour: bool, writer: W) -> Result<()>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let env_filter = EnvFilter::try_new(filter)
        .with_context(|| format!("RUST_LOG: invalid filter {filter:?}; try RUST_LOG=info"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(env_filter)
        .with_writer(writer);
    let result = match format {
        LogFormat::Text => builder.with_ansi(colour).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    result.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
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
