//! The shard number of a host. Compiled into this crate and into the Envoy module, which can only use `core`.
//!
//! Each bit of the number is a parity, which regular expressions can also compute: whether characters of one set occur
//! an even number of times, counting only while characters of another set have occurred an even number of times. The
//! number therefore depends on the order of characters, which spreads numbered hosts evenly.
//!
//! Case, port and a trailing dot don't affect the number.

/// The characters that one bit of the number depends on, in lowercase. No character is in both sets.
#[derive(Clone, Copy, Debug)]
pub struct Bit {
    /// Counted after an even number of `switch` characters.
    pub count: &'static [u8],
    /// Turns counting off and on.
    pub switch: &'static [u8],
}

/// Found by experiment: spreads several kinds of names (numbered, words, hexadecimal) evenly, with regular expressions
/// small enough for Envoy's limit.
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

/// The shard number for hosts that are empty or have no counted characters: all bits set.
const ALL: u8 = (1 << BITS.len()) - 1;

/// For each character, the bits it counts for and the bits it switches.
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

/// The shard number of a host in a request or route; 0 for hosts with invalid characters.
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

/// Whether a hostname may contain this character.
pub fn is_of_hosts(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.'
}
