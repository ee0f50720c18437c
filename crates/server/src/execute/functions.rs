//! Versatile functions: those of each kind of database, and the commands that they stand for.

use crate::mask::Command;
use crate::scrub;
use cabinet::name::Kind;
use cabinet::table::SearchRequest;

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
        b"promote" | scrub::FUNCTION => true,
        _ => false,
    }
}

/// Returns the command that does the same as a function: a mask that refuses the one refuses the
/// other. A function that no command stands for is a call of `misc` alone.
pub(super) fn command<'a>(
    name: &[u8],
    mut arguments: impl Iterator<Item = &'a [u8]>,
) -> Option<Command> {
    Some(match name {
        b"put" | b"putlist" | b"putdup" | b"putdupback" | b"genuid" => Command::Put,
        b"putkeep" => Command::PutKeep,
        b"putcat" => Command::PutCat,
        b"out" | b"outlist" => Command::Out,
        b"search" | b"metasearch" if SearchRequest::parse(&mut arguments).out => Command::Out,
        b"get" | b"getpart" => Command::Get,
        b"getlist" | b"search" | b"metasearch" | b"regex" | b"range" => Command::GetMany,
        b"iterinit" => Command::IterInit,
        b"iternext" => Command::IterNext,
        b"sync" => Command::Sync,
        b"optimize" | b"defrag" | b"setindex" | scrub::FUNCTION => Command::Optimize,
        b"vanish" => Command::Vanish,
        b"promote" => Command::SetMaster,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::{Mask, Protocol};

    /// Every function there is.
    const NAMES: [&[u8]; 28] = [
        b"put",
        b"putkeep",
        b"putcat",
        b"out",
        b"get",
        b"getpart",
        b"putlist",
        b"outlist",
        b"getlist",
        b"iterinit",
        b"iternext",
        b"regex",
        b"sync",
        b"optimize",
        b"vanish",
        b"error",
        b"defrag",
        b"cacheclear",
        b"range",
        b"putdup",
        b"putdupback",
        b"setindex",
        b"search",
        b"metasearch",
        b"genuid",
        b"promote",
        scrub::FUNCTION,
        wire::replication::FUNCTION,
    ];

    fn refused(expression: &str) -> Vec<&'static [u8]> {
        let mut mask: Mask = expression.parse().expect("known names");
        // That `misc` is a write is not asked here.
        mask.unmask("misc".parse().expect("a known name"));
        let refuses = |name: &&[u8]| {
            let command = command(name, std::iter::empty());
            command.is_some_and(|command| mask.refuses(command, Protocol::Binary))
        };
        NAMES.into_iter().filter(refuses).collect()
    }

    #[test]
    fn a_mask_of_a_command_refuses_the_functions_that_do_the_same() {
        assert_eq!(refused("vanish"), [b"vanish"]);
        assert_eq!(refused("out"), [&b"out"[..], b"outlist"]);
        assert_eq!(refused("setmst"), [b"promote"]);
        assert_eq!(
            refused("optimize"),
            [&b"optimize"[..], b"defrag", b"setindex", scrub::FUNCTION]
        );
        let search = [&b"addcond\0a\0STREQ\0b"[..], b"out"];
        assert_eq!(command(b"search", search.into_iter()), Some(Command::Out));
        assert_eq!(command(b"search", search[..1].iter().copied()), Some(Command::GetMany));
    }

    #[test]
    fn every_function_but_three_is_of_a_class_of_commands() {
        let known = refused("allread,allwrite,allmanage");
        let others: Vec<_> = NAMES.into_iter().filter(|name| !known.contains(name)).collect();
        assert_eq!(others, [&b"error"[..], b"cacheclear", wire::replication::FUNCTION]);
        let kinds = [Kind::Hash, Kind::Tree, Kind::Fixed, Kind::Table];
        let exists = |name: &&[u8]| kinds.iter().any(|kind| exists(name, Some(*kind)));
        assert!(NAMES.iter().all(exists));
    }
}
