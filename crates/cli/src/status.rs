//! `sesame status`.
//!
//! In: a cluster's objects. Out: the statuses of Gateways, routes, Ingresses and HTTPProxies, problems first.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::{Context, Result};
use sesame_control::cluster;

use crate::args::{StatusArgs, StatusOutput};
use crate::output::{self, Format};
use crate::settings::colours;
use crate::table;

pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let scope = match (&args.namespace, args.all_namespaces) {
        (_, true) => cluster::Scope::All,
        (Some(namespace), false) => cluster::Scope::Namespace(namespace.clone()),
        (None, false) => cluster::Scope::Current,
    };
    let statuses = cluster::status_store(
        args.kubeconfig.as_deref(),
        &scope,
        &args.ingress_class,
        args.contour_compat,
    );
    let status_store = runtime.block_on(statuses)?;
    match args.output {
        StatusOutput::Json => output::print(&status_store.statuses(), Format::Json)?,
        StatusOutput::Yaml => output::print(&status_store.statuses(), Format::Yaml)?,
        StatusOutput::Table => {
            let overview = status_store.overview(usize::MAX, 0);
            let terminal = io::stdout().is_terminal();
            let text = table::draw(&overview, terminal && colours(), None, usize::MAX);
            output::print_text(text.trim_end())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
