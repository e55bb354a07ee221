//! HTTPProxies in, routes and statuses out.

mod hosts;
mod includes;
mod routes;
mod tcp;
