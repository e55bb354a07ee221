//! Keyed tables, staged transforms, recorded reads, one commit at a time.
