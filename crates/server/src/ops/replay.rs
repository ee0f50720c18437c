//! Replay: executes operations that another server has executed and logged, whatever the mask.
//!
//! Operations that were logged together are executed as one transaction, so that no client sees a
//! part of them, nor does a restart after a kill.

use super::cas_numbers::CasNumbers;
use super::conditional::{Action, Write};
use super::decode::{NoOperation, Sender, decode};
use super::entity_tag::EntityTags;
use super::execute::{Executor, Number, Outcome, ReplyLimit, Stop, execute};
use super::failure::Failure;
use super::operation::{Model, Operation};
use crate::ops::budget::Budget;
use crate::store::{RowMode, Store, StoreTransaction};
use crate::update_log::{Scope, Source, is_relative};
use cabinet::Error;
use cabinet::limits::BATCH_BYTES_MAX;
use std::sync::Arc;
use wire::Invalid;
use wire::binary::Request;

/// Attempts to execute operations together, after which they are executed one after the other.
const ATTEMPTS_MAX: usize = 100;

/// An entry of a log.
pub(crate) struct Logged<'a> {
    /// The request, as logged.
    request: Request<'a>,
    content: Content<'a>,
}

enum Content<'a> {
    One(Part<'a>),
    /// Operations that are executed together.
    Together(Vec<Part<'a>>),
}

struct Part<'a> {
    operation: Result<Operation<'a>, NoOperation>,
    /// Whether the operation succeeded on the server that logged it.
    succeeded: bool,
}

impl<'a> Part<'a> {
    fn of(logged: &wire::update_log::Operation<'a>, model: Model) -> Self {
        let operation = decode(&logged.request, model, Sender::Log);
        Self { operation, succeeded: logged.succeeded }
    }

    /// Returns which records the operation changes.
    fn scope(&self) -> Scope<'a> {
        self.operation.as_ref().map_or(Scope::Nothing, Operation::scope)
    }

    /// Returns the key of the only record that the operation changes, if it is one.
    fn key(&self) -> Option<&'a [u8]> {
        self.scope().key()
    }
}

impl<'a> Logged<'a> {
    /// Parses the body of an entry.
    pub(crate) fn parse(body: &'a [u8], model: Model) -> Result<Self, Invalid> {
        let operation = wire::update_log::Operation::parse(body)?;
        let Some(bodies) = operation.parts() else { return Ok(Self::of(operation, model)) };
        let part = |body| {
            let part = wire::update_log::Operation::parse(body)?;
            match part.parts() {
                None => Ok(Part::of(&part, model)),
                Some(_) => Err(Invalid::BadParameters),
            }
        };
        let parts = bodies.iter().map(part).collect::<Result<_, _>>()?;
        Ok(Self { request: operation.request, content: Content::Together(parts) })
    }

    /// Returns an operation that is not of several.
    pub(crate) fn of(operation: wire::update_log::Operation<'a>, model: Model) -> Self {
        let content = Content::One(Part::of(&operation, model));
        Self { request: operation.request, content }
    }

    /// Returns which records the operation changes.
    pub(crate) fn scope(&self) -> Scope<'a> {
        match &self.content {
            Content::One(part) => part.scope(),
            Content::Together(_) => Scope::All,
        }
    }

    /// Returns the keys of the records that the operation changes, if each part changes one.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a [u8]> {
        self.parts().iter().filter_map(Part::key)
    }

    fn parts(&self) -> &[Part<'a>] {
        match &self.content {
            Content::One(part) => std::slice::from_ref(part),
            Content::Together(parts) => parts,
        }
    }
}

/// Takes an error of the data for a failure: every copy of the data fails alike.
fn pass_over(executed: Result<bool, Error>) -> Result<bool, Error> {
    match executed {
        Err(error) if Failure::from(&error).is_of_the_data() => Ok(false),
        executed => executed,
    }
}

/// Replays operations of logs, one after the other.
pub(crate) struct Replayer<'a> {
    budget: &'a Arc<Budget>,
    /// Store that logs the operations here too.
    store: Store,
    /// Store that executes the operations.
    unlogged: Store,
    /// No operation of a log compares these two.
    cas_numbers: CasNumbers,
    entity_tags: EntityTags,
}

impl<'a> Replayer<'a> {
    /// Returns a replayer for the database of `store`. Changes bypass its gate.
    pub(crate) fn new(store: &Store, budget: &'a Arc<Budget>) -> Self {
        Self {
            budget,
            store: store.ungated(),
            unlogged: store.ungated().unlogged(),
            cas_numbers: CasNumbers::default(),
            entity_tags: EntityTags::new(None),
        }
    }

    /// Replays an operation. Returns whether it succeeded here. After an error it has to be tried
    /// again.
    pub(crate) fn replay(&mut self, source: Source, logged: &Logged<'_>) -> Result<bool, Error> {
        self.store.set_source(source);
        match &logged.content {
            Content::One(part) => self.store.replay(&logged.request, part.scope(), || {
                pass_over(self.execute(&self.unlogged, part))
            }),
            Content::Together(parts) => {
                let keys: Vec<&[u8]> = logged.keys().collect();
                // Masters of this project log no part that changes any record.
                let is_of_any = parts.iter().any(|part| matches!(part.scope(), Scope::All));
                let scope = if is_of_any { Scope::All } else { Scope::Several(&keys) };
                let mut succeeded = true;
                // It is logged here as there, and with it how its parts ended there.
                let execute = || {
                    succeeded = self.execute_together(parts)?;
                    Ok(true)
                };
                self.store.replay(&logged.request, scope, execute)?;
                Ok(succeeded)
            }
        }
    }

    /// Executes operations as one transaction; one after the other if they cannot be one here.
    /// Returns whether each of them ended as where it was logged.
    fn execute_together(&self, parts: &[Part<'_>]) -> Result<bool, Error> {
        let mut expired = Vec::new();
        for key in parts.iter().filter_map(Part::key) {
            if pass_over(self.unlogged.remove_expired(key))? {
                expired.push(key);
            }
        }
        // The master has removed an expired record, too.
        let is_alike = |part: &Part<'_>, succeeded| {
            succeeded == part.succeeded || part.key().is_some_and(|key| expired.contains(&key))
        };
        for _ in 0..ATTEMPTS_MAX {
            let transaction = self.unlogged.transaction(BATCH_BYTES_MAX, |_| true);
            let mut are_alike = true;
            let is_executed = |part| match self.execute_within(&transaction, part) {
                Ok(Some(succeeded)) => {
                    are_alike &= is_alike(part, succeeded);
                    true
                }
                Ok(None) | Err(_) => false,
            };
            if !parts.iter().all(is_executed) {
                break;
            }
            match self.unlogged.commit(transaction) {
                Ok(_) => return Ok(are_alike),
                // A client has changed such a record meanwhile.
                Err(Error::Conflict) => {}
                // It is too long for one change of this database.
                Err(error) if Failure::from(&error).is_of_the_data() => break,
                Err(error) => return Err(error),
            }
        }
        let mut are_alike = true;
        for part in parts {
            are_alike &= is_alike(part, pass_over(self.execute(&self.unlogged, part))?);
        }
        Ok(are_alike)
    }

    /// Executes an operation within a transaction, which has one value for each key. Returns
    /// whether it succeeded, `None` if that is not possible.
    fn execute_within(
        &self,
        transaction: &StoreTransaction,
        part: &Part<'_>,
    ) -> Result<Option<bool>, Error> {
        let store = transaction.store();
        let Ok(Operation::RemoveList { keys, every_value: true }) = &part.operation else {
            return self.execute(store, part).map(Some);
        };
        for key in keys {
            if self.unlogged.count(key)? > 1 {
                return Ok(None);
            }
            store.remove(key)?;
        }
        Ok(Some(true))
    }

    /// Returns whether an operation has ended otherwise here than where it was logged. A database
    /// that evicts lacks records that others have, and no operation changes that.
    pub(crate) fn differs(&self, logged: &Logged<'_>, succeeded: bool) -> bool {
        let was_success = match &logged.content {
            Content::One(part) => part.succeeded,
            // Only a transaction that was made is logged.
            Content::Together(_) => true,
        };
        succeeded != was_success && !self.unlogged.evicts()
    }

    fn execute(&self, store: &Store, part: &Part<'_>) -> Result<bool, Error> {
        let operation = match &part.operation {
            // Tokyo Tyrant logs calls that only read, too.
            Ok(operation) if operation.is_read() => return Ok(part.succeeded),
            Err(NoOperation::OfServer | NoOperation::InvalidRead) => return Ok(part.succeeded),
            Err(NoOperation::Invalid | NoOperation::RowOutsideTable) => return Ok(false),
            Ok(operation) => operation,
        };
        // The master has removed an expired record, or is about to store another.
        if let Scope::Key(key) = operation.scope()
            && store.remove_expired(key)?
            && matches!(operation, Operation::Write(Write { action: Action::Remove, .. }))
        {
            return Ok(true);
        }
        let mut executor = Executor {
            store,
            may_wait: true,
            limit: ReplyLimit {
                bytes_max: usize::MAX,
                earlier_bytes: 0,
                budget: self.budget,
                charge: &mut None,
            },
            cas_numbers: &self.cas_numbers,
            entity_tags: self.entity_tags,
            scan_places: None,
            iterators: None,
            rights: None,
            has_changed: false,
            cause: None,
        };
        let mut number = None;
        match execute(&mut executor, operation, &mut number) {
            // Tokyo Tyrant logs this sum as a failure, though it is stored.
            Ok(Outcome::Done) if number == Some(Number::Sum(i32::MIN)) => Ok(part.succeeded),
            Ok(outcome) => Ok(outcome == Outcome::Done),
            // No client reads a long result.
            Err(Stop::TooLong) => Ok(true),
            Err(Stop::Blocked | Stop::Forbidden(_)) => Err(Error::WouldBlock),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Returns a digest of the records that an operation changes, if a second execution would be
    /// harmful, or `None` if it would not.
    pub(crate) fn state(&self, logged: &Logged<'_>) -> Option<u64> {
        match &logged.content {
            Content::One(part) => self.state_of(part.operation.as_ref().ok()?),
            // Their parts are resulting records, so they may be executed again, also after a part.
            Content::Together(_) => None,
        }
    }

    fn state_of(&self, operation: &Operation<'_>) -> Option<u64> {
        let database = &self.unlogged;
        let mut digest = Digest::default();
        let is_relative = |key: &[u8]| database.as_numbered().is_some() && is_relative(key);
        match operation {
            Operation::Write(Write { key, action, .. }) => match action {
                Action::Extend { .. }
                | Action::Shift { .. }
                | Action::AddInt(_)
                | Action::AddDouble(_) => self.digest_record(key, &mut digest),
                // The operation makes another record each time.
                _ if is_relative(key) => self.digest_record(key, &mut digest),
                // The operation concerns one of the values of a key.
                Action::Remove if database.has_duplicates() => {
                    self.digest_record(key, &mut digest);
                }
                _ => return None,
            },
            Operation::PutDuplicate { key, .. }
            | Operation::PutRow { key, mode: RowMode::Merge, .. } => {
                self.digest_record(key, &mut digest);
            }
            Operation::PutList { adds: true, .. } => {
                operation.keys().for_each(|key| self.digest_record(key, &mut digest));
            }
            Operation::PutList { .. } | Operation::RemoveList { .. } => {
                let mut keys = operation.keys().filter(|key| is_relative(key)).peekable();
                keys.peek()?;
                keys.for_each(|key| self.digest_record(key, &mut digest));
            }
            Operation::GenerateUid => digest.add(&database.last_uid().to_be_bytes()),
            Operation::Search(request) if request.out => {
                digest.add(&database.all_records().to_be_bytes())
            }
            _ => return None,
        }
        Some(digest.0)
    }

    fn digest_record(&self, key: &[u8], digest: &mut Digest) {
        let database = &self.unlogged;
        if database.has_duplicates() {
            for value in database.get_all(key).iter().flatten() {
                digest.add(value);
            }
            return;
        }
        if let Some(numbered) = database.as_numbered().filter(|_| is_relative(key)) {
            digest.add(&numbered.min().unwrap_or(0).to_be_bytes());
            digest.add(&numbered.max().unwrap_or(0).to_be_bytes());
        }
        if let Ok(Some(value)) = database.get(key) {
            digest.add(&value);
        }
    }
}

/// FNV-1a, with the length of each part after it. Digests are stored in a file, so the function
/// must not change.
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
    use crate::shared::Shared;
    use crate::store::strings;
    use cabinet::Database;
    use wire::binary::Function;

    const SOURCE: Source = Source { origin: 2, master: 2, root: None };

    fn logged<'a>(request: Request<'a>, succeeded: bool, shared: &Shared) -> Logged<'a> {
        let operation = wire::update_log::Operation { request, succeeded };
        Logged::of(operation, shared.served.model)
    }

    /// Returns the body of an entry of operations that were executed together, each with whether it
    /// succeeded.
    fn together(parts: &[(Request<'_>, bool)]) -> Vec<u8> {
        let mut bodies = wire::binary::StringsBuffer::default();
        let mut body = Vec::new();
        for (request, succeeded) in parts {
            body.clear();
            let part =
                wire::update_log::Operation { request: request.clone(), succeeded: *succeeded };
            part.encode(&mut body).expect("a short body");
            bodies.push(&body).expect("a short body");
        }
        body.clear();
        let whole = wire::update_log::Operation::transaction(bodies.strings());
        whole.encode(&mut body).expect("a short body");
        body
    }

    #[test]
    fn a_part_of_a_transaction_that_ends_otherwise_is_a_difference() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("casket.tcb");
        let disk = Database::open(path.to_str().expect("a name")).expect("a tree");
        let (clock, time) = cabinet::Clock::manual(1000);
        let mut options = cabinet::Options::default();
        options.clock = clock.handing_over(true);
        for database in [options.open("*").expect("a database in memory"), disk] {
            let shared = Shared::for_test(Config::default(), database.clone());
            let mut replayer = Replayer::new(&shared.served.database, &shared.served.budget);
            let mut differs = |part: (Request<'_>, bool)| {
                let body = together(&[(Request::Put { key: b"other", value: b"v" }, true), part]);
                let logged = Logged::parse(&body, shared.served.model).expect("an operation");
                let succeeded = replayer.replay(SOURCE, &logged).expect("room");
                replayer.differs(&logged, succeeded)
            };
            let out = || Request::Out { key: b"k" };
            let keep = |value| Request::PutKeep { key: b"k", value };
            assert!(differs((out(), true)) && !differs((out(), false)));
            assert!(!differs((keep(b"a"), true)) && differs((keep(b"b"), true)));
            assert!(differs((out(), false)) && !differs((keep(b"c"), true)));
            // Parts that cannot be one transaction here are executed one after the other.
            if database.has_duplicates() {
                database.put_duplicate(b"twice", b"1", cabinet::Side::After).expect("room");
                database.put_duplicate(b"twice", b"2", cabinet::Side::After).expect("room");
                let keys = strings(&[b"twice"]).expect("short arguments");
                let function = Function::from_name(b"outlist");
                let arguments = keys.strings();
                let removes = Request::Misc { function, options: 0, arguments };
                let body = together(&[(removes, true), (keep(b"d"), true)]);
                let logged = Logged::parse(&body, shared.served.model).expect("an operation");
                assert!(!replayer.replay(SOURCE, &logged).expect("room"));
                assert_eq!(database.count(b"twice").expect("a tree"), 0);
            } else {
                let meta = cabinet::Meta { flags: 0, expires_at_ms: 2000 };
                database.put_with(b"k", b"v", meta).expect("room");
                time.set(3000);
                // The master has removed the expired record.
                assert!(!differs((out(), true)));
            }
        }
    }

    #[test]
    fn a_sum_that_tokyo_tyrant_calls_a_failure_is_as_the_log_has_it() {
        let database = Database::open("*").expect("a database in memory");
        let shared = Shared::for_test(Config::default(), database);
        let mut replayer = Replayer::new(&shared.served.database, &shared.served.budget);
        for (addend, succeeded) in [(i32::MIN, false), (0, true), (1, true)] {
            let request = Request::AddInt { key: b"k", addend };
            let logged = logged(request, succeeded, &shared);
            assert_eq!(replayer.replay(SOURCE, &logged).expect("room"), succeeded, "{addend}");
        }
        let value = shared.served.database.get(b"k").expect("a database");
        assert_eq!(value, Some((i32::MIN + 1).to_le_bytes().to_vec()));
    }

    #[test]
    fn operations_that_are_executed_together_may_be_executed_again_after_a_part() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("casket.tcb");
        let disk = Database::open(path.to_str().expect("a name")).expect("a tree");
        for value in [b"a", b"b", b"c"] {
            disk.put_duplicate(b"k", value, cabinet::Side::After).expect("room");
        }
        let shared = Shared::for_test(Config::default(), disk.clone());
        let mut replayer = Replayer::new(&shared.served.database, &shared.served.budget);
        let calls: [(&[u8], &[&[u8]]); 3] =
            [(b"outlist", &[b"k"]), (b"put", &[b"k", b"b"]), (b"putlist", &[b"k", b"c"])];
        let arguments = calls.map(|(_, arguments)| strings(arguments).expect("short arguments"));
        let parts: Vec<_> = calls
            .iter()
            .zip(&arguments)
            .map(|((name, _), arguments)| {
                let function = Function::from_name(name);
                (Request::Misc { function, options: 0, arguments: arguments.strings() }, true)
            })
            .collect();
        let body = together(&parts);
        let logged = Logged::parse(&body, shared.served.model).expect("an operation");
        // A process was killed after the first part.
        disk.remove_all(b"k").expect("a tree");
        for _ in 0..2 {
            assert_eq!(replayer.state(&logged), None);
            assert!(replayer.replay(SOURCE, &logged).expect("room"));
            assert_eq!(disk.get_all(b"k").expect("a tree"), [b"b", b"c"]);
        }
    }

    #[test]
    fn logged_calls_that_read_end_as_they_were_logged_on_every_kind() {
        let shared = Shared::for_test(Config::default(), Database::open("*").expect("a database"));
        let mut replayer = Replayer::new(&shared.served.database, &shared.served.budget);
        for function in [Function::Range, Function::Search, Function::Defragment, Function::Get] {
            for succeeded in [true, false] {
                let arguments = strings(&[b"k"]).expect("short arguments");
                let request =
                    Request::Misc { function, options: 0, arguments: arguments.strings() };
                let logged = logged(request, succeeded, &shared);
                let ended = replayer.replay(SOURCE, &logged).expect("room");
                assert_eq!(ended, succeeded, "{function:?}");
            }
        }
    }

    #[test]
    fn requests_that_tokyo_tyrant_accepted_are_accepted_from_its_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("casket.tct");
        let database = Database::open(path.to_str().expect("a name")).expect("a database");
        let shared = Shared::for_test(Config::default(), database);
        let mut replayer = Replayer::new(&shared.served.database, &shared.served.budget);
        let mut repeat = |request: Request<'_>| {
            let logged = logged(request, true, &shared);
            assert!(replayer.replay(SOURCE, &logged).expect("room"), "{:?}", logged.request);
        };
        repeat(Request::Put { key: b"a", value: b"name\0x\0dangling" });
        repeat(Request::Put { key: b"b", value: b"hello" });
        repeat(Request::PutShift { key: b"e", value: b"name\0w\0dangling", width: 4 });
        repeat(Request::PutShift { key: b"f", value: b"hello", width: 2 });
        repeat(Request::Put { key: b"g", value: b"1\0z\0name\0y" });
        repeat(Request::PutShift { key: b"g", value: b"a\0b", width: 8 });
        repeat(Request::PutShift { key: b"g", value: b"\0c\0", width: 100 });
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
        let rows = |key: &[u8]| shared.served.database.get(key).expect("a table");
        assert_eq!(
            [b"a", b"b", b"c", b"d"].map(|key| rows(key)),
            [None, Some(Vec::new()), None, Some(Vec::new())]
        );
        assert_eq!(
            [b"e", b"f", b"g"].map(|key| rows(key)),
            [b"name\0w", &b""[..], b"ame\0ya\0c\0"].map(|row| Some(row.to_vec()))
        );
    }

    #[test]
    fn a_repeated_operation_that_would_make_another_record_of_a_fixed_length_database_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("casket.tcf");
        let database = Database::open(path.to_str().expect("a name")).expect("a database");
        for id in 10..30_u32 {
            database.put(id.to_string().as_bytes(), b"v").expect("room");
        }
        let shared = Shared::for_test(Config::default(), database);
        let mut replayer = Replayer::new(&shared.served.database, &shared.served.budget);
        // Returns the digest before an operation, and whether it differs after the operation.
        let mut looked = |request: &Request<'_>| {
            let logged = logged(request.clone(), true, &shared);
            let before = replayer.state(&logged);
            replayer.replay(SOURCE, &logged).expect("room");
            (before.is_some(), before != replayer.state(&logged))
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
            // The arguments are values.
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
