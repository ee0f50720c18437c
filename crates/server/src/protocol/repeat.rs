//! Executing what another server has logged, as if a client of this one had asked for it, but
//! whatever the mask says.

use super::{Context, Halt, binary, functions};
use crate::counters::Counters;
use crate::ops::failure::Failure;
use crate::ops::session::Session;
use crate::shared::Shared;
use crate::store::{Store, is_relative, put_with_meta, scope_of};
use crate::update_log::{Scope, Source};
use wire::binary::reply::OK;
use wire::binary::{Function, Request};
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
            if let Request::Misc { function, arguments, .. } = operation.request
                && functions::only_reads(function, arguments)
            {
                return Some(operation.succeeded);
            }
            // The master has removed what had expired, or stores something else.
            let has_expired = match scope_of(&operation.request) {
                Scope::Key(key) => unlogged.remove_expired(key),
                Scope::All | Scope::Nothing => Ok(false),
            };
            match has_expired {
                Ok(true) if matches!(operation.request, Request::Out { .. }) => return Some(true),
                Ok(_) => {}
                Err(error) => {
                    trouble = error.into();
                    return None;
                }
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
                is_repeated: true,
            };
            match binary::perform(&mut context, operation.request.clone(), output) {
                // Tokyo Tyrant logs a sum of this kind as a failure, though it is stored.
                Ok(_) if is_least_sum(&operation.request, output) => Some(operation.succeeded),
                Ok(_) if output.first() == Some(&OK) => Some(true),
                Ok(_) => match session.last_failure {
                    Some(failure) if !failure.is_of_the_data() => {
                        trouble = Trouble::Failed(failure);
                        None
                    }
                    _ => Some(false),
                },
                // There is no client to read a long answer.
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
        let relative = |key: &[u8]| database.as_numbered().filter(|_| is_relative(key));
        let mut record = |key: &[u8]| {
            if database.has_duplicates() {
                for value in database.get_all(key).iter().flatten() {
                    digest.add(value);
                }
                return;
            }
            if let Some(numbered) = relative(key) {
                digest.add(&numbered.min().unwrap_or(0).to_be_bytes());
                digest.add(&numbered.max().unwrap_or(0).to_be_bytes());
            }
            if let Ok(Some(value)) = database.get(key) {
                digest.add(&value);
            }
        };
        match request {
            Request::PutCat { key, .. }
            | Request::PutShift { key, .. }
            | Request::AddInt { key, .. }
            | Request::AddDouble { key, .. } => record(key),
            // Another record each time.
            Request::Put { key, .. } | Request::PutKeep { key, .. } | Request::Out { key }
                if relative(key).is_some() =>
            {
                record(key);
            }
            // One of the values of a key.
            Request::Out { key } if database.has_duplicates() => record(key),
            Request::Misc {
                function: Function::PutCat | Function::PutDuplicate | Function::PutDuplicateBack,
                arguments,
                ..
            } => {
                record(arguments.iter().next()?);
            }
            Request::Misc { function: Function::Out, arguments, .. }
                if database.has_duplicates() =>
            {
                record(arguments.iter().next()?);
            }
            Request::Misc { function: Function::PutList, arguments, .. }
                if database.has_duplicates() =>
            {
                arguments.iter().step_by(2).for_each(record);
            }
            Request::Misc { function, arguments, .. } if database.as_numbered().is_some() => {
                let (step, count) = match function {
                    Function::Put | Function::PutKeep | Function::Out => (1, 1),
                    Function::OutList => (1, usize::MAX),
                    Function::PutList => (2, usize::MAX),
                    _ => return None,
                };
                let keys = arguments.iter().step_by(step).take(count);
                let mut keys = keys.filter(|key| relative(key).is_some()).peekable();
                keys.peek()?;
                keys.for_each(record);
            }
            Request::Misc { function: Function::GenerateUid, .. } => {
                digest.add(&database.table()?.last_uid().to_be_bytes());
            }
            Request::Misc { function: Function::Search | Function::MetaSearch, .. } => {
                digest.add(&database.len().to_be_bytes());
            }
            _ => return None,
        }
        Some(digest.0)
    }
}

/// Whether this is the reply to an addition that came to the least integer.
fn is_least_sum(request: &Request<'_>, reply: &[u8]) -> bool {
    matches!(request, Request::AddInt { .. })
        && reply == [&[OK], &i32::MIN.to_be_bytes()[..]].concat()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::store::strings;
    use cabinet::Database;

    #[test]
    fn a_sum_that_tokyo_tyrant_calls_a_failure_is_as_the_log_has_it() {
        let database = Database::open("*").expect("a database in memory");
        let shared = Shared::new(Config::default(), database).expect("a server");
        let mut repeater = Repeater::new(&shared);
        for (addend, succeeded) in [(i32::MIN, false), (0, true), (1, true)] {
            let request = Request::AddInt { key: b"k", addend };
            let operation = Operation { request, succeeded };
            let source = Source { origin: 2, master: 2, root: None };
            assert_eq!(repeater.repeat(source, &operation).expect("room"), succeeded, "{addend}");
        }
        let value = shared.database.get(b"k").expect("a database");
        assert_eq!(value, Some((i32::MIN + 1).to_le_bytes().to_vec()));
    }

    #[test]
    fn what_tokyo_tyrant_took_is_taken_from_its_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("casket.tct");
        let database = Database::open(path.to_str().expect("a name")).expect("a database");
        let shared = Shared::new(Config::default(), database).expect("a server");
        let mut repeater = Repeater::new(&shared);
        let mut repeat = |request: Request<'_>| {
            let source = Source { origin: 2, master: 2, root: None };
            let operation = Operation { request, succeeded: true };
            assert!(repeater.repeat(source, &operation).expect("room"), "{operation:?}");
        };
        repeat(Request::Put { key: b"a", value: b"name\0x\0dangling" });
        repeat(Request::Put { key: b"b", value: b"hello" });
        let misc: [(&[u8], &[&[u8]]); 3] = [
            (b"put", &[b"c", b"name", b"x", b"dangling"]),
            (b"putlist", &[b"d", b"hello"]),
            (b"search", &[b"addcond\0name\0STREQ\0x", b"addcond\0name\0BOGUS\0y", b"out"]),
        ];
        for (name, arguments) in misc {
            let arguments = strings(arguments).expect("short arguments");
            let function = Function::from_name(name);
            repeat(Request::Misc { function, options: 0, arguments: arguments.strings() });
        }
        let rows = |key: &[u8]| shared.database.get(key).expect("a table");
        assert_eq!(
            [b"a", b"b", b"c", b"d"].map(|key| rows(key)),
            [None, Some(Vec::new()), None, Some(Vec::new())]
        );
    }

    #[test]
    fn what_makes_another_record_of_a_fixed_length_database_each_time_shows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("casket.tcf");
        let database = Database::open(path.to_str().expect("a name")).expect("a database");
        for id in 10..30_u32 {
            database.put(id.to_string().as_bytes(), b"v").expect("room");
        }
        let shared = Shared::new(Config::default(), database).expect("a server");
        let mut repeater = Repeater::new(&shared);
        // The digest before an operation, and whether it is another one then.
        let mut looked = |request: &Request<'_>| {
            let before = repeater.state(request);
            let source = Source { origin: 2, master: 2, root: None };
            let operation = Operation { request: request.clone(), succeeded: true };
            repeater.repeat(source, &operation).expect("room");
            (before.is_some(), before != repeater.state(request))
        };
        let value: &[u8] = b"v";
        for request in [
            Request::Put { key: b"next", value },
            Request::PutKeep { key: b"next", value },
            Request::PutKeep { key: b"prev", value },
            Request::PutCat { key: b"max", value },
            Request::Out { key: b"min" },
            Request::Out { key: b"max" },
        ] {
            assert_eq!(looked(&request), (true, true), "{request:?}");
        }
        for request in [Request::Put { key: b"12", value }, Request::Out { key: b"12" }] {
            assert_eq!(looked(&request), (false, false), "{request:?}");
        }
        type Call = (&'static [u8], &'static [&'static [u8]], bool);
        let lists: [Call; 7] = [
            (b"put", &[b"next", b"v"], true),
            (b"putkeep", &[b"prev", b"v"], true),
            (b"out", &[b"max"], true),
            (b"outlist", &[b"50", b"min"], true),
            (b"putlist", &[b"50", b"v", b"next", b"v"], true),
            (b"outlist", &[b"50", b"51"], false),
            // These are values.
            (b"putlist", &[b"50", b"next", b"51", b"next"], false),
        ];
        for (name, list, shows) in lists {
            let arguments = strings(list).expect("short arguments");
            let function = Function::from_name(name);
            let request = Request::Misc { function, options: 0, arguments: arguments.strings() };
            assert_eq!(looked(&request), (shows, shows), "{request:?}");
        }
    }
}
