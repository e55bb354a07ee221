//! Prints the CRDs of Sesame's own kinds, as a JSON list. `cargo xtask deploy` writes them to `deploy/crds`.

#[allow(clippy::print_stdout, reason = "the output")]
fn main() {
    println!(
        "{}",
        serde_json::Value::Array(sesame_api::crd::definitions())
    );
}
