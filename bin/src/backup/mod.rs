//! Backups: repositories of copies of a database, in which each backup takes only the space of its
//! new files.
//!
//! `docs/formats/backup.md` draws the files, `docs/backup.md` explains their use.
//!
//! A copy of a database is made in constant time ([`source`]): a hard link to each file of its log.
//! Such files never change again, so those already in the [`repository`] are not copied. A new file
//! is copied to a temporary name, synced and renamed. The [`catalog`] is written last and completes
//! the backup. So a kill at any moment leaves the previous backups intact.

mod catalog;
mod create;
mod repository;
mod restore;
mod source;
mod sums;

pub(crate) use catalog::Catalog;
pub(crate) use create::{CreateOptions, create};
pub(crate) use repository::{REMOVE_CATALOG, Repository, Verified};
pub(crate) use restore::{Restore, Until};
pub(crate) use source::Source;
