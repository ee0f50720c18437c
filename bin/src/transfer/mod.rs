//! Moving records between databases and files: what `import`, `export` and `serve --import` share.

pub(crate) mod beside;
pub(crate) mod legacy;
pub(crate) mod progress;
pub(crate) mod target;
pub(crate) mod text;

use cabinet::name::Kind;

/// What a kind of database is called.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::MemoryHash => "on-memory hash",
        Kind::MemoryTree => "on-memory tree",
        Kind::Hash => "hash",
        Kind::Tree => "B+ tree",
        Kind::Fixed => "fixed-length",
        Kind::Table => "table",
    }
}
