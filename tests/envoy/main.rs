//! Real requests through a real Envoy run by `sesame local`: one file per subject.
//!
//! Every test starts its own Sesame with its own folder and loopback addresses, so tests can run in parallel. The
//! process is stopped when the test ends, even if it fails. The Gateway API defines the expected responses.

#![allow(clippy::print_stderr, reason = "a failing test shows Sesame's output")]

mod auth;
mod authorization;
mod backend_tls;
mod backends;
mod changes;
mod client_certificates;
mod client_validation;
mod configuration;
mod connection_lifetimes;
mod connections;
mod containment;
mod cors;
mod datagrams;
mod endpoints;
mod expressions;
mod files;
mod grpc;
mod harness;
mod headers;
mod hostnames;
mod http_proxy;
mod ingress;
mod listener_filters;
mod listener_sets;
mod listener_settings;
mod mirrors;
mod on_demand;
mod oversized;
mod paths;
mod pods;
mod proxy_clients;
mod proxy_cookies;
mod proxy_defaults;
mod proxy_fallback;
mod proxy_hosts;
mod proxy_paths;
mod proxy_redirects;
mod proxy_services;
mod proxy_tcp;
mod proxy_tokens;
mod rates;
mod redirects;
mod rewrites;
mod routing;
mod sessions;
mod shards;
mod status;
mod supervisor;
mod telemetry;
mod timeouts;
mod tls;
mod traffic_policies;
mod xbackends;
