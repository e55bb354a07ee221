//! Hashes of objects, for detecting changes without keeping the objects.

use std::io;

use serde::Serialize;
use xxhash_rust::xxh3::Xxh3Default;

/// The hash of a value's JSON. Mappings must be sorted, as `serde_json::Map` is.
pub(crate) fn of(value: &impl Serialize) -> u64 {
    struct Hash(Xxh3Default);
    impl io::Write for Hash {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hash = Hash(Xxh3Default::new());
    serde_json::to_writer(&mut hash, value).expect("the value is JSON, and hashing never fails");
    hash.0.digest()
}
