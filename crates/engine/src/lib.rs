//! Keyed tables, pure transforms in stages, recorded reads, one commit at a time.
//!
//! Input: changes to *input tables*, collected in a [`Batch`]. Output: a [`Commit`] with the changes to all
//! tables, input and derived, under one revision. Transforms derive tables from tables. The engine is
//! generic: it must not depend on Kubernetes or Envoy.
//!
//! # Guarantees
//!
//! *The cost of a commit is proportional to the change and its readers, never to the size of a table.* A
//! transform reads tables only through its [`Reader`], which
//!
//! - records each read, so that a later change finds its readers by following edges (a change to the source's row runs
//!   its stage in any case), and
//! - has no scan: rows are read by key or through a declared [`Index`].
//!
//! *The result does not depend on history*: after any sequence of commits, all tables equal those of a new
//! engine given the final inputs in any order. Tests check both guarantees.
//!
//! # Steps of a commit
//!
//! 1. The engine applies the batch to the input tables. Upserting an equal value changes nothing.
//! 2. A changed table settles: the engine updates its indexes and marks every reader of a change. What
//!    counts as a change depends on the kind of read:
//!
//!    | read | runs again when |
//!    |---|---|
//!    | [`Reader::get`] | the row's value changed, or the row was added or removed |
//!    | [`Reader::exists`] | the row was added or removed |
//!    | [`Reader::by`] | a row joined or left the group, or a member's value changed |
//!    | [`Reader::keys`] | a row joined or left the group |
//!    | [`Reader::count`] | the group's size changed |
//!
//! 3. The stages run in declaration order, once for each marked key. A key of the source is also marked when it is
//!    added and, if the source is a table, when its row changes. When a key is removed, its outputs and reads are
//!    removed too. The outputs are compared with the previous ones (early cut-off), then the stage's table settles like
//!    an input table: step 2.
//! 4. The engine releases keys that neither have a row nor are read.
//!
//! A stage reads only tables declared before it, so everything it reads is final: there are no glitches, no
//! repeated runs and no cycles.
//!
//! # Rows with several sources
//!
//! [`Builder::union`] joins tables with disjoint keys. [`Builder::union_keys`] gives a stage the keys of
//! several tables and indexes; the stage merges their rows with explicit precedence. Two sources for one row
//! of a union, or two source keys for one row of [`Builder::derive_many`], are a bug in the pipeline and
//! panic in debug builds.
//!
//! # Implementation
//!
//! Each key is interned once per table or index and identified by a slot (`slots`); a slot that can be read is a
//! *subject*. A stage has a *node* for each source key, with the same slot number. Reads, except reads of the source's
//! own row, are edges between nodes and subjects, in one arena, linked into a list per subject and a list per node
//! (`edges`). So replacing a node's reads costs O(its reads), however many other nodes read the same subjects. Slots
//! are freed only at the end of a commit, so a slot never changes its key within one.
//!
//! Keys come from untrusted objects, so they are hashed with std's randomly seeded hasher; internal IDs use a faster
//! hasher. No output depends on hash order.
//!
//! # Example
//!
//! ```
//! use sesame_engine::{Batch, Builder, Change, Index, Table};
//!
//! let mut b = Builder::new();
//! // Each service's port, by service name; each route's service, by route name.
//! let services: Table<String, u16> = b.input("services");
//! let routes: Table<String, String> = b.input("routes");
//! let by_service: Index<String, String, String> =
//!     b.index(routes, "by_service", |_name, service| vec![service.clone()]);
//!
//! let backends: Table<String, u16> = b.derive("backends", routes, move |reader, route| {
//!     let service = reader.get(routes, route)?;
//!     reader.get(services, &service).map(|port| *port)
//! });
//! // The number of routes to each service that has any.
//! let uses: Table<String, usize> = b.derive("uses", by_service, move |reader, service| {
//!     Some(reader.count(by_service, service))
//! });
//! let mut engine = b.build();
//!
//! let mut batch = Batch::new();
//! batch.upsert(services, "web".to_owned(), 80);
//! batch.upsert(routes, "a".to_owned(), "web".to_owned());
//! batch.upsert(routes, "b".to_owned(), "gone".to_owned());
//! let commit = engine.commit(batch);
//! assert_eq!(commit.ran(backends), ["a", "b"]);
//! assert_eq!(engine.get(backends, &"a".to_owned()).as_deref(), Some(&80));
//! assert_eq!(engine.len(uses), 2);
//!
//! // The service changes: only the route that read it runs again; the counts don't.
//! let mut batch = Batch::new();
//! batch.upsert(services, "web".to_owned(), 8080);
//! let commit = engine.commit(batch);
//! assert_eq!(commit.ran(backends), ["a"]);
//! assert!(commit.ran(uses).is_empty());
//! assert_eq!(commit.changes(backends), [("a".to_owned(), Change::Upsert(8080.into()))]);
//! ```

mod batch;
mod builder;
mod capacity;
mod commit;
mod edges;
mod emit;
mod engine;
mod explain;
mod handle;
mod index;
mod members;
mod reader;
mod slots;
mod stage;
mod table;
mod union;

pub use batch::Batch;
pub use builder::Builder;
pub use commit::{Change, Commit};
pub use engine::Engine;
pub use explain::{Explain, Footprint, Read, ReadKind};
pub use handle::{Index, Key, Keys, Table, TableId, Value};
pub use reader::Reader;
