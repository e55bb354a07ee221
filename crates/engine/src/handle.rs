//! Handles: small copyable identifiers of tables and indexes.
//!
//! A handle holds no data. It carries its types and the stamp of its [`Builder`](crate::Builder), so using
//! it with another engine panics instead of reading an unrelated table.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

/// A key of a table or an index. Implemented for all eligible types.
///
/// `Ord`, `Hash` and `Eq` must be consistent, and `Clone` should be cheap: keys are cloned into results.
pub trait Key: Ord + Hash + Clone + fmt::Debug + Send + Sync + 'static {}
impl<T: Ord + Hash + Clone + fmt::Debug + Send + Sync + 'static> Key for T {}

/// A value of a table. Implemented for all eligible types.
///
/// `PartialEq` decides whether a row changed: a value that is not equal to itself (it contains a NaN)
/// counts as changed on every run.
pub trait Value: PartialEq + Send + Sync + 'static {}
impl<T: PartialEq + Send + Sync + 'static> Value for T {}

/// A [`Table`] without its types.
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

/// A table of rows: values of type `V` by keys of type `K`.
pub struct Table<K, V> {
    pub(crate) id: TableId,
    types: PhantomData<fn() -> (K, V)>,
}

/// An index of a `Table<K, V>`: groups of rows by keys of type `I`.
pub struct Index<K, V, I> {
    pub(crate) table: Table<K, V>,
    /// The part number within the table: 1 for its first index.
    pub(crate) part: u8,
    types: PhantomData<fn() -> I>,
}

/// The keys that a stage runs for: the row keys of a [`Table`], or the group keys of an [`Index`] (a group-by).
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

// Not derived: derives would require K, V and I to implement the same traits.
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
