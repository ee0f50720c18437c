//! Folders, seen in the keys of records.

use crate::path::{Within, check_depth, folder_key, within};
use crate::request::Failure;
use dav_server::fs::FsError;
use server::{Facts, Records};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Most files and folders that a folder is shown with, and most that are moved with one.
pub const ENTRIES_MAX: usize = 100_000;

/// Most files and folders that are shown at once with all that is in them.
pub const MEMBERS_MAX: usize = 10_000;

/// Most bytes of their names.
const NAME_BYTES_MAX: usize = 64 << 20;

/// Most records of a database whose keys are in no order: each look into a folder is one at all
/// keys.
pub const UNSORTED_MAX: u64 = 1_000_000;

/// What is at a path.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    File(Facts),
    Folder,
}

impl Node {
    /// What is at the key of a file, or of a folder without its slash. With `prefers_folder`, and
    /// both there, it is the folder.
    pub(crate) fn at(
        records: &Records,
        key: &[u8],
        prefers_folder: bool,
    ) -> Result<Option<Self>, Failure> {
        if key.is_empty() {
            return Ok(Some(Self::Folder));
        }
        let file = || records.facts(key).map(|facts| facts.map(Self::File));
        if !prefers_folder && let Some(file) = file()? {
            return Ok(Some(file));
        }
        if is_folder(records, &folder_key(key))? {
            return Ok(Some(Self::Folder));
        }
        Ok(if prefers_folder { file()? } else { None })
    }
}

/// Whether there is a folder of this key.
pub(crate) fn is_folder(records: &Records, folder: &[u8]) -> Result<bool, Failure> {
    Ok(folder.is_empty() || records.facts(folder)?.is_some() || has_entries(records, folder)?)
}

/// Whether there is something in a folder. In a database that is too large to look, there is not.
pub(crate) fn has_entries(records: &Records, folder: &[u8]) -> Result<bool, Failure> {
    if !is_shown(records) {
        return Ok(false);
    }
    let mut found = false;
    records.for_each_key(folder, folder, |key| {
        found = within(folder, key) != Within::Nothing;
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// Whether folders can be looked into.
fn is_shown(records: &Records) -> bool {
    records.is_sorted() || records.len() <= UNSORTED_MAX
}

/// Names of the files and folders in a folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    pub(crate) files: BTreeSet<Vec<u8>>,
    pub(crate) folders: BTreeSet<Vec<u8>>,
    bytes: usize,
}

impl Entries {
    /// Fails with [`FsError::InsufficientStorage`] if there are more than can be shown.
    pub(crate) fn of(records: &Records, folder: &[u8]) -> Result<Self, Failure> {
        if !is_shown(records) {
            return Err(FsError::InsufficientStorage.into());
        }
        let mut entries = Self::default();
        let mut from = folder.to_vec();
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            let start = std::mem::take(&mut from);
            records.for_each_key(folder, &start, |key| match within(folder, key) {
                Within::Nothing => ControlFlow::Continue(()),
                Within::File(name) => entries.add(name, false),
                Within::Folder(name) => {
                    let flow = entries.add(name, true);
                    if records.is_sorted() && flow.is_continue() {
                        // What else is in it need not be looked at: the next byte comes behind it.
                        from = [folder, name, &[b'/' + 1]].concat();
                        goes_on = true;
                        return ControlFlow::Break(());
                    }
                    flow
                }
            })?;
        }
        if entries.is_full() { Err(FsError::InsufficientStorage.into()) } else { Ok(entries) }
    }

    fn is_full(&self) -> bool {
        self.files.len() + self.folders.len() > ENTRIES_MAX || self.bytes > NAME_BYTES_MAX
    }

    fn add(&mut self, name: &[u8], is_folder: bool) -> ControlFlow<()> {
        let names = if is_folder { &mut self.folders } else { &mut self.files };
        if !names.contains(name) {
            names.insert(name.to_vec());
            self.bytes += name.len();
        }
        if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// All that is below a folder: what is in each folder, by the key of that.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    folders: BTreeMap<Vec<u8>, Entries>,
    members: usize,
    bytes: usize,
}

impl Tree {
    /// Looks at all keys below a folder, once. `None` if there are more members than are shown.
    pub(crate) fn of(records: &Records, folder: &[u8]) -> Result<Option<Self>, Failure> {
        if !is_shown(records) {
            return Err(FsError::InsufficientStorage.into());
        }
        let mut tree = Self::default();
        tree.folders.insert(folder.to_vec(), Entries::default());
        records.for_each_key(folder, folder, |key| {
            tree.add(folder, key);
            if tree.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok((!tree.is_full()).then_some(tree))
    }

    /// What is in a folder, if that is one of them.
    pub(crate) fn entries(&self, folder: &[u8]) -> Option<&Entries> {
        self.folders.get(folder)
    }

    fn is_full(&self) -> bool {
        self.members > MEMBERS_MAX || self.bytes > NAME_BYTES_MAX
    }

    /// Adds a file, and the folders that it is in from `top` on.
    fn add(&mut self, top: &[u8], key: &[u8]) {
        let mut end = top.len();
        loop {
            let folder = &key[..end];
            let (name, is_folder) = match within(folder, key) {
                Within::Nothing => return,
                Within::File(name) => (name, false),
                Within::Folder(name) => (name, true),
            };
            let Some(entries) = self.folders.get_mut(folder) else { return };
            end += name.len();
            if check_depth(&key[..end]).is_err() {
                // No path leads there.
                return;
            }
            let names = if is_folder { &mut entries.folders } else { &mut entries.files };
            if names.insert(name.to_vec()) {
                self.members += 1;
                self.bytes += end;
            }
            if !is_folder {
                return;
            }
            end += 1;
            self.folders.entry(key[..end].to_vec()).or_default();
        }
    }
}

/// Keys of everything in a folder, and of the folder itself if there is a record of it.
pub(crate) fn keys_below(records: &Records, folder: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    if !is_shown(records) {
        return Err(FsError::InsufficientStorage.into());
    }
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut bytes = 0;
    let mut is_full = false;
    records.for_each_key(folder, folder, |key| {
        if keys.last().is_none_or(|last| last != key) {
            bytes += key.len();
            keys.push(key.to_vec());
        }
        is_full = keys.len() > ENTRIES_MAX || bytes > NAME_BYTES_MAX;
        if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if is_full { Err(FsError::InsufficientStorage.into()) } else { Ok(keys) }
}
