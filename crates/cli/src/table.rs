//! Gateways, routes, Ingresses and HTTPProxies as tables.
//!
//! In: an overview. Out: text, problems first.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Color, ContentArrangement, Table};
use sesame_api::Kind;
use sesame_control::status_store::{
    GatewayView, IngressView, ListenerView, NoticeLevel, Overview, RouteView, Severity,
};

use crate::output::escaped;

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
    let [upper, middle, lower] = split_rows(
        space,
        [
            listeners.len(),
            overview.routes.len(),
            overview.ingresses.len(),
        ],
    );
    out.push_str(&problems);
    // If there are Ingresses but no Gateways, an empty table of Gateways would only waste space.
    let has_ingresses = !overview.ingresses.is_empty();
    if !listeners.is_empty() || !has_ingresses {
        out.push_str(&gateways(&listeners, upper, width, colour));
    }
    if !overview.routes.is_empty() || !has_ingresses {
        let more = overview.more_routes + overview.routes.len().saturating_sub(middle);
        out.push_str(&routes(&overview.routes, middle, more, width, colour));
    }
    if has_ingresses {
        let more = overview.more_ingresses + overview.ingresses.len().saturating_sub(lower);
        out.push_str(&ingresses(&overview.ingresses, lower, more, width, colour));
    }
    first_lines(&out, rows)
}

/// The number of rows of each table: an equal share of the space, plus any rows that other tables don't need.
fn split_rows<const N: usize>(space: usize, needed: [usize; N]) -> [usize; N] {
    // Each table has a heading, and a line with the number of omitted rows.
    let tables = needed.iter().filter(|needed| **needed > 0).count();
    let mut left = space.saturating_sub(2 * tables);
    let mut order: Vec<usize> = (0..N).collect();
    order.sort_by_key(|table| needed[*table]);
    let mut rows = [0; N];
    for (done, table) in order.into_iter().enumerate() {
        rows[table] = needed[table].min(left.div_ceil(N - done));
        left -= rows[table];
    }
    rows
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
    let room = limit.max(1).saturating_sub(overview.problems.len());
    for notice in overview.notices.iter().take(room) {
        let text = truncate(&notice.to_string(), width);
        let code = match notice.level {
            NoticeLevel::Error => RED,
            NoticeLevel::Warning => YELLOW,
        };
        out.push_str(&match colour {
            true => format!("{code}{text}{RESET}\n"),
            false => format!("{text}\n"),
        });
    }
    let all = overview.problems.len() + overview.notices.len();
    let more = all.saturating_sub(limit.max(1));
    if more > 0 {
        out.push_str(&format!("and {more} more\n"));
    }
    out
}

/// The first line, truncated to `width` characters.
fn truncate(text: &str, width: Option<u16>) -> String {
    let line = &*escaped(text.lines().next().unwrap_or_default());
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
            Cell::new(match listener.attached_routes {
                Some(number) => number.to_string(),
                None => "-".to_owned(),
            }),
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
            false => first_names(&route.hostnames, 0),
        };
        table.add_row([
            Cell::new(&route.key),
            Cell::new(hostnames),
            Cell::new(first_names(&parents, 0)),
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

fn ingresses(
    ingresses: &[IngressView],
    rows: usize,
    more: usize,
    width: Option<u16>,
    colour: bool,
) -> String {
    let mut table = table(
        ["INGRESS/HTTPPROXY", "HOSTS", "CLASS", "ADDRESS", "STATE"],
        width,
        colour,
    );
    for ingress in ingresses.iter().take(rows) {
        let hosts = match ingress.hosts.is_empty() {
            true if ingress.key.kind == Kind::Ingress => "*".to_owned(),
            // The HTTPProxies that include it or refer to it have hosts.
            true => "-".to_owned(),
            false => first_names(&ingress.hosts, ingress.more_hosts),
        };
        let addresses = match ingress.addresses.is_empty() {
            true => "-".to_owned(),
            false => first_names(&ingress.addresses, 0),
        };
        table.add_row([
            Cell::new(&ingress.key),
            Cell::new(hosts),
            Cell::new(ingress.class.as_deref().unwrap_or("-")),
            Cell::new(addresses),
            state(ingress.severity, ingress.message.as_deref()),
        ]);
    }
    finish(&table, more, false, "")
}

/// The first two names, and the number of the remaining ones, including `more` unlisted ones.
fn first_names(names: &[impl AsRef<str>], more: usize) -> String {
    let named: Vec<&str> = names.iter().take(2).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(2) + more {
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
        Some(message) => format!("{word}: {}", escaped(message)),
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
