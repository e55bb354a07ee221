//! `sesame completion`.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;

use crate::args::{Args, CompletionArgs};
use crate::output;

pub(crate) fn run(args: &CompletionArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "sesame", &mut script);
    output::print_text(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}
