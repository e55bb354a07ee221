//! Objects take little memory, and removing some frees it even if others remain. Counts allocated bytes, without the
//! allocator's overhead.

// A counting allocator needs unsafe code.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use sesame_api::Object;
use sesame_control::core::{Core, Input};
use sesame_envoy::Options;
use sesame_testkit::many;

/// The system allocator, counting allocated bytes.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: delegates to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn apps(which: std::ops::Range<usize>) -> impl Iterator<Item = Object> {
    which
        .flat_map(|index| many::app(index, many::endpoint(index)))
        .map(|value| many::object(&value))
}

#[test]
fn routes_take_little_memory_and_removing_most_of_them_frees_it() {
    let in_use = || IN_USE.load(Ordering::Relaxed);
    let mut core = Core::new(Options::default());
    core.apply([Input::Upsert(many::object(&many::gateway(8080)))]);
    core.apply(apps(0..20).map(Input::Upsert));
    let few = in_use();
    core.apply(apps(20..2_000).map(Input::Upsert));
    let all = in_use();
    let each = (all - few) / 1_980;
    assert!(
        each < 7_050,
        "a route, its Service and its slice take {each} bytes"
    );
    core.apply(apps(20..2_000).map(|object| Input::Remove(object.key())));
    let left = in_use();
    assert!(
        left.saturating_sub(few) < (all - few) / 20,
        "{few} bytes, with all routes {all}, then {left}"
    );
}
