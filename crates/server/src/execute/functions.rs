//! Which versatile functions there are for which kind of database.

use cabinet::name::Kind;

/// Whether a kind of database has a function; an engine from elsewhere counts as a hash.
pub(super) fn exists(name: &[u8], kind: Option<Kind>) -> bool {
    use Kind::{Fixed, Hash, MemoryHash, MemoryTree, Table, Tree};
    let kind = kind.unwrap_or(Hash);
    match name {
        b"put" | b"putkeep" | b"putcat" | b"out" | b"get" | b"getpart" => true,
        b"putlist" | b"outlist" | b"getlist" => true,
        b"iterinit" | b"iternext" | b"regex" => true,
        b"sync" | b"optimize" | b"vanish" => true,
        wire::replication::FUNCTION => true,
        b"error" => !matches!(kind, MemoryHash | MemoryTree),
        b"defrag" | b"cacheclear" => matches!(kind, Hash | Tree | Table),
        b"range" => matches!(kind, Tree | MemoryTree | Fixed),
        b"putdup" | b"putdupback" => kind == Tree,
        b"setindex" | b"search" | b"metasearch" | b"genuid" => kind == Table,
        b"promote" => true,
        _ => false,
    }
}
