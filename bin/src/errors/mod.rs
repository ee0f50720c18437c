//! Errors as an operator reads them: the cause, the name of the thing, and what to do.
//!
//! The libraries' own texts speak to those who program with them. This is the one place that
//! translates them for every command of every program.

mod holder;
mod nearest;
mod wrong_command_line;

pub(crate) use nearest::nearest;
pub(crate) use wrong_command_line::{
    is_wrong_command_line, name_on_disk, require, wrong_command_line,
};

use anyhow::{Context, Result, bail};
use cabinet::files::folder_of;
use cabinet::legacy::is_legacy;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use std::error::Error as StdError;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// First bytes of a Tokyo Cabinet file.
const LEGACY_MAGIC: &[u8] = b"ToKyO CaBiNeT";

/// Name in the library of what `--plain` does.
const ASSUME_PLAIN: &str = "call File::assume_plain first";

/// Returns an error with its causes, each said once, and with what to do.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    let mut last = None;
    for cause in error.chain() {
        let translated = translate(cause);
        let is_translated = translated.is_some();
        let part = translated.unwrap_or_else(|| cause.to_string());
        if text.is_empty() {
            text = part;
        } else if !text.contains(&part) {
            // Some messages include that of their cause.
            text.push_str(": ");
            text.push_str(&part);
        }
        if is_translated {
            return text;
        }
        last = Some(cause);
    }
    if let Some(system) = last.and_then(|last| last.downcast_ref::<io::Error>())
        && text.ends_with(&system.to_string())
        && let Some(advice) = advice_on(system)
    {
        text.push_str("; ");
        text.push_str(advice);
    }
    text
}

/// Returns the text of an error of a library for an operator, if its own is not that.
fn translate(error: &(dyn StdError + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<cabinet::Error>() {
        return of_database(error);
    }
    match error.downcast_ref::<server::Error>()? {
        server::Error::Listen { endpoint, source } => {
            let advice = advice_on_listening(endpoint, source);
            Some(format!("cannot listen on {endpoint}: {source}{advice}"))
        }
        _ => None,
    }
}

fn of_database(error: &cabinet::Error) -> Option<String> {
    use cabinet::Error as E;
    Some(match error {
        E::InUse { path } => {
            let shown = path.display();
            match holder::of_database(path) {
                Some(holder) if holder.is_this_process() => {
                    format!("{shown} is open in this command already: name each database once")
                }
                Some(holder) => format!("{shown} is in use by {holder}: stop that first"),
                None => format!(
                    "{shown} is in use by another process: stop that first; as root, \"fuser \
                     {shown}/lock\" finds it"
                ),
            }
        }
        E::Io { path, .. } if path.is_file() && is_not_a_folder(error) => no_folder(path),
        E::Io { operation, path, source } if source.kind() == ErrorKind::NotFound => {
            let missing = path.parent().filter(|parent| {
                !parent.as_os_str().is_empty() && !parent.exists() && *operation == "create"
            })?;
            let (shown, missing) = (path.display(), missing.display());
            format!("{operation} {shown}: there is no folder {missing}; make it, or check the path")
        }
        E::Io { operation, path, source } if source.kind() == ErrorKind::NotADirectory => {
            let file = path.ancestors().skip(1).find(|ancestor| ancestor.is_file())?;
            let (shown, file) = (path.display(), file.display());
            format!("{operation} {shown}: {file} is a file, not a folder; check the path")
        }
        E::WrongKind { path, found, wanted } if found.ends_with(" order") => format!(
            "{} has its keys {found}, not {wanted}: leave the order out of its name",
            path.display()
        ),
        E::Corrupted { file, what, .. } if is_legacy(file) => format!(
            "{} is a damaged file of Tokyo Cabinet: {what}; nothing in it can be read without its \
             header, so use an earlier copy of the file",
            file.display()
        ),
        E::InvalidArgument(text) if text.contains(ASSUME_PLAIN) => {
            text.replace(ASSUME_PLAIN, "import them with --plain")
        }
        E::Poisoned(cause) => format!(
            "writing stopped after an earlier failure ({cause}): remove its cause, then start again"
        ),
        _ => return None,
    })
}

/// Returns whether an operation failed since its path is not a folder.
fn is_not_a_folder(error: &cabinet::Error) -> bool {
    let cabinet::Error::Io { source, .. } = error else { return false };
    matches!(source.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory)
}

/// Fails if there is nothing at the path of a database, or a file.
pub(crate) fn require_database(path: &Path) -> Result<()> {
    let found = fs::metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
    if found.is_file() {
        bail!(no_folder(path));
    }
    Ok(())
}

/// Fails if this user may not change a folder, or not read its files with these suffixes. Opens
/// none. Other files are not those of the program.
pub(crate) fn require_files_of(path: &Path, suffixes: &[&str]) -> io::Result<()> {
    let with_name = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    access(path, Access::WRITE_OK | Access::EXEC_OK)?;
    for entry in fs::read_dir(path).map_err(|error| with_name(path, error))? {
        let file = entry.map_err(|error| with_name(path, error))?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if !suffixes.iter().any(|suffix| name.ends_with(suffix)) {
            continue;
        }
        match access(&file, Access::READ_OK) {
            // A server may have removed it meanwhile.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(with_name(&file, error.into())),
        }
    }
    Ok(())
}

/// Fails if there is no file at a path, one that this user may not read, or one of Tokyo Cabinet
/// without a whole header.
pub(crate) fn require_file(path: &Path) -> Result<()> {
    let cannot = || format!("cannot open {}", path.display());
    // A pipe would wait for its writer.
    if fs::metadata(path).with_context(cannot)?.is_file() {
        File::open(path).with_context(cannot)?;
    }
    match cut_off(path) {
        Some(text) => bail!(text),
        None => Ok(()),
    }
}

/// Fails if this user can neither write the file at a path, nor make it. Makes nothing.
pub(crate) fn require_writable(path: &Path) -> io::Result<()> {
    match access(path, Access::WRITE_OK) {
        Ok(()) if path.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Err(Errno::NOENT) => require_folder_of(path),
        found => Ok(found?),
    }
}

/// Fails if this user cannot make a file in the folder that a path is in. Makes nothing.
pub(crate) fn require_folder_of(path: &Path) -> io::Result<()> {
    let folder = folder_of(path);
    if folder.is_file() {
        return Err(ErrorKind::NotADirectory.into());
    }
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Returns the error of a file that is named as a database.
fn no_folder(path: &Path) -> String {
    let shown = path.display();
    if is_legacy(path) {
        return format!(
            "{shown} is a file of Tokyo Cabinet: \"tyrant import {shown} --into NAME\" converts it \
             to a database"
        );
    }
    cut_off(path).unwrap_or_else(|| {
        format!(
            "{shown} is a file, and a database is a folder: choose another name, or move the file \
             away; \"tyrant import\" reads TSV, JSON lines and Tokyo Cabinet's files"
        )
    })
}

/// Returns the error of a Tokyo Cabinet file that ends within its header.
fn cut_off(path: &Path) -> Option<String> {
    let mut begin = Vec::new();
    let file = File::open(path).ok().filter(|_| path.is_file() && !is_legacy(path))?;
    file.take(LEGACY_MAGIC.len() as u64).read_to_end(&mut begin).ok()?;
    let shown = path.display();
    let what = format!(
        "{shown} is a Tokyo Cabinet file that ends within its header: nothing of it can be read, so \
         use an earlier copy of the file"
    );
    (begin == LEGACY_MAGIC).then_some(what)
}

/// Returns what to do about an error of the system.
fn advice_on(error: &io::Error) -> Option<&'static str> {
    const TOO_MANY_OPEN_FILES: i32 = 24;
    if error.raw_os_error() == Some(TOO_MANY_OPEN_FILES) {
        return Some("raise the limit of open files (ulimit -n)");
    }
    Some(match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename => {
            "check the path"
        }
        ErrorKind::IsADirectory => "name a file, not a folder",
        ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => "choose another path",
        ErrorKind::PermissionDenied => "give this user access to it",
        ErrorKind::ReadOnlyFilesystem => {
            "choose a path on a file system that can be written, mount this one for writing, or \
             let the unit of systemd write there (ReadWritePaths=)"
        }
        ErrorKind::ConnectionRefused => "check the port, and that the server runs",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space on its file system",
        _ => return None,
    })
}

fn advice_on_listening(endpoint: &server::Endpoint, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse if is_no_socket(endpoint) => {
            "; what is there is not a socket: choose another path".to_owned()
        }
        ErrorKind::AddrInUse => {
            let holder = endpoint.port().and_then(holder::of_port);
            let holder = holder.map_or("another process".to_owned(), |holder| holder.to_string());
            format!("; {holder} listens there: stop that, or choose another port")
        }
        ErrorKind::AddrNotAvailable => {
            "; this machine has no such address: choose one that it has (\"ip address\" lists \
             them), or 0.0.0.0 for all"
                .to_owned()
        }
        ErrorKind::PermissionDenied if endpoint.port().is_some() => {
            "; ports below 1024 need root or the right CAP_NET_BIND_SERVICE: choose a higher port"
                .to_owned()
        }
        _ if endpoint.port().is_some() && error.raw_os_error().is_none() => {
            "; check the name of the host".to_owned()
        }
        _ => advice_on(error).map_or(String::new(), |advice| format!("; {advice}")),
    }
}

/// Returns whether there is something at the path of a Unix socket that is not one.
pub(crate) fn is_no_socket(endpoint: &server::Endpoint) -> bool {
    let server::Endpoint::Unix(path) = endpoint else { return false };
    fs::metadata(path).is_ok_and(|found| !found.file_type().is_socket())
}

/// Returns whether the error is only a closed output pipe, as in `... | head`.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_cause_is_said_once() {
        let system = || io::Error::from_raw_os_error(2);
        let path = || "/nowhere".into();
        let error = cabinet::Error::Io { operation: "open", path: path(), source: system() };
        let error = anyhow::Error::from(error).context("cannot begin");
        let expected = format!("cannot begin: open /nowhere: {}; check the path", system());
        assert_eq!(describe(&error), expected);
        assert_eq!(describe(&anyhow!("alone")), "alone");
    }

    #[test]
    fn an_error_of_the_system_ends_with_what_to_do() {
        let describe = |number| {
            let error = anyhow::Error::from(io::Error::from_raw_os_error(number));
            describe(&error.context("cannot write x"))
        };
        assert!(describe(2).ends_with("(os error 2); check the path"), "{}", describe(2));
        assert!(describe(30).contains("mount this one for writing"), "{}", describe(30));
        assert!(describe(24).contains("ulimit -n"), "{}", describe(24));
        assert!(describe(5).ends_with("(os error 5)"), "{}", describe(5));
    }

    #[test]
    fn no_error_of_the_library_speaks_to_programmers() {
        let path = || "/nowhere".into();
        let text = |error: cabinet::Error| describe(&anyhow::Error::from(error));
        let in_use = text(cabinet::Error::InUse { path: path() });
        assert!(in_use.contains("stop that first") && !in_use.contains("handle"), "{in_use}");
        let plain =
            text(cabinet::Error::InvalidArgument(format!("decode them, or {ASSUME_PLAIN}")));
        assert_eq!(plain, "decode them, or import them with --plain");
        let poisoned = text(cabinet::Error::Poisoned("no disk".into()));
        assert!(poisoned.ends_with("then start again"), "{poisoned}");
    }
}
