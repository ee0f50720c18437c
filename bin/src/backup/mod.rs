//! Backups: repositories of copies of a database, of which each takes only the room of what is new.
//!
//! `docs/formats/backup.md` draws the files, `docs/backup.md` says how to use them.
//!
//! A copy of a database is made in constant time ([`source`]): a second name for each file of its
//! log. Such files do not change any more, so those that the [`repository`] has already are not
//! copied again. What is copied goes to a temporary name, is synced and renamed, and a [`catalog`],
//! which is written last, makes a backup of it. So whatever is killed leaves the backups before it.

mod catalog;
mod create;
mod interrupt;
mod repository;
mod restore;
mod source;
mod sums;
mod time;

pub(crate) use create::{Making, create};
pub(crate) use repository::Repository;
pub(crate) use restore::{Restore, Until};
pub(crate) use source::Source;
pub(crate) use time::{moment, show};
