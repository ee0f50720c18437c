//! Kinds of database.

use std::path::Path;

/// Kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `*`: on-memory hash.
    MemoryHash,
    /// `+`: on-memory ordered map.
    MemoryTree,
    /// `.tch`, `.hdb`: hash.
    Hash,
    /// `.tcb`, `.bdb`: B+ tree.
    Tree,
    /// `.tcf`, `.fdb`: array of fixed-length values.
    Fixed,
    /// `.tct`, `.tdb`: table.
    Table,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::MemoryHash, Self::MemoryTree, Self::Hash, Self::Tree, Self::Fixed, Self::Table];

    /// Returns the kind that a path names, if any.
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.to_str() {
            Some("*") => return Some(Self::MemoryHash),
            Some("+") => return Some(Self::MemoryTree),
            _ => {}
        }
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "tch" | "hdb" => Some(Self::Hash),
            "tcb" | "bdb" => Some(Self::Tree),
            "tcf" | "fdb" => Some(Self::Fixed),
            "tct" | "tdb" => Some(Self::Table),
            _ => None,
        }
    }

    /// Returns the name of the kind in messages.
    pub fn title(self) -> &'static str {
        match self {
            Self::MemoryHash => "on-memory hash",
            Self::MemoryTree => "on-memory tree",
            Self::Hash => "hash",
            Self::Tree => "B+ tree",
            Self::Fixed => "fixed-length",
            Self::Table => "table",
        }
    }

    /// Returns the kind with a [title](Self::title).
    pub fn of_title(title: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.title() == title)
    }

    /// Returns its name with an article, for sentences.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::MemoryHash => "an on-memory hash database",
            Self::MemoryTree => "an on-memory tree database",
            Self::Hash => "a hash database",
            Self::Tree => "a B+ tree database",
            Self::Fixed => "a fixed-length database",
            Self::Table => "a table",
        }
    }

    /// Returns whether the kind keeps nothing on the disk.
    pub fn is_on_memory(self) -> bool {
        matches!(self, Self::MemoryHash | Self::MemoryTree)
    }
}
