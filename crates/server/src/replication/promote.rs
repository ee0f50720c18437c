//! Promotion of a replica: a file beside its position (`.promoted`) names the master that it no
//! longer follows. Without the file a restart with the same options would follow that master again.

use super::follower::Master;
use super::position::beside;
use crate::durable_file;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

/// A replica that has become a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Promoted {
    /// Its former master.
    pub(crate) master: Master,
    /// Time stamp of the last executed operation, in microseconds since 1970.
    pub(crate) position_us: u64,
}

fn path(position: &Path) -> PathBuf {
    beside(position, ".promoted")
}

/// Notes durably that `master` is no longer followed.
pub(super) fn remember(position: &Path, master: &Master) -> Result<()> {
    durable_file::replace(&path(position), format!("{master}\n").as_bytes())
}

/// Removes the note, as a master is followed again.
pub(super) fn forget(position: &Path) {
    let path = path(position);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!("cannot remove {}: {error}", path.display());
        }
        _ => {}
    }
}

/// Returns whether the server was promoted while it followed `master`.
pub(super) fn was_promoted(position: &Path, master: &Master) -> bool {
    let path = path(position);
    let remembered = std::fs::read_to_string(&path).unwrap_or_default();
    let was = remembered.trim_end() == master.to_string();
    if was {
        tracing::warn!(
            "not following {master}: this server was promoted. To follow it again, remove {} and \
             restart, or send setmst",
            path.display()
        );
    }
    was
}
