//! Objects take little memory, and removing some frees it even if others remain. Counts allocated bytes, without the
//! allocator's overhead.

use sesame_api::Object;
use sesame_control::core::{Core, Input};
use sesame_envoy::Options;
use sesame_testkit::many;
use sesame_tests::allocator::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn apps(which: std::ops::Range<usize>) -> impl Iterator<Item = Object> {
    which
        .flat_map(|index| many::app(index, many::endpoint(index)))
        .map(|value| many::object(&value))
}

#[test]
fn routes_take_little_memory_and_removing_most_of_them_frees_it() {
    let in_use = allocator::in_use;
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
