//! Tokyo Cabinet's own files are read, whatever state they are in, and never written to.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod contents;
mod damaged;
mod fixtures;
