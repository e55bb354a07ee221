//! `sesame local`.
//!
//! In: settings, events, signals. Out: events and state on standard output.

mod lines;
mod screen;

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use sesame_control::event::RunEvent;
use sesame_control::local::{Events, Local};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use self::screen::Screen;
use crate::args::LocalArgs;
use crate::logging::{LogSettings, Logs};
use crate::settings::{DisplayMode, LocalSettings};
use crate::signals::Signals;
use crate::{logging, output, table};

/// Minimum time between redraws of the table.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &LocalArgs) -> Result<ExitCode> {
    let settings = LocalSettings::resolve(args)?;
    let screen = Screen::default();
    let terminal = io::stderr().is_terminal();
    let log_settings = LogSettings {
        level: args.log_level,
        format: args.log_format,
        colour: settings.colour && terminal,
        in_cluster: false,
    };
    let logs = match settings.display == DisplayMode::Screen && terminal {
        true => logging::start(log_settings, screen.clone())?,
        false => logging::start(log_settings, logging::Stderr)?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(serve(settings, screen, &logs))
}

async fn serve(settings: LocalSettings, screen: Screen, logs: &Logs) -> Result<ExitCode> {
    // Registered before Envoys start, so that signals always stop them gracefully.
    let mut signals = Signals::new()?;
    let port_offset = settings.run.port_offset;
    let (mut local, mut events) = Local::start(settings.run).await?;
    let mut followed = pin!(logs.follow(local.logging()));
    let mut viewer = Viewer {
        display: settings.display,
        colour: settings.colour,
        port_offset,
        screen,
        ready: false,
        redraw: None,
    };
    viewer.print_admin_address(&local)?;
    let failure = loop {
        let redraw = viewer.redraw;
        let timer = async {
            match redraw {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = signals.next() => break None,
            event = next(&mut events) => if let Err(error) = viewer.show(&event, &local) {
                break Some(error);
            },
            error = local.failed() => break Some(error.into()),
            () = timer => viewer.draw(&local)?,
            () = &mut followed => {}
        }
    };
    viewer.end(failure.is_none());
    shut_down(local, events, &mut viewer, &mut signals).await;
    match failure {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(error),
    }
}

/// Drains all Envoys while showing events; a second signal kills them.
async fn shut_down(local: Local, mut events: Events, viewer: &mut Viewer, signals: &mut Signals) {
    let shutdown = local.shutdown();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            // Dropping `shutdown` kills the Envoys.
            () = signals.next() => break,
            // Before `shutdown`, which completes after the last event.
            event = next(&mut events) => {
                // Standard output may be closed.
                let _ = viewer.print(&event);
            }
            () = &mut shutdown => break,
        }
    }
}

/// The next event, or a note that events were dropped.
async fn next(events: &mut Events) -> RunEvent {
    match events.recv().await {
        Ok(event) => event,
        Err(RecvError::Lagged(number)) => RunEvent::Note {
            message: format!("{number} events were dropped because the output is too slow"),
        },
        // `local.failed()` returns the reason.
        Err(RecvError::Closed) => std::future::pending().await,
    }
}

/// Shows events.
struct Viewer {
    display: DisplayMode,
    colour: bool,
    port_offset: u16,
    screen: Screen,
    ready: bool,
    redraw: Option<Instant>,
}

impl Viewer {
    fn print_admin_address(&self, local: &Local) -> Result<()> {
        match (self.display, local.admin()) {
            (DisplayMode::Json, _) | (_, None) => Ok(()),
            (_, Some(address)) => self.line(&format!("Admin pages: http://{address}/")),
        }
    }

    /// Shows an event and draws the table, at once or shortly after.
    fn show(&mut self, event: &RunEvent, local: &Local) -> Result<()> {
        self.print(event)?;
        if let RunEvent::Ready { .. } = event {
            self.ready = true;
            if self.display != DisplayMode::Json {
                return self.draw(local);
            }
        }
        if self.display == DisplayMode::Screen && self.ready && self.redraw.is_none() {
            self.redraw = Some(Instant::now() + REDRAW_INTERVAL);
        }
        Ok(())
    }

    /// Prints an event.
    fn print(&self, event: &RunEvent) -> Result<()> {
        if self.display == DisplayMode::Json {
            return output::print_text(&serde_json::to_string(event)?);
        }
        match lines::describe(event, self.ready, self.colour) {
            Some(text) => self.line(&text),
            None => Ok(()),
        }
    }

    fn line(&self, text: &str) -> Result<()> {
        match self.display {
            DisplayMode::Screen => Ok(self.screen.print_above(text)?),
            DisplayMode::Lines | DisplayMode::Json => output::print_text(text),
        }
    }

    fn draw(&mut self, local: &Local) -> Result<()> {
        self.redraw = None;
        if self.display == DisplayMode::Screen {
            let (width, height) = screen::size();
            let rows = height.saturating_sub(2).max(8);
            let overview = local.status_store().overview(rows, self.port_offset);
            let text = table::draw(&overview, self.colour, Some(width), rows);
            return Ok(self.screen.redraw(&text)?);
        }
        let overview = local
            .status_store()
            .overview(table::MAX_ROWS, self.port_offset);
        output::print_text(&table::draw(&overview, false, None, table::MAX_ROWS))
    }

    fn end(&self, graceful: bool) {
        if self.display == DisplayMode::Screen {
            // The table is no longer updated. Standard output may be closed.
            let _ = self.screen.redraw("");
        }
        if self.display != DisplayMode::Json && graceful {
            let _ =
                self.line("Shutting down: Envoys are draining. Press Ctrl-C again to kill them.");
        }
    }
}
