//! Which part of a large route table a host is in.
//!
//! In: a host. Out: the number of its shard, and an expression by which an Envoy finds the same number for a request. It
//! must not know what is in a shard.
//!
//! An Envoy digests a route table as a whole at every change. A table in shards costs what one shard costs. Envoys have no
//! hash for this, but regular expressions, and parity is regular: each bit of the number tells whether one set of
//! characters occurs an even number of times in the host, counting only where another set has so far occurred an even
//! number of times. That makes it depend on the order of the characters, so that hosts which are numbered are spread, too.
//!
//! Only a host's own virtual host has to be in the right shard: wildcards are in all of them, so for any other host every
//! number is right. The number doesn't depend on letter case, on a port or on a dot at the end.

use std::fmt::Write;

/// How many shards a table has. A change costs a 64th; more would cost each request more, and wildcards, which are in every
/// shard, too.
pub(crate) const SHARDS: u32 = 1 << BITS.len();

/// The characters that one bit of the number looks at; no character is in both sets. The others don't count.
struct Bit {
    /// What is counted after an even number of `switch`.
    count: &'static [u8],
    /// What turns counting off and on.
    switch: &'static [u8],
}

/// Chosen by trial such that names of several kinds (numbered, words, hexadecimal) are spread evenly, and that the
/// expressions stay small: Envoy refuses large ones.
const BITS: [Bit; 6] = [
    Bit::new(b"lmnopqrstuv", b"0189ayz"),
    Bit::new(b"34abcvwxyz", b"56defghijkl"),
    Bit::new(b"12ltuv", b"345mnopqrs"),
    Bit::new(b"458mnopqrstu", b"67vwx"),
    Bit::new(b"789pqrst", b"1234fghij"),
    Bit::new(b"3456abcwxyz", b"019tuv"),
];

impl Bit {
    const fn new(count: &'static [u8], switch: &'static [u8]) -> Self {
        Self { count, switch }
    }

    /// Whether the bit is set for a host. A character that no host name has makes it unset.
    fn of(&self, host: &[u8]) -> bool {
        let (mut counting, mut even) = (true, true);
        for byte in host.iter().take_while(|byte| **byte != b':') {
            let byte = byte.to_ascii_lowercase();
            if !is_of_hosts(byte) {
                return false;
            } else if self.switch.contains(&byte) {
                counting = !counting;
            } else if self.count.contains(&byte) && counting {
                even = !even;
            }
        }
        even
    }

    /// What [`Bit::of`] does, as a regular expression that finds a match or none.
    fn expression(&self) -> String {
        let switch = class(|byte| self.switch.contains(&byte));
        let count = class(|byte| self.count.contains(&byte));
        let uncounted = class(|byte| !self.switch.contains(&byte));
        let rest = class(|byte| !self.switch.contains(&byte) && !self.count.contains(&byte));
        let off = format!("{switch}{uncounted}*");
        let even = format!("{rest}|{off}{switch}");
        format!("^(?:{even}|{count}(?:{even})*{count})*(?:{off})?(?::|$)")
    }
}

/// The shard of a host, below [`SHARDS`].
pub(crate) fn shard(host: &str) -> u32 {
    let bits = BITS.iter().enumerate();
    bits.map(|(place, bit)| u32::from(bit.of(host.as_bytes())) << place)
        .sum()
}

/// Whether a domain is in every shard.
pub(crate) fn is_everywhere(domain: &str) -> bool {
    domain.starts_with('*')
}

/// What an Envoy writes for a request: the number of its host's shard, by the Common Expression Language.
pub(crate) fn expression() -> String {
    let mut sum = String::new();
    for (place, bit) in BITS.iter().enumerate() {
        let plus = if place == 0 { "" } else { " + " };
        let (expression, value) = (bit.expression(), 1_u32 << place);
        // Writing to a string can't fail.
        let _ = write!(
            sum,
            "{plus}(request.host.matches(r'{expression}') ? {value} : 0)"
        );
    }
    format!("%CEL({sum})%")
}

fn is_of_hosts(lower: u8) -> bool {
    matches!(lower, b'-' | b'.' | b'0'..=b'9' | b'a'..=b'z')
}

/// A class of those characters of hosts, in both cases, as ranges: what is not listed would make the expression large.
fn class(holds: impl Fn(u8) -> bool) -> String {
    let wanted = |byte: u8| {
        let lower = byte.to_ascii_lowercase();
        is_of_hosts(lower) && holds(lower)
    };
    let mut out = "[".to_owned();
    let push = |out: &mut String, byte: u8| {
        if byte == b'-' {
            out.push('\\');
        }
        out.push(char::from(byte));
    };
    let mut byte = 0_u8;
    while byte < 128 {
        if wanted(byte) {
            push(&mut out, byte);
            let first = byte;
            while wanted(byte + 1) {
                byte += 1;
            }
            if byte > first {
                out.push('-');
                push(&mut out, byte);
            }
        }
        byte += 1;
    }
    out.push(']');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    fn by_expressions(host: &str) -> u32 {
        let bits = BITS.iter().enumerate();
        bits.map(|(place, bit)| {
            let regex = Regex::new(&bit.expression()).unwrap();
            u32::from(regex.is_match(host)) << place
        })
        .sum()
    }

    proptest! {
        #[test]
        fn envoys_find_the_same_number(host in "[a-zA-Z0-9.:*_\\[\\]-]{0,40}") {
            prop_assert_eq!(by_expressions(&host), shard(&host));
        }

        #[test]
        fn case_port_and_last_dot_do_not_count(host in "[a-z0-9.-]{1,40}", port: u16) {
            let wanted = shard(&host);
            prop_assert_eq!(shard(&host.to_uppercase()), wanted);
            prop_assert_eq!(shard(&format!("{host}:{port}")), wanted);
            prop_assert_eq!(shard(&format!("{host}.")), wanted);
        }
    }

    /// Envoys and Sesames of different versions meet: the numbers are as fixed as the names of resources.
    #[test]
    fn numbers_stay() {
        let hosts = [
            ("shop.example.com", 4),
            ("SHOP.example.com:8080", 4),
            ("app-0001.team-01.example.com.", 14),
            ("[::1]:80", 0),
            ("", 63),
        ];
        for (host, number) in hosts {
            assert_eq!(shard(host), number, "{host}");
        }
    }

    #[test]
    fn hosts_are_spread() {
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
            for number in 0..5_000 {
                sizes[shard(&kind(number)) as usize] += 1;
            }
            let largest = sizes.iter().max().unwrap();
            // 78 each, if they were all alike. Where many hosts have the same end, some bits may be the same for all.
            assert!(*largest <= 270, "{} has a shard of {largest}", kind(1));
        }
    }

    #[test]
    fn expressions_are_small_enough_for_envoys() {
        for bit in &BITS {
            let expression = bit.expression();
            assert!(
                expression.is_ascii() && expression.len() < 250,
                "{expression}"
            );
        }
        // What the value of a header may be there.
        assert!(expression().len() < 16_384);
    }
}
