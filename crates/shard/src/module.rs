//! The dynamic module for Envoy (`abi.h`, early header mutation): sets a header on each request to the request's shard
//! number.
//!
//! Never panics or fails; its only state is its configuration. A separate `no_std` crate, compiled by `build.rs`.

#![no_std]

#[path = "number.rs"]
mod number;

use core::ffi::c_void;
use core::ptr;
use core::slice;

/// The version of `abi.h`, NUL-terminated.
const ABI: &[u8] = b"v0.2.0\0";

const HOST: &[u8] = b":authority";
const SHARD: &[u8] = b"x-sesame-shard";

/// The maximum length of the text before the number: longer than any route table's name.
const PREFIX: usize = 512;
/// The maximum number of digits.
const DIGITS: usize = 3;

/// The ABI's buffer type.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Buffer {
    pointer: *const u8,
    length: usize,
}

impl Buffer {
    fn of(bytes: &[u8]) -> Self {
        Self {
            pointer: bytes.as_ptr(),
            length: bytes.len(),
        }
    }
}

/// The text before the number.
#[repr(C)]
pub struct Config {
    length: usize,
    prefix: [u8; PREFIX],
}

unsafe extern "C" {
    fn envoy_dynamic_module_callback_early_header_mutation_get_header_value(
        envoy: *mut c_void,
        name: Buffer,
        value: *mut Buffer,
        index: usize,
        count: *mut usize,
    ) -> bool;
    fn envoy_dynamic_module_callback_early_header_mutation_set_header(
        envoy: *mut c_void,
        name: Buffer,
        value: Buffer,
    ) -> bool;
    fn abort() -> !;
    fn free(memory: *mut c_void);
    fn malloc(size: usize) -> *mut c_void;
}

/// Returns the ABI version.
#[unsafe(no_mangle)]
pub extern "C" fn envoy_dynamic_module_on_program_init() -> *const u8 {
    ABI.as_ptr()
}

/// Creates a configuration. Returns null if it is too long, which makes Envoy reject the listener.
///
/// # Safety
/// See `abi.h`: `config` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_early_header_mutation_config_new(
    _envoy: *mut c_void,
    _name: Buffer,
    config: Buffer,
) -> *mut Config {
    if config.length > PREFIX {
        return ptr::null_mut();
    }
    // SAFETY: the memory has the size of a `Config`, is aligned for any type, and is written before it is read. The
    // copied bytes fit and don't overlap.
    unsafe {
        let new = malloc(size_of::<Config>()).cast::<Config>();
        if !new.is_null() {
            (&raw mut (*new).length).write(config.length);
            let prefix = (&raw mut (*new).prefix).cast::<u8>();
            ptr::write_bytes(prefix, 0, PREFIX);
            ptr::copy_nonoverlapping(config.pointer, prefix, config.length);
        }
        new
    }
}

/// Destroys a configuration.
///
/// # Safety
/// See `abi.h`: `config` comes from `config_new` and is no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_early_header_mutation_config_destroy(
    config: *mut Config,
) {
    // SAFETY: `malloc` returned this pointer.
    unsafe { free(config.cast()) }
}

/// Processes a request.
///
/// # Safety
/// See `abi.h`: `config` comes from `config_new`, and `envoy` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_early_header_mutation_mutate(
    config: *const Config,
    envoy: *mut c_void,
) -> bool {
    let mut host = Buffer::of(&[]);
    // SAFETY: calls Envoy with its own pointer; the host is valid until the headers change.
    let host = unsafe {
        let found = envoy_dynamic_module_callback_early_header_mutation_get_header_value(
            envoy,
            Buffer::of(HOST),
            &mut host,
            0,
            ptr::null_mut(),
        );
        if found && !host.pointer.is_null() {
            slice::from_raw_parts(host.pointer, host.length)
        } else {
            &[]
        }
    };
    let number = number::number(host);

    // SAFETY: `config_new` initialized the configuration, and it never changes.
    let config = unsafe { &*config };
    let mut value = [0; PREFIX + DIGITS];
    let mut length = 0;
    let digits = [number / 100, number / 10 % 10, number % 10].map(|digit| b'0' + digit);
    let digits = match number {
        0..10 => &digits[2..],
        10..100 => &digits[1..],
        100.. => &digits[..],
    };
    let prefix = config.prefix.iter().take(config.length);
    for (place, byte) in value.iter_mut().zip(prefix.chain(digits)) {
        *place = *byte;
        length += 1;
    }
    let value = Buffer {
        pointer: value.as_ptr(),
        length,
    };
    // SAFETY: calls Envoy with its own pointer; Envoy copies the buffers.
    unsafe {
        envoy_dynamic_module_callback_early_header_mutation_set_header(
            envoy,
            Buffer::of(SHARD),
            value,
        );
    }
    true
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: takes no arguments and doesn't return.
    unsafe { abort() }
}

/// `core` refers to this symbol because it is compiled with unwinding.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}
