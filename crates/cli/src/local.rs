//! `sesame local`.
//!
//! In: settings, events, signals. Out: what happens, on standard output. What is run is `sesame-control`'s business.

mod lines;
mod screen;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use sesame_control::event::Event;
use sesame_control::local::{Events, Local};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use self::screen::Screen;
use crate::args::LocalArgs;
use crate::settings::{LocalSettings, Show};
use crate::signals::Signals;
use crate::{logging, output, table};

/// The table is drawn at most this often.
const REDRAW: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &LocalArgs) -> Result<ExitCode> {
    let settings = LocalSettings::resolve(args)?;
    let screen = Screen::default();
    let (filter, format) = (&settings.log_filter, settings.log_format);
    if settings.show == Show::Screen && io::stderr().is_terminal() {
        logging::start(filter, format, settings.colour, screen.clone())?;
    } else {
        let colour = settings.colour && io::stderr().is_terminal();
        logging::start(filter, format, colour, logging::Stderr)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime can't be started")?;
    runtime.block_on(serve(settings, screen))
}

async fn serve(settings: LocalSettings, screen: Screen) -> Result<ExitCode> {
    // Before anything is started that a signal would have to end.
    let mut signals = Signals::new()?;
    let port_offset = settings.run.port_offset;
    let (mut local, mut events) = Local::start(settings.run).await?;
    let mut viewer = Viewer {
        show: settings.show,
        colour: settings.colour,
        port_offset,
        screen,
        ready: false,
        redraw: None,
    };
    viewer.greet(&local)?;
    let failure = loop {
        let redraw = viewer.redraw;
        let pause = async {
            match redraw {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = signals.next() => break None,
            event = next(&mut events) => if let Err(error) = viewer.tell(&event, &local) {
                break Some(error);
            },
            error = local.failed() => break Some(error.into()),
            () = pause => viewer.draw(&local)?,
        }
    };
    viewer.end(failure.is_none());
    end(local, events, &mut viewer, &mut signals).await;
    match failure {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(error),
    }
}

/// Ends all Envoys and tells of it; at once if a second signal comes.
async fn end(local: Local, mut events: Events, viewer: &mut Viewer, signals: &mut Signals) {
    let shutdown = local.shutdown();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            // Dropping what runs kills it.
            () = signals.next() => break,
            event = next(&mut events) => {
                // Who doesn't read any more needn't hear of the end.
                let _ = viewer.print(&event);
            }
        }
    }
}

/// The next event, or that some were lost.
async fn next(events: &mut Events) -> Event {
    match events.recv().await {
        Ok(event) => event,
        Err(RecvError::Lagged(number)) => Event::Note {
            message: format!("{number} events came too fast to be shown"),
        },
        // The run ends, which is noticed elsewhere.
        Err(RecvError::Closed) => std::future::pending().await,
    }
}

/// Shows events.
struct Viewer {
    show: Show,
    colour: bool,
    port_offset: u16,
    screen: Screen,
    ready: bool,
    redraw: Option<Instant>,
}

impl Viewer {
    fn greet(&self, local: &Local) -> Result<()> {
        match (self.show, local.admin()) {
            (Show::Json, _) | (_, None) => Ok(()),
            (_, Some(address)) => {
                self.line(&format!("Sesame's own pages are on http://{address}/"))
            }
        }
    }

    /// Shows an event, and what follows from it.
    fn tell(&mut self, event: &Event, local: &Local) -> Result<()> {
        self.print(event)?;
        if let Event::Ready { .. } = event {
            self.ready = true;
            if self.show != Show::Json {
                return self.draw(local);
            }
        }
        if self.show == Show::Screen && self.ready && self.redraw.is_none() {
            self.redraw = Some(Instant::now() + REDRAW);
        }
        Ok(())
    }

    /// Shows an event alone.
    fn print(&self, event: &Event) -> Result<()> {
        if self.show == Show::Json {
            return output::print_text(&serde_json::to_string(event)?);
        }
        match lines::describe(event, self.ready, self.colour) {
            Some(text) => self.line(&text),
            None => Ok(()),
        }
    }

    fn line(&self, text: &str) -> Result<()> {
        match self.show {
            Show::Screen => Ok(self.screen.above(text)?),
            Show::Lines | Show::Json => output::print_text(text),
        }
    }

    fn draw(&mut self, local: &Local) -> Result<()> {
        self.redraw = None;
        if self.show == Show::Screen {
            let (width, height) = screen::size();
            let rows = height.saturating_sub(2).max(8);
            let overview = local.board().overview(rows, self.port_offset);
            let text = table::draw(&overview, self.colour, Some(width), rows);
            return Ok(self.screen.redraw(&text)?);
        }
        let overview = local.board().overview(table::MOST_ROWS, self.port_offset);
        output::print_text(&table::draw(&overview, false, None, table::MOST_ROWS))
    }

    fn end(&self, gently: bool) {
        if self.show == Show::Screen {
            // A table that nobody keeps up to date misleads. Who doesn't read any more doesn't mind.
            let _ = self.screen.redraw("");
        }
        if self.show != Show::Json && gently {
            // As above.
            let _ = self.line("Ending: Envoys finish their requests. Ctrl-C ends them at once.");
        }
    }
}
