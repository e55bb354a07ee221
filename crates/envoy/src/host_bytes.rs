//! Encoded virtual hosts.

use std::sync::Arc;

use prost::bytes::Bytes;

/// The bytes of a `VirtualHost`, in pieces. A host with many routes shares the pieces with the rows of its parts, so a
/// changed route costs only its own part, and no part is held twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBytes(Arc<[Bytes]>);

impl HostBytes {
    /// The pieces, in order.
    pub(crate) fn pieces(&self) -> &[Bytes] {
        &self.0
    }

    /// The length of all pieces, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// All pieces, copied into one.
    pub(crate) fn concat(&self) -> Vec<u8> {
        self.0.concat()
    }
}

impl From<Vec<u8>> for HostBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes.into_boxed_slice()).into()
    }
}

impl From<Bytes> for HostBytes {
    fn from(bytes: Bytes) -> Self {
        Self([bytes].into())
    }
}

impl FromIterator<Bytes> for HostBytes {
    fn from_iter<T: IntoIterator<Item = Bytes>>(pieces: T) -> Self {
        Self(pieces.into_iter().collect())
    }
}
