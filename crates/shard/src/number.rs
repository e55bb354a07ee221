//! The shard number of a host. Compiled into this crate and into the Envoy module, which can only use `core`.
//!
//! Each bit of the number is a parity, which a regular expression can also compute: whether an even number of the
//! host's characters count. Some characters are escapes: they don't count, and a different set of characters counts
//! after them. The number therefore depends on the order of characters, and hosts that differ in a few digits are
//! spread evenly.
//!
//! Case, port and a trailing dot don't affect the number.

/// The characters that one bit of the number depends on, in lowercase. `counted` and `escapes` are disjoint.
#[derive(Clone, Copy, Debug)]
pub struct Bit {
    /// The characters that count, except after an escape.
    pub counted: &'static [u8],
    /// The escapes. The character after an escape is not an escape.
    pub escapes: &'static [u8],
    /// The characters that count after an escape.
    pub counted_escaped: &'static [u8],
}

/// Found by a search for evenly filled shards whose regular expressions are small enough for Envoy's limit.
pub const BITS: [Bit; 8] = [
    Bit::new(b"01256acefgjkmntvwy", b"8hi-.", b"01389hijkopqrxyz"),
    Bit::new(b"23679abfglmnorstuwxyz", b"48dv.", b"12347abcdefgjmnopqrt"),
    Bit::new(b"02357efghiklmsyz", b"1abcdopq-.", b"01346abcdijlmnopsyz"),
    Bit::new(b"04567cfghpstu", b"2ly-.", b"24578bcdefghijmqrstuvwxy"),
    Bit::new(b"34578efqstuvwxyz", b"0169ac-.", b"03678bcdeflmnqxy"),
    Bit::new(b"02378cdklmnpqrstuvz", b"569efg-.", b"12689abcfghjklnoqrs"),
    Bit::new(b"6789bcdfghiklmnqrvwxy", b"05jo-.", b"345789abfghij"),
    Bit::new(
        b"01234eghknoqstuwxz",
        b"7bry-.",
        b"0abcdefgijmnopqrstuvwxyz",
    ),
];

impl Bit {
    const fn new(
        counted: &'static [u8],
        escapes: &'static [u8],
        counted_escaped: &'static [u8],
    ) -> Self {
        Self {
            counted,
            escapes,
            counted_escaped,
        }
    }
}

/// The shard number of hosts that are empty or don't contain counted characters: all bits set.
const ALL: u8 = u8::MAX;

/// The bits for which a character is in each set of [`Bit`].
#[derive(Clone, Copy)]
struct Character {
    counted: u8,
    escapes: u8,
    counted_escaped: u8,
}

const CHARACTERS: [Character; 256] = {
    let none = Character {
        counted: 0,
        escapes: 0,
        counted_escaped: 0,
    };
    let mut table = [none; 256];
    let mut byte = 0;
    while byte < table.len() {
        let lower = (byte as u8).to_ascii_lowercase();
        let mut place = 0;
        while place < BITS.len() {
            let bit = &BITS[place];
            table[byte].counted |= (contains(bit.counted, lower) as u8) << place;
            table[byte].escapes |= (contains(bit.escapes, lower) as u8) << place;
            table[byte].counted_escaped |= (contains(bit.counted_escaped, lower) as u8) << place;
            place += 1;
        }
        byte += 1;
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
    let (mut even, mut escaped) = (ALL, 0);
    for &byte in host {
        if byte == b':' {
            break;
        }
        if !is_of_hosts(byte) {
            return 0;
        }
        let character = CHARACTERS[usize::from(byte)];
        even ^= (character.counted & !escaped) | (character.counted_escaped & escaped);
        escaped = character.escapes & !escaped;
    }
    even
}

/// Whether a hostname may contain this character.
pub fn is_of_hosts(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.'
}
