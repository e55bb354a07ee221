//! The number of a host's shard.
//!
//! In: a host. Out: a number. It is part of two crates, this one and the module for Envoy, which has nothing but `core`.
//!
//! Each bit of the number is a parity, so that a regular expression can tell it, too: whether one set of characters occurs
//! an even number of times in the host, counting only where another set has so far occurred an even number of times.
//! That makes it depend on the order of the characters, so that hosts which are numbered are spread, too.
//!
//! The number doesn't depend on letter case, on a port or on a dot at the end.

/// The characters that one bit of the number looks at, in lower case; no character is in both sets. The others don't
/// count.
#[derive(Clone, Copy, Debug)]
pub struct Bit {
    /// What is counted after an even number of `switch`.
    pub count: &'static [u8],
    /// What turns counting off and on.
    pub switch: &'static [u8],
}

/// Chosen by trial such that names of several kinds (numbered, words, hexadecimal) are spread evenly, and that the
/// expressions stay small: Envoy refuses large ones.
pub const BITS: [Bit; 6] = [
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
}

/// The number of a host without any of the counted characters, and of a request without a host: all bits.
const ALL: u8 = (1 << BITS.len()) - 1;

/// Which bits a character counts for, and which it switches.
const OF_CHARACTERS: [(u8, u8); 256] = {
    let mut table = [(0, 0); 256];
    let mut character = 0;
    while character < table.len() {
        let lower = (character as u8).to_ascii_lowercase();
        let mut bit = 0;
        while bit < BITS.len() {
            let set = 1 << bit;
            if contains(BITS[bit].count, lower) {
                table[character].0 |= set;
            }
            if contains(BITS[bit].switch, lower) {
                table[character].1 |= set;
            }
            bit += 1;
        }
        character += 1;
    }
    table
};

const fn contains(set: &[u8], byte: u8) -> bool {
    let mut place = 0;
    while place < set.len() {
        if set[place] == byte {
            return true;
        }
        place += 1;
    }
    false
}

/// The shard of a host, as requests and routes have it. A character that no host name has makes it 0.
pub fn number(host: &[u8]) -> u8 {
    let (mut counting, mut even) = (ALL, ALL);
    for &byte in host {
        if byte == b':' {
            break;
        }
        if !is_of_hosts(byte) {
            return 0;
        }
        let (count, switch) = OF_CHARACTERS[usize::from(byte)];
        even ^= count & counting;
        counting ^= switch;
    }
    even
}

/// Whether a host name can have the character.
pub fn is_of_hosts(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.'
}
