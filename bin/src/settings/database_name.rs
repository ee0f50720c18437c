//! Name of a database as a setting: the one part of it that may be a path.

use crate::cluster;
use std::convert::Infallible;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Name of a database: a path, `*` or `+` with optional tuning after a `#`, or one in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct DatabaseName(pub(crate) String);

impl DatabaseName {
    /// Returns the path, if the database is in files of this machine.
    pub(crate) fn path(&self) -> Option<&Path> {
        let path = self.split('#').next().unwrap_or_default();
        let is_path = !matches!(path, "" | "*" | "+") && !cluster::is_cluster_name(self);
        is_path.then(|| Path::new(path))
    }

    /// Replaces the path by the result of `place`.
    pub(super) fn place(&mut self, place: &mut dyn FnMut(&Path) -> PathBuf) {
        if let Some(path) = self.path() {
            let (placed, tuning) = (place(path), &self[path.as_os_str().len()..]);
            self.0 = format!("{}{tuning}", placed.display());
        }
    }
}

impl Deref for DatabaseName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl FromStr for DatabaseName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_database_is_placed_without_its_tuning() {
        let placed = |name: &str| {
            let mut name = DatabaseName(name.to_owned());
            name.place(&mut |path| Path::new("/folder").join(path));
            name.0
        };
        assert_eq!(placed("a.tch#opts=l#mode=w"), "/folder/a.tch#opts=l#mode=w");
        assert_eq!(placed("/b/a.tch"), "/b/a.tch");
        for name in ["*#capnum=5", "+", "cassandra://host/keyspace/a.tch"] {
            assert_eq!(placed(name), name);
        }
    }
}
