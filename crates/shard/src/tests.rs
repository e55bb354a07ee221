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

/// Envoy and Sesame may be of different versions, so the numbers must never change.
#[test]
fn numbers_never_change() {
    let hosts = [
        ("shop.example.com", 4),
        ("SHOP.example.com:8080", 4),
        ("app-0001.team-01.example.com.", 14),
        ("[::1]:80", 0),
        ("", 63),
    ];
    for (host, expected) in hosts {
        assert_eq!(number(host.as_bytes()), expected, "{host}");
    }
}

#[test]
fn hosts_are_distributed() {
    let kinds: [fn(u32) -> String; 3] = [
        |number| format!("app-{:04}.team-{:02}.example.com", number, number % 100),
        |number| format!("h{number}.example.com"),
        |number| {
            let mixed = number.wrapping_mul(0x9E37_79B9);
            let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x85EB_CA6B);
            format!("{:08x}.apps.example.com", mixed ^ (mixed >> 13))
        },
    ];
    for kind in kinds {
        let mut sizes = vec![0; SHARDS as usize];
        for host in (0..5_000).map(kind) {
            sizes[usize::from(number(host.as_bytes()))] += 1;
        }
        let largest = sizes.iter().max().unwrap();
        // The average is 78. A suffix that many hosts share may fix some bits.
        assert!(*largest <= 270, "{} has a shard of {largest}", kind(1));
    }
}

#[test]
fn module_is_a_small_shared_library_without_panics() {
    assert_eq!(MODULE_FILE, format!("lib{MODULE_NAME}.so"));
    let Some(module) = MODULE else {
        return;
    };
    assert!(module.starts_with(b"\x7fELF"), "not a shared library");
    assert!(module.len() < 64 << 10, "{} bytes", module.len());
    let panics = module.windows(5).any(|bytes| bytes == b"abort");
    assert!(!panics, "the module can panic");
}
