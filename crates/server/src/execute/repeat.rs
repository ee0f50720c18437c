//! Executing what another server has logged, as if a client of this one had asked for it, but
//! whatever the mask says.

use super::{Context, Halt, binary};
use crate::counters::Counters;
use crate::failure::Failure;
use crate::session::Session;
use crate::shared::Shared;
use crate::store::{Store, put_with_meta};
use crate::update_log::Source;
use cabinet::table::SearchRequest;
use wire::binary::Request;
use wire::binary::reply::OK;
use wire::update_log::Operation;

/// Why an operation has to be tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("{0}")]
    Database(#[from] cabinet::Error),
    #[error("{}", .0.message())]
    Failed(Failure),
}

/// Executes operations of logs, one after the other.
pub(crate) struct Repeater<'a> {
    shared: &'a Shared,
    /// Logs them here too.
    store: Store,
    /// Does what they say.
    unlogged: Store,
    counters: Counters,
    session: Session,
    output: Vec<u8>,
}

impl<'a> Repeater<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            store: shared.database.ungated(),
            unlogged: shared.database.ungated().unlogged(),
            counters: Counters::default(),
            session: Session::default(),
            output: Vec::new(),
        }
    }

    /// Executes an operation; answers whether it succeeded here.
    pub(crate) fn repeat(
        &mut self,
        source: Source,
        operation: &Operation<'_>,
    ) -> Result<bool, Trouble> {
        self.store.set_source(source);
        let Self { shared, store, unlogged, counters, session, output } = self;
        let mut trouble = Trouble::Failed(Failure::Miscellaneous);
        let done = store.repeat(&operation.request, || {
            if only_reads(&operation.request) {
                return Some(operation.succeeded);
            }
            if let Some((key, value, meta)) = put_with_meta(&operation.request) {
                let put = unlogged.put_with(key, value, meta);
                return put.map(|_| true).map_err(|error| trouble = error.into()).ok();
            }
            output.clear();
            session.last_failure = None;
            let mut context = Context {
                shared,
                database: unlogged,
                may_block: true,
                counters,
                session,
                descriptor: -1,
                mutated: false,
                charge: None,
            };
            match binary::perform(&mut context, operation.request.clone(), output) {
                Ok(_) if output.first() == Some(&OK) => Some(true),
                Ok(_) => match session.last_failure {
                    Some(failure) if !failure.is_of_the_data() => {
                        trouble = Trouble::Failed(failure);
                        None
                    }
                    _ => Some(false),
                },
                // Nobody is there to read a long answer.
                Err(Halt::TooLong) => Some(true),
                Err(Halt::Blocked) => None,
            }
        })?;
        done.ok_or(trouble)
    }

    /// A digest of the records that an operation changes, where executing it a second time would
    /// show; `None` where it would not.
    pub(crate) fn state(&self, request: &Request<'_>) -> Option<u64> {
        let database = &self.unlogged;
        let mut digest = Digest::default();
        let mut record = |key: &[u8]| {
            if database.has_duplicates() {
                for value in database.get_all(key).iter().flatten() {
                    digest.add(value);
                }
            } else if let Some(numbered) =
                database.as_numbered().filter(|_| !key.iter().any(u8::is_ascii_digit))
            {
                digest.add(&numbered.min().unwrap_or(0).to_be_bytes());
                digest.add(&numbered.max().unwrap_or(0).to_be_bytes());
            } else if let Ok(Some(value)) = database.get(key) {
                digest.add(&value);
            }
        };
        match request {
            Request::PutCat { key, .. }
            | Request::PutShift { key, .. }
            | Request::AddInt { key, .. }
            | Request::AddDouble { key, .. } => record(key),
            // A new record each time.
            Request::Put { key: key @ (b"next" | b"prev"), .. } => record(key),
            // One of the values of a key.
            Request::Out { key } if database.has_duplicates() => record(key),
            Request::Misc { name: b"putcat" | b"putdup" | b"putdupback", arguments, .. } => {
                record(arguments.iter().next()?);
            }
            Request::Misc { name: b"out", arguments, .. } if database.has_duplicates() => {
                record(arguments.iter().next()?);
            }
            Request::Misc { name: b"putlist", arguments, .. } if database.has_duplicates() => {
                arguments.iter().step_by(2).for_each(record);
            }
            Request::Misc { name: b"genuid", .. } => {
                digest.add(&database.table()?.last_uid().to_be_bytes());
            }
            Request::Misc { name: b"search" | b"metasearch", .. } => {
                digest.add(&database.len().to_be_bytes());
            }
            _ => return None,
        }
        Some(digest.0)
    }
}

/// Calls of `misc` that the original logs although they change nothing.
fn only_reads(request: &Request<'_>) -> bool {
    match request {
        Request::Misc { name, arguments, .. } => match *name {
            b"get" | b"getlist" | b"getpart" | b"iterinit" | b"iternext" | b"regex" | b"range"
            | b"error" | b"defrag" | b"cacheclear" => true,
            b"search" | b"metasearch" => !SearchRequest::parse(arguments.iter()).out,
            _ => false,
        },
        _ => false,
    }
}

/// FNV-1a, with the length of each part behind it. It is in a file, so it must stay the same.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, part: &[u8]) {
        for byte in part.iter().chain(&(part.len() as u64).to_be_bytes()) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
