//! A terminal with a table at its end and lines above.
//!
//! In: lines, tables. Out: what a terminal shows. The table is taken away before a line is printed and drawn again behind
//! it, so that lines scroll away as usual.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terminal_size::{Height, Width, terminal_size};
use tracing_subscriber::fmt::MakeWriter;

/// The terminal. Handles are shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Screen {
    /// The table at the end; empty: none.
    table: Arc<Mutex<String>>,
}

/// Columns and rows, or what is usual.
pub(crate) fn size() -> (u16, usize) {
    match terminal_size() {
        Some((Width(width), Height(height))) => (width.max(40), height.into()),
        None => (80, 24),
    }
}

impl Screen {
    /// Prints above the table.
    pub(crate) fn above(&self, text: &str) -> io::Result<()> {
        let table = self.lock();
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        show(&format!("{}{text}{newline}{}", erase(&table), *table))
    }

    /// Draws another table.
    pub(crate) fn redraw(&self, table: &str) -> io::Result<()> {
        let mut drawn = self.lock();
        if *drawn == table {
            return Ok(());
        }
        let before = std::mem::replace(&mut *drawn, table.to_owned());
        show(&format!("{}{table}", erase(&before)))
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes away a table that ends with a newline: goes up to its first line and clears all below.
fn erase(table: &str) -> String {
    match table.matches('\n').count() {
        0 => String::new(),
        lines => format!("\u{1b}[{lines}A\r\u{1b}[J"),
    }
}

/// One write, so that no half-drawn table is seen.
fn show(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Logs go above the table. A log entry is one write.
impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Logs that can't be written are lost, and there is nobody to tell.
        let _ = self.above(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Screen {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_erased_as_high_as_it_is() {
        assert_eq!(erase(""), "");
        assert_eq!(erase("a\nb\n"), "\u{1b}[2A\r\u{1b}[J");
    }
}
