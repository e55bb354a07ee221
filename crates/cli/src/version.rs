//! `sesame version`.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use sesame_control::ENVOY_VERSION;

use crate::args::{VersionArgs, VersionFormat};
use crate::output;

/// The Gateway API release that Sesame implements.
const GATEWAY_API: &str = "v1.7";

pub(crate) fn run(args: &VersionArgs) -> Result<ExitCode> {
    let sesame = env!("CARGO_PKG_VERSION");
    match args.output {
        VersionFormat::Text => output::print_text(&format!(
            "sesame {sesame}\nEnvoy {ENVOY_VERSION} (tested version)\nGateway API {GATEWAY_API}\n"
        ))?,
        VersionFormat::Json => output::print(
            &json!({ "sesame": sesame, "envoy": ENVOY_VERSION, "gatewayAPI": GATEWAY_API }),
            output::Format::Json,
        )?,
    }
    Ok(ExitCode::SUCCESS)
}
