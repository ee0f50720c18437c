//! On-memory engines.
