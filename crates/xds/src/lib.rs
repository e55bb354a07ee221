//! A delta aggregated discovery server.
