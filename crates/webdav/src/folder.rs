//! Folders, derived from the keys of records.

use crate::failure::Failure;
use crate::path::{Location, check_depth, folder_key, location};
use dav_server::fs::FsError;
use server::{Facts, Records};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Most files and folders in a listing of a folder, and most moved with one.
pub const ENTRIES_MAX: usize = 100_000;

/// Most files and folders in a recursive listing.
pub const MEMBERS_MAX: usize = 10_000;

/// Most bytes of the names in a listing.
const NAME_BYTES_MAX: usize = 64 << 20;

/// Most records of a database with unordered keys: listing a folder scans all keys.
pub const UNSORTED_MAX: u64 = 1_000_000;

/// A file or a folder at a path.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    File(Facts),
    Folder,
}

impl Node {
    /// Returns the node at the key of a file, or of a folder without its slash. If both exist,
    /// `prefers_folder` selects the folder.
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

/// Returns whether the folder with this key exists.
pub(crate) fn is_folder(records: &Records, folder: &[u8]) -> Result<bool, Failure> {
    Ok(folder.is_empty() || records.facts(folder)?.is_some() || has_entries(records, folder)?)
}

/// Returns whether a folder contains anything. In a database too large to scan, it returns `false`.
pub(crate) fn has_entries(records: &Records, folder: &[u8]) -> Result<bool, Failure> {
    if !can_list(records) {
        return Ok(false);
    }
    let mut found = false;
    records.for_each_key(folder, folder, |key| {
        found = location(folder, key) != Location::Nothing;
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// Returns whether folders can be listed.
fn can_list(records: &Records) -> bool {
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
    /// Lists a folder. Fails with [`FsError::InsufficientStorage`] if there are more entries than
    /// can be listed.
    pub(crate) fn of(records: &Records, folder: &[u8]) -> Result<Self, Failure> {
        if !can_list(records) {
            return Err(FsError::InsufficientStorage.into());
        }
        let mut entries = Self::default();
        let mut from = folder.to_vec();
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            let start = std::mem::take(&mut from);
            records.for_each_key(folder, &start, |key| match location(folder, key) {
                Location::Nothing => ControlFlow::Continue(()),
                Location::File(name) => entries.add(name, false),
                Location::Folder(name) => {
                    let flow = entries.add(name, true);
                    if records.is_sorted() && flow.is_continue() {
                        // The other keys of that folder are skipped: the scan continues after its
                        // slash.
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

/// A file or folder in a tree.
#[derive(Debug)]
pub(crate) struct Member {
    /// The key, of a folder without its slash.
    pub(crate) key: Vec<u8>,
    pub(crate) is_folder: bool,
}

/// Files and folders below a folder: the entries of each folder, by its key.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    folders: BTreeMap<Vec<u8>, Entries>,
    members: usize,
    bytes: usize,
}

impl Tree {
    /// Scans all keys below a folder once. Returns `None` if there are more members than can be
    /// listed.
    pub(crate) fn of(records: &Records, folder: &[u8]) -> Result<Option<Self>, Failure> {
        if !can_list(records) {
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

    /// Lists the files and folders in a folder, without those below.
    pub(crate) fn in_folder(records: &Records, folder: &[u8]) -> Result<Self, Failure> {
        let entries = Entries::of(records, folder)?;
        Ok(Self { folders: BTreeMap::from([(folder.to_vec(), entries)]), ..Self::default() })
    }

    /// Returns the key of each file, and that of each folder without its slash.
    pub(crate) fn into_members(self) -> impl Iterator<Item = Member> {
        self.folders.into_iter().flat_map(|(folder, Entries { files, folders, .. })| {
            let folders = folders.into_iter().map(|name| (name, true));
            let names = folders.chain(files.into_iter().map(|name| (name, false)));
            names.map(move |(name, is_folder)| Member {
                key: [&folder[..], &name].concat(),
                is_folder,
            })
        })
    }

    fn is_full(&self) -> bool {
        self.members > MEMBERS_MAX || self.bytes > NAME_BYTES_MAX
    }

    /// Adds a file, and the folders that contain it, from `top` on.
    fn add(&mut self, top: &[u8], key: &[u8]) {
        let mut end = top.len();
        loop {
            let folder = &key[..end];
            let (name, is_folder) = match location(folder, key) {
                Location::Nothing => return,
                Location::File(name) => (name, false),
                Location::Folder(name) => (name, true),
            };
            let Some(entries) = self.folders.get_mut(folder) else { return };
            end += name.len();
            if check_depth(&key[..end]).is_err() {
                // No path leads to this key.
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

/// Returns the keys of everything in a folder, and the folder's own key if it has a record.
pub(crate) fn keys_below(records: &Records, folder: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    if !can_list(records) {
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
