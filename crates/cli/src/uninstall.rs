//! `sesame uninstall`.
//!
//! In: a cluster in which Sesame no longer runs. Out: progress on standard error.

use std::process::ExitCode;

use anyhow::{Context, Result};
use sesame_control::operator;

use crate::args::UninstallArgs;
use crate::output;

pub(crate) fn run(args: &UninstallArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let mut shown = None;
    let remaining = |count| {
        if shown.replace(count) != Some(count) {
            output::warn(format_args!("objects of Envoys that remain: {count}"));
        }
    };
    let kubeconfig = args.kubeconfig.as_deref();
    runtime.block_on(operator::uninstall(kubeconfig, &args.namespace, remaining))?;
    output::print_text(&format!(
        "Removed Sesame's objects in namespace {0}, and its Envoys.",
        args.namespace
    ))?;
    Ok(ExitCode::SUCCESS)
}
