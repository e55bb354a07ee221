use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn case_port_and_trailing_dot_do_not_matter(host in "[a-z0-9.-]{1,40}", port: u16) {
        let wanted = number(host.as_bytes());
        prop_assert_eq!(number(host.to_uppercase().as_bytes()), wanted);
        prop_assert_eq!(number(format!("{host}:{port}").as_bytes()), wanted);
        prop_assert_eq!(number(format!("{host}.").as_bytes()), wanted);
    }

    #[test]
    fn any_bytes_map_to_a_shard(host in prop::collection::vec(any::<u8>(), 0..60)) {
        prop_assert!(u32::from(number(&host)) < SHARDS);
    }
}

/// Envoys and Sesame may have different versions, so different numbers need a different [`VERSION`].
#[test]
fn numbers_change_only_with_the_version() {
    let hosts = [
        ("shop.example.com", 214),
        ("SHOP.example.com:8080", 214),
        ("app-0001.team-01.example.com.", 67),
        ("[::1]:80", 0),
        ("", 255),
    ];
    for (host, expected) in hosts {
        assert_eq!(number(host.as_bytes()), expected, "{host}");
    }
    assert_eq!(VERSION, 3);
    assert_eq!(MODULE_NAME, format!("sesame_shard_{VERSION}"));
    assert_eq!(MODULE_FILE, format!("lib{MODULE_NAME}.so"));
}

const WORDS: [&str; 72] = [
    "amber",
    "autumn",
    "billing",
    "blue",
    "bold",
    "brave",
    "calm",
    "cart",
    "checkout",
    "cloud",
    "coral",
    "crimson",
    "dark",
    "data",
    "dawn",
    "delta",
    "docs",
    "eagle",
    "early",
    "east",
    "falcon",
    "fast",
    "field",
    "forest",
    "frost",
    "gentle",
    "golden",
    "grand",
    "green",
    "harbor",
    "hidden",
    "inventory",
    "island",
    "jolly",
    "lake",
    "late",
    "light",
    "lively",
    "lucky",
    "maple",
    "meadow",
    "misty",
    "moon",
    "mountain",
    "noble",
    "north",
    "ocean",
    "orange",
    "orders",
    "payments",
    "pine",
    "proud",
    "quiet",
    "rapid",
    "river",
    "royal",
    "search",
    "shadow",
    "shiny",
    "silent",
    "silver",
    "snow",
    "solar",
    "spring",
    "stone",
    "summer",
    "sunny",
    "tiger",
    "users",
    "velvet",
    "wild",
    "winter",
];
const REGIONS: [&str; 5] = [
    "eu-west-1",
    "us-east-1",
    "us-west-2",
    "ap-south-1",
    "sa-east-1",
];

/// The word for a number; words repeat.
fn word(number: usize) -> &'static str {
    WORDS[number % WORDS.len()]
}

/// 64 pseudo-random bits.
fn mixed(number: usize) -> u64 {
    let mixed = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// `a` to `z`, `aa` to `zz`, and so on.
fn letters(number: usize) -> String {
    let last = char::from(b'a' + (number % 26) as u8);
    match number / 26 {
        0 => last.into(),
        before => format!("{}{last}", letters(before - 1)),
    }
}

/// Kinds of hostnames, by number.
const KINDS: [fn(usize) -> String; 16] = [
    |i| format!("host{i}.dev.corp.net"),
    |i| format!("svc-{i}.apps.example.org"),
    |i| format!("pr-{i}.preview.example.com"),
    |i| format!("r{i}.bench.example.com"),
    |i| format!("customer-{i}.saas.io"),
    |i| format!("h{i}.example.com"),
    |i| format!("{i}.tenant.example.com"),
    |i| format!("shop-{i}-eu.example.com"),
    |i| format!("host-{i:05}.example.com"),
    |i| format!("app-{i:04}.team-{:02}.example.com", i % 100),
    |i| format!("{}-{}.example.com", word(i / WORDS.len()), word(i)),
    |i| format!("api.{}{}.example.com", word(i), i / WORDS.len()),
    |i| {
        let (app, region) = (i / REGIONS.len(), REGIONS[i % REGIONS.len()]);
        format!(
            "{}{}.{region}.cloud.example.com",
            word(app),
            app / WORDS.len()
        )
    },
    |i| format!("{}.example.com", letters(i)),
    |i| format!("{:07x}.preview.example.dev", mixed(i) >> 36),
    |i| {
        let (start, end) = (mixed(i), mixed(i + 1_000_000));
        let groups = (start >> 32, start >> 16 & 0xFFFF, start & 0xFFF);
        let (first, second, third) = groups;
        format!(
            "{first:08x}-{second:04x}-4{third:03x}-a{:03x}-{:012x}.example.com",
            end >> 52,
            end >> 16
        )
    },
];

#[test]
fn hosts_are_distributed_evenly() {
    // A random function would have a largest shard of about 1.7, 1.5 and 1.2 times the average.
    for (hosts, limit) in [(5_000, 2.3), (10_000, 2.0), (50_000, 1.5)] {
        let average = hosts as f64 / f64::from(SHARDS);
        for kind in KINDS {
            let mut sizes = vec![0; SHARDS as usize];
            for host in (0..hosts).map(kind) {
                sizes[usize::from(number(host.as_bytes()))] += 1;
            }
            let largest = sizes.into_iter().max().unwrap();
            assert!(
                f64::from(largest) <= limit * average,
                "{hosts} hosts like {} have a shard of {largest}; the average is {average}",
                kind(1)
            );
        }
    }
}

#[test]
fn module_is_a_small_shared_library_without_panics() {
    let Some(module) = MODULE else {
        return;
    };
    assert!(module.starts_with(b"\x7fELF"), "not a shared library");
    assert!(module.len() < 64 << 10, "{} bytes", module.len());
    let panics = module.windows(5).any(|bytes| bytes == b"abort");
    assert!(!panics, "the module can panic");
}
