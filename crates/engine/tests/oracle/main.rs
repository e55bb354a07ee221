//! History does not matter: after any sequence of commits the tables equal those of a fresh engine that
//! was fed the final objects in another order, and those of a naive computation without any engine.

mod naive;
mod objects;
mod pipeline;

use proptest::prelude::*;
use sesame_engine::Footprint;

use naive::naive;
use objects::{Objects, Step, steps};
use pipeline::Pipeline;

/// Runs batches of steps and checks everything after each commit.
fn check(batches: Vec<Vec<Step>>) -> Result<(), TestCaseError> {
    let mut pipeline = Pipeline::new();
    let mut objects = Objects::default();
    let mut replayed = pipeline.dump();
    for batch in batches {
        let before = pipeline.engine.revision();
        objects.apply(&batch);
        let commit = pipeline.commit(&batch);
        let changed = pipeline.replay(&commit, &mut replayed);
        let dump = pipeline.dump();
        prop_assert_eq!(&replayed, &dump, "the changes add up to the tables");
        prop_assert_eq!(changed, !commit.is_empty());
        prop_assert_eq!(commit.revision(), before + u64::from(changed));
        prop_assert_eq!(commit.revision(), pipeline.engine.revision());

        let mut fresh = Pipeline::new();
        for step in objects.steps_reversed() {
            fresh.commit(&[step]);
        }
        prop_assert_eq!(&dump, &fresh.dump(), "as a fresh engine");
        prop_assert_eq!(&dump, &naive(&objects), "as without an engine");
        prop_assert_eq!(
            Footprint {
                slots: 0,
                ..pipeline.engine.footprint()
            },
            Footprint {
                slots: 0,
                ..fresh.engine.footprint()
            },
            "holds no more than a fresh engine"
        );
    }
    pipeline.commit(&objects.removals());
    prop_assert_eq!(pipeline.engine.footprint(), Footprint::default());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Few keys: everything collides with everything.
    #[test]
    fn small_worlds(batches in prop::collection::vec(steps(6, 8), 1..12)) {
        check(batches)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Many routes in few groups: large groups, which are kept another way than small ones.
    #[test]
    fn large_groups(batches in prop::collection::vec(steps(250, 300), 1..5)) {
        check(batches)?;
    }
}
