//! After any sequence of commits, the tables equal those of a new engine given the final objects in another
//! order, and those of a naive computation without an engine.

mod naive;
mod objects;
mod pipeline;

use proptest::prelude::*;
use sesame_engine::Footprint;

use naive::naive;
use objects::{Objects, Step, steps};
use pipeline::Pipeline;

/// Commits batches of steps and checks all tables after each commit.
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
        prop_assert_eq!(&dump, &fresh.dump(), "as in a new engine");
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
            "as large as a new engine"
        );
    }
    pipeline.commit(&objects.removals());
    prop_assert_eq!(pipeline.engine.footprint(), Footprint::default());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Few keys, so that all changes interact.
    #[test]
    fn few_keys(batches in prop::collection::vec(steps(6, 8), 1..12)) {
        check(batches)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Many routes in few groups, since large groups are represented differently from small ones.
    #[test]
    fn large_groups(batches in prop::collection::vec(steps(250, 300), 1..5)) {
        check(batches)?;
    }
}
