//! What the tests share: a Sesame of their own, objects, questions.
//!
//! - [`binary`]: the `sesame` to test, built if need be.
//! - [`dice`]: random numbers, the same in every run.
//! - [`folder`]: objects in files, addresses that nobody else has.
//! - [`sesame`]: `sesame local` as a child process, its events and statuses.
//! - [`objects`]: objects as text.
//! - [`questions`]: requests and the shortest form of their answers.

mod binary;
mod dice;
mod folder;
mod objects;
mod process;
mod questions;
mod sesame;

pub(crate) use self::dice::Dice;
pub(crate) use self::folder::{Folder, new_ip};
pub(crate) use self::objects::{
    HTTP, Https, at, backend, backends, born, certificate, gateway, grant, https, namespace, on,
    route, service, to,
};
pub(crate) use self::process::{children, ended, is_running, send};
pub(crate) use self::questions::{
    Question, assert_share, becomes, check, check_asks, eventually, eventually_within, listening,
    shares,
};
pub(crate) use self::sesame::{Condition, Sesame};
