//! `sesame operator`.
//!
//! In: flags, signals. Out: logs.

use std::process::ExitCode;

use anyhow::Result;
use sesame_control::operator::{Operator, OperatorConfig};

use crate::args::OperatorArgs;
use crate::serve;
use crate::signals::Signals;

pub(crate) fn run(args: &OperatorArgs) -> Result<ExitCode> {
    serve::start_logs(&args.replica)?;
    serve::runtime()?.block_on(operator(args))
}

async fn operator(args: &OperatorArgs) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let operator = Operator::start(OperatorConfig {
        kubeconfig: args.replica.kubeconfig.clone(),
        namespace: args.replica.namespace.clone(),
        replica: serve::replica(args.replica.name.as_deref())?,
        image: args.image.clone(),
        envoy_image: args.envoy_image.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        probes: Some(args.probes),
    })
    .await?;
    signals.next().await;
    tracing::info!("shutting down; instances keep running");
    operator.shutdown().await;
    Ok(ExitCode::SUCCESS)
}
