//! Handles: small copyable names for tables and indexes.
//!
//! They come from a [`Builder`](crate::Builder) and go to whoever reads or writes. A handle holds no data
//! and must not know where the data is; it carries the types, and the stamp of the builder that made it,
//! so that a handle used on another engine is found out instead of naming some other table there.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

/// What a key of a table or an index must be. Implemented for every type that qualifies.
///
/// `Ord`, `Hash` and `Eq` must agree with each other, and `Clone` should be cheap: keys are cloned into
/// results.
pub trait Key: Ord + Hash + Clone + fmt::Debug + Send + Sync + 'static {}
impl<T: Ord + Hash + Clone + fmt::Debug + Send + Sync + 'static> Key for T {}

/// What a value of a table must be. Implemented for every type that qualifies.
///
/// `PartialEq` decides whether something changed: a value that is not equal to itself (a NaN inside)
/// counts as changed whenever it is put out again.
pub trait Value: PartialEq + Send + Sync + 'static {}
impl<T: PartialEq + Send + Sync + 'static> Value for T {}

/// A table without its types: which one, of which builder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableId {
    pub(crate) stamp: u32,
    pub(crate) table: u16,
    pub(crate) input: bool,
}

impl<K, V> From<Table<K, V>> for TableId {
    fn from(table: Table<K, V>) -> Self {
        table.id
    }
}

/// A table of `V` by `K`.
pub struct Table<K, V> {
    pub(crate) id: TableId,
    types: PhantomData<fn() -> (K, V)>,
}

/// An index of a `Table<K, V>`: for every `I`, the rows that named it.
pub struct Index<K, V, I> {
    pub(crate) table: Table<K, V>,
    /// Which part of the table: 1 for its first index.
    pub(crate) part: u8,
    types: PhantomData<fn() -> I>,
}

/// The keys a stage runs for: those of a [`Table`], or those of an [`Index`] that have a member
/// (group by).
pub struct Keys<K> {
    pub(crate) id: TableId,
    pub(crate) part: u8,
    types: PhantomData<fn() -> K>,
}

impl<K, V> Table<K, V> {
    pub(crate) fn new(id: TableId) -> Self {
        Table {
            id,
            types: PhantomData,
        }
    }
}

impl<K, V, I> Index<K, V, I> {
    pub(crate) fn new(table: Table<K, V>, part: u8) -> Self {
        Index {
            table,
            part,
            types: PhantomData,
        }
    }
}

impl<K, V> From<Table<K, V>> for Keys<K> {
    fn from(table: Table<K, V>) -> Self {
        Keys {
            id: table.id,
            part: 0,
            types: PhantomData,
        }
    }
}

impl<K, V, I> From<Index<K, V, I>> for Keys<I> {
    fn from(index: Index<K, V, I>) -> Self {
        Keys {
            id: index.table.id,
            part: index.part,
            types: PhantomData,
        }
    }
}

// By hand, because derives would ask the same of K, V and I, which are not in here.
impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V> Copy for Table<K, V> {}
impl<K, V, I> Clone for Index<K, V, I> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V, I> Copy for Index<K, V, I> {}
impl<K> Clone for Keys<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Keys<K> {}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({})", self.id.table)
    }
}
impl<K, V, I> fmt::Debug for Index<K, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index({}.{})", self.table.id.table, self.part)
    }
}
impl<K> fmt::Debug for Keys<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({}.{})", self.id.table, self.part)
    }
}
