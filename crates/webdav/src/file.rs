//! Open files: values that are being written.

use crate::failure::Failure;
use crate::path::file_key;
use crate::request::Request;
use bytes::{Buf, Bytes};
use dav_server::davpath::DavPath;
use dav_server::fs::{DavFile, DavMetaData, FsError, FsFuture, FsResult, OpenOptions};
use server::{Draft, Facts, Records};
use std::io::SeekFrom;
use std::sync::Arc;
use std::time::SystemTime;

/// Metadata of a file, or of a folder (`None`).
#[derive(Clone, Debug)]
pub(crate) struct Metadata(pub(crate) Option<Facts>);

impl DavMetaData for Metadata {
    fn len(&self) -> u64 {
        self.0.as_ref().map_or(0, |facts| facts.bytes)
    }

    fn modified(&self) -> FsResult<SystemTime> {
        Err(FsError::NotImplemented)
    }

    fn is_dir(&self) -> bool {
        self.0.is_none()
    }

    fn etag(&self) -> Option<String> {
        Some(self.0.as_ref()?.tag.trim_matches('"').to_owned())
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct File {
    records: Arc<Records>,
    request: Request,
    state: State,
    position: u64,
    /// All writes append, whatever offset the library assumes.
    appends: bool,
}

#[derive(Debug)]
enum State {
    Write { key: Vec<u8>, draft: Option<Draft>, expected: Option<u64> },
    Written { facts: Facts },
}

impl File {
    /// Opens a value for writing. A partial change begins with a copy of the current value.
    pub(crate) async fn write(
        records: &Arc<Records>,
        path: &DavPath,
        options: &OpenOptions,
        request: &Request,
    ) -> FsResult<Self> {
        let key = file_key(path).to_vec();
        let draft = if options.truncate {
            records.draft()
        } else {
            let key = key.clone();
            let draft = request.wait(records, move |records| Ok(records.draft_of(&key)?));
            draft.await?.ok_or(FsError::NotFound)?
        };
        let position = if options.append { draft.bytes() } else { 0 };
        let expected = options.size.filter(|_| options.truncate);
        let state = State::Write { key, draft: Some(draft), expected };
        let (records, request) = (Arc::clone(records), request.clone());
        Ok(Self { records, request, state, position, appends: options.append })
    }

    async fn put(&mut self, bytes: Bytes) -> FsResult<()> {
        let State::Write { draft, .. } = &mut self.state else { return Err(FsError::Forbidden) };
        let Some(mut taken) = draft.take() else { return Err(FsError::GeneralFailure) };
        let (position, length) = (self.position, bytes.len() as u64);
        let written = self.request.wait(&self.records, move |_| {
            taken.write(position, &bytes)?;
            Ok(taken)
        });
        *draft = Some(written.await?);
        self.position += length;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        match &self.state {
            State::Written { facts } => facts.bytes,
            State::Write { draft, .. } => draft.as_ref().map_or(0, Draft::bytes),
        }
    }
}

impl DavFile for File {
    fn metadata(&mut self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        Box::pin(async move {
            match &self.state {
                State::Written { facts } => {
                    Ok(Box::new(Metadata(Some(facts.clone()))) as Box<dyn DavMetaData>)
                }
                State::Write { .. } => Err(FsError::NotFound),
            }
        })
    }

    fn write_buf(&mut self, mut buf: Box<dyn Buf + Send>) -> FsFuture<'_, ()> {
        let bytes = buf.copy_to_bytes(buf.remaining());
        self.write_bytes(bytes)
    }

    fn write_bytes(&mut self, buf: Bytes) -> FsFuture<'_, ()> {
        Box::pin(self.put(buf))
    }

    fn read_bytes(&mut self, _count: usize) -> FsFuture<'_, Bytes> {
        // The server itself sends files.
        Box::pin(async move { Err(FsError::NotImplemented) })
    }

    fn seek(&mut self, pos: SeekFrom) -> FsFuture<'_, u64> {
        Box::pin(async move {
            let position = match pos {
                _ if self.appends => Some(self.position),
                SeekFrom::Start(position) => Some(position),
                SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
                SeekFrom::End(offset) => self.bytes().checked_add_signed(offset),
            };
            self.position = position.ok_or(FsError::GeneralFailure)?;
            Ok(self.position)
        })
    }

    fn flush(&mut self) -> FsFuture<'_, ()> {
        Box::pin(async move {
            let State::Write { key, draft, expected } = &mut self.state else { return Ok(()) };
            let Some(draft) = draft.take() else { return Err(FsError::GeneralFailure) };
            if expected.is_some_and(|bytes| bytes != draft.bytes()) {
                // The client disconnected before it had sent everything.
                return Err(FsError::GeneralFailure);
            }
            let (key, saying) = (std::mem::take(key), self.request.saying().clone());
            let put = self.request.wait(&self.records, move |records| {
                Ok::<_, Failure>(records.put(&key, draft, &saying)?)
            });
            let facts = put.await?;
            self.state = State::Written { facts };
            Ok(())
        })
    }
}
