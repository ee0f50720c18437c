//! Entity tags: versions of records, in HTTP's form.

use cabinet::Version;
use cabinet::name::Kind;
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes the entity tags of a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntityTags {
    /// Start time, which is part of the tags of a database in memory: its versions begin again with
    /// each start.
    start_us: Option<u64>,
}

impl EntityTags {
    pub(crate) fn new(kind: Option<Kind>) -> Self {
        let forgets = matches!(kind, Some(Kind::MemoryHash | Kind::MemoryTree));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        Self { start_us: forgets.then_some(now_us) }
    }

    /// Returns the strong entity tag of a version, in quotes.
    pub(crate) fn of(self, version: Version) -> String {
        match self.start_us {
            None => format!("\"{version:x}\""),
            Some(start_us) => format!("\"{version:x}-{start_us:x}\""),
        }
    }
}
