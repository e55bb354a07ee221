//! HTTPRoutes: what they say (`rules`, made of `matches`, `filters`, `policy`, `backends` and `split`), and who answers for a
//! host (`virtual_host`).

pub(crate) mod backends;
mod filters;
mod matches;
mod policy;
pub mod rules;
mod split;
pub mod virtual_host;
