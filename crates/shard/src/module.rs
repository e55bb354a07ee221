//! The module for Envoy: notes in each request's header which shard its host is in.
//!
//! In: requests, through Envoy's `abi.h` (dynamic modules, early header mutation). Out: a header. It can neither panic nor
//! fail, and it remembers nothing but its configuration.
//!
//! A crate of its own without `std`, compiled by `build.rs`.

#![no_std]

#[path = "number.rs"]
mod number;

use core::ffi::c_void;
use core::ptr;
use core::slice;

/// The version of `abi.h`, with the zero at its end.
const ABI: &[u8] = b"v0.2.0\0";

const HOST: &[u8] = b":authority";
const SHARD: &[u8] = b"x-sesame-shard";

/// How many bytes of text can come before a number: more than the name of any route table has.
const PREFIX: usize = 512;
/// A number has two digits at most.
const DIGITS: usize = 2;

/// Bytes of Envoy's, or for it.
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

/// What comes before the number.
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

/// Envoy asks which language is spoken here.
#[unsafe(no_mangle)]
pub extern "C" fn envoy_dynamic_module_on_program_init() -> *const u8 {
    ABI.as_ptr()
}

/// A listener's configuration; none if it is too long, and Envoy refuses the listener.
///
/// # Safety
/// As `abi.h` says: `config` is there during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_early_header_mutation_config_new(
    _envoy: *mut c_void,
    _name: Buffer,
    config: Buffer,
) -> *mut Config {
    if config.length > PREFIX {
        return ptr::null_mut();
    }
    // SAFETY: the memory is as large as a `Config`, aligned for anything, and written before anybody reads it; what is
    // copied into it is no longer than its place, and was there before it.
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

/// The listener is gone.
///
/// # Safety
/// As `abi.h` says: `config` is what the function above returned, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_early_header_mutation_config_destroy(
    config: *mut Config,
) {
    // SAFETY: it is from `malloc`.
    unsafe { free(config.cast()) }
}

/// A request.
///
/// # Safety
/// As `abi.h` says: `config` is what the first function returned, `envoy` is for this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_early_header_mutation_mutate(
    config: *const Config,
    envoy: *mut c_void,
) -> bool {
    let mut host = Buffer::of(&[]);
    // SAFETY: Envoy's own function, with what it gave us; the bytes of the host are there until the headers change.
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

    // SAFETY: it was written by the first function, and nobody writes it now.
    let config = unsafe { &*config };
    let mut value = [0; PREFIX + DIGITS];
    let mut length = 0;
    let digits = [number / 10, number % 10].map(|digit| b'0' + digit);
    let digits = if number < 10 { &digits[1..] } else { &digits };
    let prefix = config.prefix.iter().take(config.length);
    for (place, byte) in value.iter_mut().zip(prefix.chain(digits)) {
        *place = *byte;
        length += 1;
    }
    let value = Buffer {
        pointer: value.as_ptr(),
        length,
    };
    // SAFETY: Envoy's own function, which copies what it is given.
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
    // SAFETY: it takes nothing and doesn't return.
    unsafe { abort() }
}

/// `core` is compiled such that it could unwind, and names this.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}
