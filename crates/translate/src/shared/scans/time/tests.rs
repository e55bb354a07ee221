use sesame_model::{HeaderMatch, QueryMatch, Route, TextMatch, TextPosition};

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
    let mut load = Load::default();
    let fits = matches.into_iter().filter(|one| {
        let scans = meter.scans(one);
        scans.iter().all(|scan| load.add(scan, one, 1).is_ok())
    });
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
    let host = (0..60).map(|number| header("Host", number));
    let authority = (0..60).map(|number| header(":authority", number));
    assert_eq!(fitting(host.chain(authority)), alone);
    let paths = (0..30).map(|number| requests(&format!("/.*{number}")));
    let both = fitting(paths.clone().chain((0..30).map(query)));
    assert!((24..34).contains(&both), "{both}");
    let pseudo = fitting(paths.chain((0..30).map(|number| header(":path", number))));
    assert!((24..34).contains(&pseudo), "{pseudo}");
}

#[test]
fn a_scan_takes_little_memory() {
    assert_eq!(size_of::<Scan>(), 32);
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
    assert!(scans[0].time().is_some_and(|time| time.nanos() < 50_000));
}

#[test]
fn a_list_has_limits() {
    let mut time = ListTime::default();
    assert!(time.add(".*a.{20}").is_err());
    let count = (0..100).take_while(|number| time.add(&format!(".*{number}")).is_ok());
    assert!((7..12).contains(&count.count()));
    let error = time.add(".*").expect_err("too much time");
    assert!(error.contains("the list takes Envoy about"), "{error}");
}

#[test]
fn texts_of_a_list_share_the_time_of_their_header_and_letter() {
    let mut time = ListTime::default();
    let mut count = |name: &str, text: &str| {
        let header = HeaderMatch {
            name: name.to_owned(),
            value: containing(text),
        };
        (0..100)
            .take_while(|_| time.add_header(&header).is_ok())
            .count()
    };
    assert_eq!(count("a", "bot"), 3);
    assert_eq!(
        (count("a", "Bot"), count("a", "crawler"), count("b", "bot")),
        (0, 3, 3)
    );
}

fn containing(text: &str) -> ValueMatch {
    ValueMatch::Not(Box::new(ValueMatch::Text(Box::new(TextMatch {
        text: text.to_owned(),
        position: TextPosition::Anywhere,
        ignore_case: false,
    }))))
}

fn with_header(path: PathMatch, name: &str, value: ValueMatch) -> RouteMatch {
    let header = HeaderMatch {
        name: name.to_owned(),
        value,
    };
    RouteMatch {
        path,
        headers: vec![header],
        ..Route::respond_to_all(200).matches
    }
}

#[test]
fn texts_take_time_only_for_their_first_letter() {
    let of = |letter: u8, count: u32| {
        let text = move |number| format!("{}{number}", char::from(letter));
        let any = || PathMatch::Prefix("/".to_owned());
        (0..count).map(move |number| with_header(any(), "user-agent", containing(&text(number))))
    };
    let one = fitting(of(b'a', 100));
    assert!((8..12).contains(&one), "{one}");
    assert_eq!(fitting(of(b'a', 100).chain(of(b'A', 100))), one);
    let letters = (b'a'..=b'z').flat_map(|letter| of(letter, 6));
    assert_eq!(fitting(letters), 26 * 6);
    // Expressions read all letters.
    let expression = ValueMatch::Regex(".*x".to_owned());
    let expressions = (0..20).map(|_| {
        with_header(
            PathMatch::Prefix("/".to_owned()),
            "User-Agent",
            expression.clone(),
        )
    });
    let both = fitting(expressions.chain(of(b'a', 100)));
    assert!((21..26).contains(&both), "{both}");
}

#[test]
fn a_long_text_takes_more_time() {
    let of = |length: usize| {
        let path = PathMatch::Prefix("/".to_owned());
        fitting([with_header(path, "a", containing(&"a".repeat(length)))])
    };
    assert_eq!((of(512), of(1_024)), (1, 0));
}

#[test]
fn conditions_of_different_paths_take_different_requests() {
    let of = |paths: &mut dyn Iterator<Item = String>| {
        let matches = paths
            .map(|path| with_header(PathMatch::StartsWith(path), "cookie", containing("beta=1")));
        fitting(matches.collect::<Vec<_>>())
    };
    assert_eq!(
        of(&mut (100..999).map(|number| format!("/app/{number}"))),
        899
    );
    let nested = of(&mut (1..99).map(|depth| "/a".repeat(depth)));
    assert!((8..12).contains(&nested), "{nested}");
}

#[test]
fn automatons_of_all_headers_take_time_together() {
    // Few bytes suffice to build many states.
    let expression = ValueMatch::Regex("[ab]{0,20}a[ab]{20}".to_owned());
    let matches = (0..100).map(|number| {
        let path = PathMatch::Prefix("/".to_owned());
        with_header(path, &format!("x-{number}"), expression.clone())
    });
    let count = fitting(matches);
    assert!((10..60).contains(&count), "{count}");
}

#[test]
fn a_match_with_several_routes_takes_time_for_each() {
    let requests = requests("/.*x");
    let scans = Meter::default().scans(&requests);
    let mut load = Load::default();
    let count = (0..100)
        .take_while(|_| load.add(&scans[0], &requests, 10).is_ok())
        .count();
    assert!((2..4).contains(&count), "{count}");
}

#[test]
fn paths_that_differ_in_the_last_byte_are_different() {
    let matches = |paths: &[&str]| {
        let matches = paths.iter().map(|path| {
            let path = PathMatch::StartsWith((*path).to_owned());
            with_header(path, "cookie", containing("beta=1"))
        });
        fitting(matches.collect::<Vec<_>>())
    };
    let paths: Vec<String> = (10..40).map(|number| format!("/svc-{number}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    assert_eq!(matches(&paths), 30);
    let nested: Vec<String> = (1..20)
        .map(|depth| format!("/{}", "a".repeat(depth)))
        .collect();
    let nested: Vec<&str> = nested.iter().map(String::as_str).collect();
    assert_eq!(matches(&nested), 9);
}
