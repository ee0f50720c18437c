//! What the functions of `misc` are: which kinds of database have them, which commands they stand
//! for, and which of them only read.

use crate::admin::command_mask::Command;
use cabinet::name::Kind;
use cabinet::table::SearchRequest;
use wire::binary::{Function, Strings};

/// Returns whether a kind of database has a function; an engine from elsewhere counts as a hash.
pub(super) fn exists(function: Function<'_>, kind: Option<Kind>) -> bool {
    use Kind::{Fixed, Hash, MemoryHash, MemoryTree, Table, Tree};
    let kind = kind.unwrap_or(Hash);
    match function {
        Function::Put
        | Function::PutKeep
        | Function::PutCat
        | Function::PutList
        | Function::Out
        | Function::OutList
        | Function::Get
        | Function::GetList
        | Function::GetPart
        | Function::IterInit
        | Function::IterNext
        | Function::Regex
        | Function::Sync
        | Function::Optimize
        | Function::Vanish
        | Function::Promote
        | Function::Check
        | Function::Replication => true,
        Function::Error => !matches!(kind, MemoryHash | MemoryTree),
        Function::Defragment | Function::ClearCache => matches!(kind, Hash | Tree | Table),
        Function::Range => matches!(kind, Tree | MemoryTree | Fixed),
        Function::PutDuplicate | Function::PutDuplicateBack => kind == Tree,
        Function::SetIndex | Function::Search | Function::MetaSearch | Function::GenerateUid => {
            kind == Table
        }
        Function::Unknown(_) => false,
    }
}

/// Returns the command that does the same as a function: a mask that refuses the one refuses the
/// other. A function that no command stands for is a call of `misc` alone.
pub(super) fn command<'a>(
    function: Function<'_>,
    mut arguments: impl Iterator<Item = &'a [u8]>,
) -> Option<Command> {
    Some(match function {
        Function::Put
        | Function::PutList
        | Function::PutDuplicate
        | Function::PutDuplicateBack
        | Function::GenerateUid => Command::Put,
        Function::PutKeep => Command::PutKeep,
        Function::PutCat => Command::PutCat,
        Function::Out | Function::OutList => Command::Out,
        Function::Search | Function::MetaSearch if SearchRequest::parse(&mut arguments).out => {
            Command::Out
        }
        Function::Get | Function::GetPart => Command::Get,
        Function::GetList
        | Function::Search
        | Function::MetaSearch
        | Function::Regex
        | Function::Range => Command::GetMany,
        Function::IterInit => Command::IterInit,
        Function::IterNext => Command::IterNext,
        Function::Sync => Command::Sync,
        Function::Optimize | Function::Defragment | Function::SetIndex | Function::Check => {
            Command::Optimize
        }
        Function::Vanish => Command::Vanish,
        Function::Promote => Command::SetMaster,
        Function::Error | Function::ClearCache | Function::Replication | Function::Unknown(_) => {
            return None;
        }
    })
}

/// Returns whether a call changes no record. Tokyo Tyrant logs such calls too.
pub(super) fn only_reads(function: Function<'_>, arguments: Strings<'_>) -> bool {
    match function {
        Function::Get
        | Function::GetList
        | Function::GetPart
        | Function::IterInit
        | Function::IterNext
        | Function::Regex
        | Function::Range
        | Function::Error
        | Function::Defragment
        | Function::ClearCache
        | Function::Check => true,
        Function::Search | Function::MetaSearch => !SearchRequest::parse(arguments.iter()).out,
        Function::Put
        | Function::PutKeep
        | Function::PutCat
        | Function::PutDuplicate
        | Function::PutDuplicateBack
        | Function::PutList
        | Function::Out
        | Function::OutList
        | Function::Sync
        | Function::Optimize
        | Function::Vanish
        | Function::SetIndex
        | Function::GenerateUid
        | Function::Promote
        | Function::Replication
        | Function::Unknown(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::command_mask::{CommandMask, Protocol};

    fn refused(expression: &str) -> Vec<Function<'static>> {
        let mut mask: CommandMask = expression.parse().expect("known names");
        // That `misc` is a write is not asked here.
        mask.unmask("misc".parse().expect("a known name"));
        let refuses = |function: &Function<'_>| {
            let command = command(*function, std::iter::empty());
            command.is_some_and(|command| mask.refuses(command, Protocol::Binary))
        };
        Function::ALL.iter().copied().filter(refuses).collect()
    }

    #[test]
    fn a_mask_of_a_command_refuses_the_functions_that_do_the_same() {
        assert_eq!(refused("vanish"), [Function::Vanish]);
        assert_eq!(refused("out"), [Function::Out, Function::OutList]);
        assert_eq!(refused("setmst"), [Function::Promote]);
        assert_eq!(
            refused("optimize"),
            [Function::Optimize, Function::Defragment, Function::SetIndex, Function::Check]
        );
        let search = [&b"addcond\0a\0STREQ\0b"[..], b"out"];
        assert_eq!(command(Function::Search, search.into_iter()), Some(Command::Out));
        let reading = search[..1].iter().copied();
        assert_eq!(command(Function::Search, reading), Some(Command::GetMany));
    }

    #[test]
    fn every_function_but_three_is_of_a_class_of_commands() {
        let known = refused("allread,allwrite,allmanage");
        let others = Function::ALL.iter().filter(|function| !known.contains(function));
        let others: Vec<_> = others.copied().collect();
        assert_eq!(others, [Function::Error, Function::ClearCache, Function::Replication]);
        let kinds = [Kind::Hash, Kind::Tree, Kind::Fixed, Kind::Table];
        let exists =
            |function: &Function<'_>| kinds.iter().any(|kind| exists(*function, Some(*kind)));
        assert!(Function::ALL.iter().all(exists));
    }
}
