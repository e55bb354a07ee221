//! A terminal with a table below scrolling lines.
//!
//! In: lines, tables. Out: terminal output. To print a line, the table is erased and drawn again below it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terminal_size::{Height, Width, terminal_size};
use tracing_subscriber::fmt::MakeWriter;

/// The terminal. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Screen {
    /// The table on the screen; empty if there is none.
    table: Arc<Mutex<String>>,
}

/// Columns and rows; 80 × 24 if unknown.
pub(crate) fn size() -> (u16, usize) {
    match terminal_size() {
        Some((Width(width), Height(height))) => (width.max(40), height.into()),
        None => (80, 24),
    }
}

impl Screen {
    /// Prints above the table.
    pub(crate) fn print_above(&self, text: &str) -> io::Result<()> {
        let table = self.lock();
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        print(&format!("{}{text}{newline}{}", erase(&table), *table))
    }

    /// Replaces the table.
    pub(crate) fn redraw(&self, table: &str) -> io::Result<()> {
        let mut drawn = self.lock();
        if *drawn == table {
            return Ok(());
        }
        let before = std::mem::replace(&mut *drawn, table.to_owned());
        print(&format!("{}{table}", erase(&before)))
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Control sequences that erase a table: go up to its first line and clear everything below.
fn erase(table: &str) -> String {
    match table.matches('\n').count() {
        0 => String::new(),
        lines => format!("\u{1b}[{lines}A\r\u{1b}[J"),
    }
}

/// Writes everything at once, so that no partial table is visible.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Logs go above the table. Each log entry is one write.
impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A log entry that can't be written is dropped.
        let _ = self.print_above(&String::from_utf8_lossy(bytes));
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
    fn erasing_covers_the_whole_table() {
        assert_eq!(erase(""), "");
        assert_eq!(erase("a\nb\n"), "\u{1b}[2A\r\u{1b}[J");
    }
}
