use sesame_model::{HeaderMatch, QueryMatch};

use super::*;

fn requests(path: &str) -> RouteMatch {
    RouteMatch {
        path: PathMatch::Regex(path.to_owned()),
        ..Route::respond_to_all(200).matches
    }
}

/// The number of these matches that a host can have.
fn fitting(matches: impl IntoIterator<Item = RouteMatch>) -> usize {
    let mut meter = Meter::default();
    let matches = matches.into_iter();
    let scans: Vec<_> = matches.map(|one| meter.scans(&one)).collect();
    let mut load = Load::default();
    let scans = scans.iter();
    let fits = scans.filter(|scans| scans.iter().all(|scan| load.add(scan).is_ok()));
    fits.count()
}

#[test]
fn a_text_is_read_by_a_limited_number_of_expressions() {
    let same = (0..100).map(|number| requests(&format!("/api/.*/{number}")));
    let count = fitting(same);
    assert!((24..34).contains(&count), "{count}");
}

#[test]
fn a_path_has_one_of_several_beginnings() {
    let different = (100..999).map(|number| requests(&format!("/api/{number}/.*")));
    assert_eq!(fitting(different), 899);
    // Those with a longer beginning read the same strings as those with a shorter one.
    let short = (0..15).map(|number| requests(&format!("/[a-z]*{number}")));
    let long = (0..30).map(|number| requests(&format!("/api/[a-z]*{number}")));
    let other = (0..15).map(|number| requests(&format!("/b/[a-z]*{number}")));
    let count = fitting(short.clone().chain(long.clone()).chain(other.clone()));
    assert!((40..50).contains(&count), "{count}");
    let reversed = fitting(other.chain(long).chain(short));
    assert!((40..50).contains(&reversed), "{reversed}");
}

#[test]
fn the_order_of_beginnings_does_not_matter_for_the_limit() {
    let paths = ["/a", "/a/b", "/a/b/c", "/", "/a/b", "/x"];
    let matches =
        paths.map(|path| (0..6).map(move |number| requests(&format!("{path}/[0-9]*{number}"))));
    let forward: Vec<_> = matches.clone().into_iter().flatten().collect();
    let mut backward = forward.clone();
    backward.reverse();
    // 30 of them may read the same path.
    assert_eq!((fitting(forward), fitting(backward)), (36, 36));
}

#[test]
fn headers_are_separate_and_queries_are_not() {
    let header = |name: &str, number: u32| RouteMatch {
        headers: vec![HeaderMatch {
            name: name.to_owned(),
            value: ValueMatch::Regex(format!(".*{number}")),
        }],
        ..Route::respond_to_all(200).matches
    };
    let query = |number: u32| RouteMatch {
        query: vec![QueryMatch {
            name: "q".to_owned(),
            value: ValueMatch::Not(Box::new(ValueMatch::Regex(format!(".*{number}")))),
        }],
        ..Route::respond_to_all(200).matches
    };
    let one = (0..60).map(|number| header("a", number));
    let two = (0..60).map(|number| header("b", number));
    let alone = fitting(one.clone());
    assert!((24..34).contains(&alone), "{alone}");
    assert_eq!(fitting(one.chain(two)), 2 * alone);
    let paths = (0..30).map(|number| requests(&format!("/.*{number}")));
    let both = fitting(paths.clone().chain((0..30).map(query)));
    assert!((24..34).contains(&both), "{both}");
    let pseudo = fitting(paths.chain((0..30).map(|number| header(":path", number))));
    assert!((24..34).contains(&pseudo), "{pseudo}");
}

#[test]
fn measuring_an_object_takes_limited_work() {
    let mut meter = Meter::default();
    for number in 0..2_000 {
        meter.scans(&requests(&format!("/(.*a){{100}}{number}")));
    }
    assert_eq!(meter.effort, 0);
    // Bounded expressions get an upper bound.
    let scans = meter.scans(&requests("/[a-z]{1,5}"));
    assert!(scans[0].measure.nanos < Some(50_000));
}

#[test]
fn a_list_has_limits() {
    let mut time = ListTime::default();
    assert!(time.add(".*a.{20}").is_err());
    let count = (0..100).take_while(|number| time.add(&format!(".*{number}")).is_ok());
    assert!((7..12).contains(&count.count()));
    let error = time.add(".*").expect_err("too much time");
    assert!(
        error.contains("those of the list take Envoy about"),
        "{error}"
    );
}

#[test]
fn messages_have_the_numbers_and_the_fix() {
    let reason = |cause| Reason {
        pattern: "/.*".into(),
        cause,
    };
    let of = |cause| reason(cause).message("example.com");
    assert!(of(Cause::Host(4_012_345)).contains("host example.com take Envoy about 4.02 ms"));
    assert!(
        of(Cause::Each(1_500_000))
            .contains("about 1.5 ms for a request of 60 KiB; the limit is 1 ms")
    );
    assert!(of(Cause::States).contains("avoid counted repetitions"));
}
