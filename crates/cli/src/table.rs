//! Gateways and routes as tables.
//!
//! In: an overview. Out: text, problems first.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Color, ContentArrangement, Table};
use sesame_control::status_store::{GatewayView, ListenerView, Overview, RouteView, Severity};

/// The maximum number of rows outside a terminal.
pub(crate) const MAX_ROWS: usize = 50;

pub(crate) const RED: &str = "\u{1b}[31m";
pub(crate) const GREEN: &str = "\u{1b}[32m";
pub(crate) const YELLOW: &str = "\u{1b}[33m";
pub(crate) const RESET: &str = "\u{1b}[0m";

/// Draws at most `rows` lines of at most `width` characters. Ends with a newline.
pub(crate) fn draw(overview: &Overview, colour: bool, width: Option<u16>, rows: usize) -> String {
    let mut out = String::new();
    let problems = problems(overview, rows / 3, width, colour);
    let space = rows.saturating_sub(problems.lines().count() + 2);
    let listeners: Vec<(&GatewayView, &ListenerView)> = overview
        .gateways
        .iter()
        .flat_map(|gateway| {
            gateway
                .listeners
                .iter()
                .map(move |listener| (gateway, listener))
        })
        .collect();
    let (upper, lower) = split_rows(space, listeners.len(), overview.routes.len());
    out.push_str(&problems);
    out.push_str(&gateways(&listeners, upper, width, colour));
    let more = overview.more_routes + overview.routes.len().saturating_sub(lower);
    out.push_str(&routes(&overview.routes, lower, more, width, colour));
    first_lines(&out, rows)
}

/// The number of rows of each table: half, plus any rows that the other table doesn't need.
fn split_rows(space: usize, first: usize, second: usize) -> (usize, usize) {
    // Each table has a heading, and a line with the number of omitted rows.
    let space = space.saturating_sub(4);
    let half = space / 2;
    let upper = first.min(half.max(space.saturating_sub(second)));
    (upper, second.min(space.saturating_sub(upper)))
}

/// The first `rows` lines. Wrapped cells may take several lines.
fn first_lines(text: &str, rows: usize) -> String {
    let mut out = String::new();
    for line in text.lines().take(rows) {
        out.push_str(line);
        out.push('\n');
    }
    out
}

fn problems(overview: &Overview, limit: usize, width: Option<u16>, colour: bool) -> String {
    let mut out = String::new();
    let listed = overview.problems.iter().take(limit.max(1));
    for problem in listed {
        let text = truncate(&problem.to_string(), width);
        out.push_str(&match colour {
            true => format!("{RED}{text}{RESET}\n"),
            false => format!("{text}\n"),
        });
    }
    let more = overview.problems.len().saturating_sub(limit.max(1));
    if more > 0 {
        out.push_str(&format!("and {more} more\n"));
    }
    out
}

/// The first line, truncated to `width` characters.
fn truncate(text: &str, width: Option<u16>) -> String {
    let line = text.lines().next().unwrap_or_default();
    match width.map(usize::from) {
        Some(width) if line.chars().count() > width => {
            let start: String = line.chars().take(width.saturating_sub(1)).collect();
            format!("{start}…")
        }
        _ => line.to_owned(),
    }
}

fn gateways(
    listeners: &[(&GatewayView, &ListenerView)],
    rows: usize,
    width: Option<u16>,
    colour: bool,
) -> String {
    let mut table = table(
        [
            "GATEWAY", "LISTENER", "PORT", "HOSTNAME", "ROUTES", "URL", "STATE",
        ],
        width,
        colour,
    );
    for (gateway, listener) in listeners.iter().take(rows) {
        let (severity, message) = match listener.severity.max(gateway.severity) {
            severity if severity == listener.severity => (severity, &listener.message),
            severity => (severity, &gateway.message),
        };
        table.add_row([
            Cell::new(&gateway.name),
            Cell::new(&listener.name),
            Cell::new(format!("{}/{}", listener.port, listener.protocol)),
            Cell::new(listener.hostname.as_deref().unwrap_or("*")),
            Cell::new(listener.attached_routes),
            Cell::new(listener.url.as_deref().unwrap_or("-")),
            state(severity, message.as_deref()),
        ]);
    }
    let more = listeners.len().saturating_sub(rows);
    finish(
        &table,
        more,
        listeners.is_empty(),
        "no Gateways use Sesame's GatewayClasses",
    )
}

fn routes(
    routes: &[RouteView],
    rows: usize,
    more: usize,
    width: Option<u16>,
    colour: bool,
) -> String {
    let mut table = table(["ROUTE", "HOSTNAMES", "PARENTS", "STATE"], width, colour);
    for route in routes.iter().take(rows) {
        let worst = route.parents.iter().max_by_key(|parent| parent.severity);
        let parents: Vec<&str> = route.parents.iter().map(|p| p.name.as_str()).collect();
        let hostnames = match route.hostnames.is_empty() {
            true => "*".to_owned(),
            false => first_names(&route.hostnames),
        };
        table.add_row([
            Cell::new(&route.key),
            Cell::new(hostnames),
            Cell::new(first_names(&parents)),
            state(
                route.severity,
                worst.and_then(|parent| parent.message.as_deref()),
            ),
        ]);
    }
    finish(
        &table,
        more,
        routes.is_empty(),
        "no routes are attached to Sesame's Gateways",
    )
}

/// The first two names, and the number of remaining ones.
fn first_names(names: &[impl AsRef<str>]) -> String {
    let named: Vec<&str> = names.iter().take(2).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(2) {
        0 => named.join(", "),
        more => format!("{} +{more}", named.join(", ")),
    }
}

fn state(severity: Severity, message: Option<&str>) -> Cell {
    let (word, colour) = match severity {
        Severity::Ok => ("ok", Color::Green),
        Severity::Waiting => ("waiting", Color::Yellow),
        Severity::Error => ("error", Color::Red),
    };
    let text = match message {
        Some(message) => format!("{word}: {message}"),
        None => word.to_owned(),
    };
    Cell::new(text).fg(colour)
}

fn table<const N: usize>(heading: [&str; N], width: Option<u16>, colour: bool) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(heading);
    match colour {
        true => table.enforce_styling(),
        false => table.force_no_tty(),
    };
    if let Some(width) = width {
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width);
    }
    table
}

fn finish(table: &Table, more: usize, empty: bool, empty_text: &str) -> String {
    if empty {
        return format!(" {empty_text}\n");
    }
    let mut out = format!("{}\n", table.trim_fmt());
    if more > 0 {
        out.push_str(&format!(" and {more} more\n"));
    }
    out
}

#[cfg(test)]
mod tests;
