//! Client paths: checks the paths that clients name for `copy` and `restore`.

use cabinet::{Error, Result};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Paths that clients may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientPaths {
    /// None: the server refuses `copy` to a path and `restore`.
    #[default]
    None,
    /// Paths in this folder. Relative paths are relative to it.
    Within(PathBuf),
    /// All paths that the server's process may use, as with Tokyo Tyrant.
    Any,
}

impl ClientPaths {
    /// Returns the path of a file to be made, if the client may name it.
    pub(crate) fn new_path(&self, operation: &'static str, given: &Path) -> Result<PathBuf> {
        self.check(operation, given, |top| {
            let wanted = top.join(given);
            // A path that ends in `..` has no name, and would be the folder above.
            let (Some(parent), Some(name)) = (wanted.parent(), wanted.file_name()) else {
                return Err(ErrorKind::InvalidFilename.into());
            };
            let path = fs::canonicalize(parent)?.join(name);
            let is_link = fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
            if is_link || path == top { Err(ErrorKind::AlreadyExists.into()) } else { Ok(path) }
        })
    }

    /// Returns the path of a present file, if the client may name it.
    pub(crate) fn present_path(&self, operation: &'static str, given: &Path) -> Result<PathBuf> {
        self.check(operation, given, |top| fs::canonicalize(top.join(given)))
    }

    /// Returns the path that `resolve` makes without symbolic links, if it is in the folder.
    fn check(
        &self,
        operation: &'static str,
        given: &Path,
        resolve: impl FnOnce(&Path) -> io::Result<PathBuf>,
    ) -> Result<PathBuf> {
        let failed = |source| {
            tracing::warn!("{operation} {} refused: {source}", given.display());
            Error::Io { operation, path: given.to_owned(), source }
        };
        let denied = |what: String| failed(io::Error::new(ErrorKind::PermissionDenied, what));
        match self {
            Self::Any => Ok(given.to_owned()),
            Self::None => {
                Err(denied("clients may name no path: start the server with --copy-dir DIR".into()))
            }
            Self::Within(folder) => {
                let top = fs::canonicalize(folder).map_err(failed)?;
                let path = resolve(&top).map_err(failed)?;
                if path.starts_with(&top) {
                    return Ok(path);
                }
                Err(denied(format!("name a path in {}, the folder of --copy-dir", top.display())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn clients_may_name_only_paths_in_their_folder() {
        let outside = tempfile::tempdir().expect("a folder");
        let top = outside.path().join("top");
        for folder in ["top/in", "other/log"] {
            fs::create_dir_all(outside.path().join(folder)).expect("a folder");
        }
        symlink(outside.path().join("other"), top.join("out")).expect("a link");
        symlink(outside.path().join("missing"), top.join("dangling")).expect("a link");
        symlink("in", top.join("within")).expect("a link");
        let paths = ClientPaths::Within(top.clone());
        let top = fs::canonicalize(&top).expect("the folder");
        let new = |given: &Path| paths.new_path("copy to", given).ok();
        let present = |given: &Path| paths.present_path("restore", given).ok();
        assert_eq!(new(Path::new("a.tch")), Some(top.join("a.tch")));
        assert_eq!(new(Path::new("in/a.tch")), Some(top.join("in/a.tch")));
        assert_eq!(new(Path::new("within/../a.tch")), Some(top.join("a.tch")));
        assert_eq!(new(Path::new("within/a.tch")), Some(top.join("in/a.tch")));
        assert_eq!(new(&top.join("in/../b.tch")), Some(top.join("b.tch")));
        assert_eq!(present(Path::new("within")), Some(top.join("in")));
        for given in [
            "..",
            "../a.tch",
            "in/..",
            "in/../../a.tch",
            "out/a.tch",
            "out/log/../a.tch",
            "/a.tch",
            "dangling",
            "missing/a.tch",
            "",
            "../topping/a.tch",
        ] {
            assert_eq!(new(Path::new(given)), None, "{given}");
        }
        assert_eq!(new(&outside.path().join("a.tch")), None);
        for given in ["..", "../other", "out", "out/log", "dangling", "/", "missing"] {
            assert_eq!(present(Path::new(given)), None, "{given}");
        }
    }

    #[test]
    fn without_a_folder_all_paths_are_refused_or_all_are_allowed() {
        let given = Path::new("../a.tch");
        assert!(ClientPaths::None.new_path("copy to", given).is_err());
        assert!(ClientPaths::None.present_path("restore", given).is_err());
        assert_eq!(ClientPaths::Any.new_path("copy to", given).expect("any"), given);
        assert_eq!(ClientPaths::Any.present_path("restore", given).expect("any"), given);
    }
}
