//! The file system: presents records as files and folders.

use crate::failure::Failure;
use crate::file::{File, Metadata};
use crate::folder::{Entries, Node, has_entries, is_folder, keys_below};
use crate::path::{check_depth, file_key, folder_key, parent_key};
use crate::properties;
use crate::request::Request;
use dav_server::davpath::DavPath;
use dav_server::fs::{
    DavDirEntry, DavFile, DavMetaData, DavProp, FsError, FsFuture, FsStream, GuardedFileSystem,
    OpenOptions, ReadDirMeta,
};
use futures_util::stream;
use hyper::StatusCode;
use server::Records;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

/// The records of a server as files and folders.
#[derive(Clone)]
pub(crate) struct System {
    records: Arc<Records>,
}

impl System {
    pub(crate) fn new(records: Arc<Records>) -> Self {
        Self { records }
    }

    /// Runs an operation on the node at a path.
    async fn at<T: Send + 'static>(
        &self,
        request: &Request,
        path: &DavPath,
        operation: impl FnOnce(&Records, &[u8]) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, FsError> {
        let key = file_key(path).to_vec();
        check_depth(&key)?;
        request.wait(&self.records, move |records| operation(records, &key)).await
    }

    /// Runs an operation with the key that the properties at a path are stored under.
    async fn at_properties<T: Send + 'static>(
        &self,
        request: &Request,
        path: &DavPath,
        operation: impl FnOnce(&Records, &[u8]) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, FsError> {
        let is_collection = path.is_collection();
        self.at(request, path, move |records, key| match Node::at(records, key, is_collection)? {
            None => Err(FsError::NotFound.into()),
            Some(Node::File(_)) => operation(records, key),
            Some(Node::Folder) => operation(records, &folder_key(key)),
        })
        .await
    }
}

/// Stores a record for the parent folder, so that it remains when its last file is removed.
fn store_parent(records: &Records, file: &[u8]) -> Result<(), Failure> {
    let parent = parent_key(file);
    if !parent.is_empty() {
        records.put_empty(parent)?;
    }
    Ok(())
}

fn check_parent(records: &Records, file: &[u8]) -> Result<(), Failure> {
    if is_folder(records, parent_key(file))? { Ok(()) } else { Err(FsError::NotFound.into()) }
}

fn move_record(records: &Records, from: &[u8], to: &[u8]) -> Result<(), Failure> {
    if records.rename(from, to)? {
        properties::copy(records, from, to)?;
        properties::remove(records, from)?;
    }
    Ok(())
}

impl GuardedFileSystem<Request> for System {
    fn open<'a>(
        &'a self,
        path: &'a DavPath,
        options: OpenOptions,
        request: &'a Request,
    ) -> FsFuture<'a, Box<dyn DavFile>> {
        Box::pin(async move {
            if !options.write {
                // The server itself sends files.
                return Err(FsError::NotFound);
            }
            if path.is_collection() {
                return Err(FsError::Forbidden);
            }
            let options_here = options.clone();
            self.at(request, path, move |records, key| {
                let exists = match Node::at(records, key, false)? {
                    Some(Node::Folder) => return Err(FsError::Exists.into()),
                    Some(Node::File(_)) if options_here.create_new => {
                        return Err(FsError::Exists.into());
                    }
                    Some(Node::File(_)) => true,
                    None => false,
                };
                if !exists {
                    if !options_here.create {
                        return Err(FsError::NotFound.into());
                    }
                    check_parent(records, key)?;
                    if !options_here.truncate {
                        // An empty file may never be written to: a lock creates files this way.
                        records.put_empty(key)?;
                    }
                }
                Ok(())
            })
            .await?;
            let file = File::write(&self.records, path, &options, request).await?;
            Ok(Box::new(file) as Box<dyn DavFile>)
        })
    }

    fn read_dir<'a>(
        &'a self,
        path: &'a DavPath,
        _meta: ReadDirMeta,
        request: &'a Request,
    ) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        Box::pin(async move {
            let folder = folder_key(file_key(path));
            let listed =
                self.at(request, path, |records, key| Entries::of(records, &folder_key(key)));
            let entries = listed.await?;
            let Entries { files, folders, .. } = entries;
            let folder: Arc<[u8]> = folder.into();
            let entry = move |name: Vec<u8>, is_folder: bool| {
                let entry = Entry {
                    records: Arc::clone(&self.records),
                    request: request.clone(),
                    folder: Arc::clone(&folder),
                    name,
                    is_folder,
                };
                Ok(Box::new(entry) as Box<dyn DavDirEntry>)
            };
            let folders: Vec<_> = folders.into_iter().map(|name| entry(name, true)).collect();
            let files = files.into_iter().map(|name| entry(name, false));
            let entries: Vec<_> = folders.into_iter().chain(files).collect();
            Ok(Box::pin(stream::iter(entries)) as FsStream<Box<dyn DavDirEntry>>)
        })
    }

    fn metadata<'a>(
        &'a self,
        path: &'a DavPath,
        request: &'a Request,
    ) -> FsFuture<'a, Box<dyn DavMetaData>> {
        Box::pin(async move {
            let is_collection = path.is_collection();
            let node =
                self.at(request, path, move |records, key| Node::at(records, key, is_collection));
            let about = match node.await?.ok_or(FsError::NotFound)? {
                Node::Folder => Metadata(None),
                Node::File(facts) => Metadata(Some(facts)),
            };
            Ok(Box::new(about) as Box<dyn DavMetaData>)
        })
    }

    fn create_dir<'a>(&'a self, path: &'a DavPath, request: &'a Request) -> FsFuture<'a, ()> {
        Box::pin(self.at(request, path, |records, key| {
            // A user of the keys that begin with the folder may not read the key without a slash.
            let exists = match records.check_read(key) {
                Ok(()) => Node::at(records, key, true)?.is_some(),
                Err(_) => is_folder(records, &folder_key(key))?,
            };
            if exists {
                return Err(FsError::Exists.into());
            }
            check_parent(records, key)?;
            if records.put_empty(&folder_key(key))? { Ok(()) } else { Err(FsError::Exists.into()) }
        }))
    }

    fn remove_dir<'a>(&'a self, path: &'a DavPath, request: &'a Request) -> FsFuture<'a, ()> {
        Box::pin(self.at(request, path, |records, key| {
            let folder = folder_key(key);
            if folder.is_empty() {
                return Err(FsError::Forbidden.into());
            }
            if has_entries(records, &folder)? {
                return Err(FsError::Exists.into());
            }
            records.remove(&folder)?;
            properties::remove(records, &folder)?;
            store_parent(records, key)
        }))
    }

    fn remove_file<'a>(&'a self, path: &'a DavPath, request: &'a Request) -> FsFuture<'a, ()> {
        Box::pin(self.at(request, path, |records, key| {
            if !records.remove(key)? {
                return Err(FsError::NotFound.into());
            }
            properties::remove(records, key)?;
            store_parent(records, key)
        }))
    }

    fn rename<'a>(
        &'a self,
        from: &'a DavPath,
        to: &'a DavPath,
        request: &'a Request,
    ) -> FsFuture<'a, ()> {
        let (is_collection, to) = (from.is_collection(), file_key(to).to_vec());
        Box::pin(self.at(request, from, move |records, from| {
            check_depth(&to)?;
            check_parent(records, &to)?;
            match Node::at(records, from, is_collection)? {
                None => return Err(FsError::NotFound.into()),
                Some(Node::File(_)) => move_record(records, from, &to)?,
                Some(Node::Folder) => {
                    let (source, target) = (folder_key(from), folder_key(&to));
                    if source.is_empty() || target.starts_with(&source) {
                        return Err(FsError::Forbidden.into());
                    }
                    let keys = keys_below(records, &source)?;
                    let moved = |key: &[u8]| [&target, &key[source.len()..]].concat();
                    for key in &keys {
                        check_depth(&moved(key))?;
                        records.check_single(key)?;
                    }
                    records.put_empty(&target)?;
                    for key in keys {
                        move_record(records, &key, &moved(&key))?;
                    }
                }
            }
            records.commit()?;
            store_parent(records, from)
        }))
    }

    fn copy<'a>(
        &'a self,
        from: &'a DavPath,
        to: &'a DavPath,
        request: &'a Request,
    ) -> FsFuture<'a, ()> {
        let to = file_key(to).to_vec();
        Box::pin(self.at(request, from, move |records, from| {
            check_depth(&to)?;
            check_parent(records, &to)?;
            if !records.copy(from, &to)? {
                return Err(FsError::NotFound.into());
            }
            properties::copy(records, from, &to)
        }))
    }

    fn have_props<'a>(
        &'a self,
        _path: &'a DavPath,
        _request: &'a Request,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(ready(true))
    }

    /// Carries out the update of the request. The library has checked its conditions and locks.
    fn patch_props<'a>(
        &'a self,
        path: &'a DavPath,
        _patch: Vec<(bool, DavProp)>,
        request: &'a Request,
    ) -> FsFuture<'a, Vec<(StatusCode, DavProp)>> {
        Box::pin(async move {
            let context = request.clone();
            let status = self.at_properties(request, path, move |records, key| {
                let Some(update) = context.update().filter(|update| !update.is_refused()) else {
                    records.check_write(key)?;
                    return Ok(StatusCode::FAILED_DEPENDENCY);
                };
                if key.ends_with(b"/") {
                    // An empty record, so that properties move with the folder.
                    records.put_empty(key)?;
                }
                properties::update(records, key, update)
            });
            request.set_patched(path.as_url_string(), status.await?);
            Ok(Vec::new())
        })
    }
}

/// A file or folder in a folder.
struct Entry {
    records: Arc<Records>,
    request: Request,
    folder: Arc<[u8]>,
    name: Vec<u8>,
    is_folder: bool,
}

impl DavDirEntry for Entry {
    fn name(&self) -> Vec<u8> {
        self.name.clone()
    }

    fn metadata(&self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        Box::pin(async move {
            let mut about = Metadata(None);
            if !self.is_folder {
                let key = [&self.folder, &self.name[..]].concat();
                let facts =
                    self.request.wait(&self.records, move |records| Ok(records.facts(&key)?));
                // It may have been removed in the meantime.
                about = Metadata(Some(facts.await?.ok_or(FsError::NotFound)?));
            }
            Ok(Box::new(about) as Box<dyn DavMetaData>)
        })
    }
}
