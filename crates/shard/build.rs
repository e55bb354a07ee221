//! Compiles `src/module.rs` into a shared library for Envoy: [`MODULE`](../sesame_shard/constant.MODULE.html).
//!
//! Requires only rustc. The module exists only for Linux.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/module.rs");
    println!("cargo::rerun-if-changed=src/number.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let module = if env::var("CARGO_CFG_TARGET_OS")? == "linux" {
        let library = out.join("module.so");
        compile(&library)?;
        "Some(include_bytes!(concat!(env!(\"OUT_DIR\"), \"/module.so\")))"
    } else {
        "None"
    };
    fs::write(out.join("module.in"), module)?;
    Ok(())
}

fn compile(library: &Path) -> Result<(), Box<dyn Error>> {
    let mut rustc = Command::new(env::var_os("RUSTC").ok_or("RUSTC is not set")?);
    rustc
        .args(["--edition", "2024", "--crate-type", "cdylib"])
        .args(["--crate-name", "sesame_shard_module"])
        .args(["--target", &env::var("TARGET")?])
        .args(["-O", "-C", "panic=abort", "-C", "strip=symbols"])
        // Envoy and its C library provide the symbols.
        .args(["-C", "link-arg=-nostdlib"])
        // Required to build a shared library on targets that link statically.
        .args(["-C", "target-feature=-crt-static"])
        .arg("-o")
        .arg(library)
        .arg("src/module.rs");
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = std::ffi::OsString::from("linker=");
        option.push(linker);
        rustc.arg("-C").arg(option);
    }
    let output = rustc.output()?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the module for Envoy doesn't compile:\n{errors}").into());
    }
    Ok(())
}
