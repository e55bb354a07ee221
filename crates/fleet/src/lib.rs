//! Running Envoys.
