//! Keyed tables, staged pure transforms, recorded reads, one commit at a time.
//!
//! In come changes of *input tables*, gathered in a [`Batch`]. Out goes a [`Commit`]: what changed in
//! every table, inputs and derived ones, under one revision. In between, transforms derive tables from
//! tables. The engine must not know what the rows mean: neither Kubernetes nor Envoy is named here.
//!
//! # The promise
//!
//! *The cost of a commit follows the change and its readers, never the size of a table.* It holds because
//! a transform can only see the world through its [`Reader`], which
//!
//! - records what was read, so that a later change finds its readers by walking edges, and
//! - has no scan: rows are reached by key or through a declared [`Index`]. What cannot be expressed
//!   cannot be slow.
//!
//! And *the result does not depend on history*: after any sequence of commits every table equals the one
//! a fresh engine would hold, fed with the final inputs in any order. The tests hold the engine to both.
//!
//! # How a commit goes
//!
//! 1. The batch is applied to the input tables. An upsert equal to what is there is no change.
//! 2. A changed table settles: its indexes follow, and every reader of what really changed is marked.
//!    What counts as a change depends on how it was read:
//!
//!    | read | runs again when |
//!    |---|---|
//!    | [`Reader::get`] | the row's value changed, it appeared or went away |
//!    | [`Reader::exists`] | the row appeared or went away |
//!    | [`Reader::by`] | a row joined or left the group, or a member's value changed |
//!    | [`Reader::keys`] | a row joined or left the group |
//!    | [`Reader::count`] | the group's size differs from what it was before the commit |
//!
//! 3. The stages run in the order of their declaration, each marked key exactly once. A key of the source
//!    is also marked when it appears and, where the source is a table, when its row changes. When it goes
//!    away, its outputs and its reads go with it. What a stage puts out is compared with what it put out
//!    before (the cut-off), then its table settles like an input table: step 2.
//! 4. Keys that neither hold a row nor are read by anybody are forgotten.
//!
//! A stage sees only tables declared before it, so everything it reads is final: there are no glitches,
//! no second runs and no cycles.
//!
//! # Inside
//!
//! Every key is interned once per table or index and named by a slot (`slots`); a slot that may be read
//! is a *subject*. A stage's node has the slot of the source key it runs for. The reads are edges between
//! the two, in one arena, linked into a list per subject and a list per node (`edges`), so that
//! replacing a node's reads costs as much as there are reads, however many others read the same subject.
//! Slots are given back only at the end of a commit; within it a slot means one key.
//!
//! User keys are hashed with the randomly seeded hasher of std because names come from untrusted
//! objects; internal ids are not, and use a faster one. Nothing observable depends on either's order.
//!
//! # Example
//!
//! ```
//! use sesame_engine::{Batch, Builder, Change, Index, Table};
//!
//! let mut b = Builder::new();
//! // Services by name, with their port; routes by name, with the service they name.
//! let services: Table<String, u16> = b.input("services");
//! let routes: Table<String, String> = b.input("routes");
//! let by_service: Index<String, String, String> =
//!     b.index(routes, "by_service", |_name, service| vec![service.clone()]);
//!
//! let backends: Table<String, u16> = b.derive("backends", routes, move |reader, route| {
//!     let service = reader.get(routes, route)?;
//!     reader.get(services, &service).map(|port| *port)
//! });
//! // One row for every service that some route names.
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
//! // The service changes: only the route that read it runs, and nobody counts again.
//! let mut batch = Batch::new();
//! batch.upsert(services, "web".to_owned(), 8080);
//! let commit = engine.commit(batch);
//! assert_eq!(commit.ran(backends), ["a"]);
//! assert!(commit.ran(uses).is_empty());
//! assert_eq!(commit.changes(backends), [("a".to_owned(), Change::Upsert(8080.into()))]);
//! ```

mod batch;
mod builder;
mod claims;
mod commit;
mod edges;
mod engine;
mod explain;
mod handle;
mod index;
mod members;
mod reader;
mod room;
mod slots;
mod stage;
mod table;

pub use batch::Batch;
pub use builder::Builder;
pub use commit::{Change, Commit};
pub use engine::Engine;
pub use explain::{Explain, Footprint, Read, ReadKind};
pub use handle::{Index, Key, Keys, Table, TableId, Value};
pub use reader::Reader;
