//! Import of the strings of a server of Redis's protocol, into a database or another such server.
//!
//! The place of an import is a cursor of its scan, with which a later import goes on. It is that of
//! the first step with a record that may not be stored: records wait in a batch or a pipeline, also
//! after the scan has gone on.

use super::source::{Found, Source};
use super::writer::{Refuse, Writer};
use super::{VALUE_BYTES_MAX, refusing, shown};
use crate::plural::counted;
use crate::remote::{RedisUrl, SecurityArgument};
use crate::say::say;
use crate::signals::Cleanup;
use crate::transfer::ids::{IdLimits, Refused};
use crate::transfer::progress::Progress;
use crate::transfer::target::{MadeDatabase, Target};
use anyhow::{Context, Result, bail, ensure};
use cabinet::Meta;
use cabinet::limits::KEY_BYTES_MAX;
use cabinet::name::{Kind, Specification};
use parking_lot::Mutex;
use server::{count_records, hidden_in, stored_expiry};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Types of records that are told apart; those of further modules are counted together.
const TYPES_MAX: usize = 16;

/// An import from a server.
pub(crate) struct Import<'a> {
    pub(crate) from: &'a RedisUrl,
    /// Name of a database, or URL of a server.
    pub(crate) into: &'a str,
    /// Cursor at which the scan begins.
    pub(crate) cursor: u64,
    pub(crate) security: &'a SecurityArgument,
}

impl Import<'_> {
    pub(crate) fn run(&self) -> Result<()> {
        // Without a source no database is created.
        let mut source = self.from.connect(self.security, VALUE_BYTES_MAX).and_then(Source::new)?;
        let (sink, database) = self.sink()?;
        let copy = Arc::new(Mutex::new(Copy::new(sink, self.cursor)));
        let copied = self.copy_all(&mut source, &copy);
        let (stored, conclusion) = {
            let copy = copy.lock();
            (copy.stored(), copy.conclude())
        };
        drop(copy);
        match (copied, database) {
            (Ok(Some(records)), Some((made, path))) => made.conclude(&path, records),
            (Ok(_), _) => {}
            (Err(error), database) => {
                if let Some((made, _)) = database.filter(|_| stored == 0) {
                    made.remove();
                }
                return Err(error);
            }
        }
        conclusion
    }

    /// Copies all records. Returns the number of those in the database, if they go into one.
    fn copy_all(&self, source: &mut Source, copy: &Arc<Mutex<Copy>>) -> Result<Option<u64>> {
        let progress = match source.count()? {
            Some(count) => Progress::of_records("importing", count),
            None => Progress::of_some_records("importing"),
        };
        let interruption = explain_interruption(&progress, copy)?;
        self.copy(source, copy, &progress).with_context(|| {
            let mut copy = copy.lock();
            // The first error is the one to show.
            let _ = copy.finish(&progress);
            let stored = counted(copy.stored(), "record was", "records were");
            format!("{stored} imported; {}", rest(copy.resumption))
        })?;
        drop(interruption);
        drop(progress);
        let copy = copy.lock();
        say!("{} from {}", counted(copy.stored(), "record", "records"), self.from);
        match &copy.sink {
            Sink::Database { target, .. } => Ok(Some(count_records(target.database())?)),
            Sink::Server(_) => Ok(None),
        }
    }

    /// Returns the destination, and the database if it is one.
    fn sink(&self) -> Result<(Sink, Option<(MadeDatabase, PathBuf)>)> {
        if RedisUrl::is_url(self.into) {
            let url = RedisUrl::parse(self.into)?;
            let writer = Writer::new(url.connect(self.security, VALUE_BYTES_MAX)?);
            return Ok((Sink::Server(writer), None));
        }
        let specification = Specification::parse(self.into)?;
        ensure!(
            specification.kind != Kind::Table,
            "a table takes rows, and Redis has none: name a hash database (.tch) or a tree (.tcb)"
        );
        let opening = Progress::of_time("opening").explain("nothing was imported");
        let made = MadeDatabase::before(&specification);
        let target = Box::new(Target::open(&specification)?);
        drop(opening);
        let sink = Sink::Database { limits: target.id_limits(), target };
        Ok((sink, Some((made, specification.path))))
    }

    fn copy(
        &self,
        source: &mut Source,
        copy: &Arc<Mutex<Copy>>,
        progress: &Progress,
    ) -> Result<()> {
        loop {
            let cursor = copy.lock().cursor;
            let (next, keys) = source.scan(cursor)?;
            source.read(&keys, |key, found| copy.lock().take(key, found, progress))?;
            let mut copy = copy.lock();
            copy.cursor = next;
            copy.note_stored();
            progress.advance(keys.len() as u64);
            if next == 0 {
                return copy.finish(progress);
            }
        }
    }
}

/// Makes a signal that ends the program store the records that were read, and print how to
/// import the others.
fn explain_interruption(progress: &Progress, copy: &Arc<Mutex<Copy>>) -> Result<Cleanup> {
    let (bar, copy) = (progress.bar(), Arc::clone(copy));
    Cleanup::on_signals(move || {
        bar.finish_and_clear();
        let mut copy = copy.lock();
        let flushed = copy.sink.flush(&mut |_, _| {});
        let stored = copy.settle(flushed);
        let (count, cursor) = (copy.stored(), copy.resumption);
        eprint!("tyrant: interrupted after {}; ", counted(count, "record", "records"));
        match stored {
            Ok(()) => eprintln!("they are stored; {}", rest(cursor)),
            Err(error) => eprintln!("not all are stored: {}", crate::describe(&error)),
        }
    })
}

/// Returns how to import the records from a cursor on.
fn rest(cursor: u64) -> String {
    match cursor {
        0 => "the same command imports all of them again".to_owned(),
        cursor => format!(
            "the same command with --cursor {cursor} imports the rest; the cursor is valid on this \
             server alone, until it restarts"
        ),
    }
}

/// Destination of the records.
enum Sink {
    Database { target: Box<Target>, limits: Option<IdLimits> },
    Server(Writer),
}

impl Sink {
    fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        expires_at_ms: u64,
        refuse: &mut Refuse<'_>,
    ) -> Result<()> {
        let (target, limits) = match self {
            Self::Server(writer) => return writer.put(key, value, expires_at_ms, refuse),
            Self::Database { target, limits } => (target, limits),
        };
        if let Some(reason) = refusal(target, *limits, key, value) {
            refuse(key, &reason);
            return Ok(());
        }
        let expires_at_ms = if expires_at_ms == 0 { 0 } else { stored_expiry(expires_at_ms) };
        target.put(key, value, Meta { flags: 0, expires_at_ms })
    }

    /// Stores the records that wait.
    fn flush(&mut self, refuse: &mut Refuse<'_>) -> Result<()> {
        match self {
            Self::Server(writer) => writer.flush(refuse),
            Self::Database { target, .. } => target.flush(),
        }
    }

    /// Returns whether no record waits to be stored.
    fn is_flushed(&self) -> bool {
        match self {
            Self::Server(writer) => writer.is_flushed(),
            Self::Database { target, .. } => target.is_flushed(),
        }
    }

    /// Makes the stored records durable, in a database.
    fn sync(&self) -> Result<()> {
        match self {
            Self::Server(_) => Ok(()),
            Self::Database { target, .. } => Ok(target.database().sync()?),
        }
    }
}

/// Returns why a database cannot have a record, or `None` if it can.
fn refusal(target: &Target, limits: Option<IdLimits>, key: &[u8], value: &[u8]) -> Option<String> {
    if key.len() > KEY_BYTES_MAX {
        return Some(format!("it has {} bytes, and a key at most {KEY_BYTES_MAX}", key.len()));
    }
    if hidden_in(target.database())(key) {
        return Some("keys with this beginning are those of the server".to_owned());
    }
    limits.and_then(|limits| limits.refusal(key, value))
}

/// State of a copy.
struct Copy {
    sink: Sink,
    /// Cursor of the first step.
    first: u64,
    /// Cursor of the step that is under way.
    cursor: u64,
    /// Cursor of the first step with a record that may not be stored.
    resumption: u64,
    refused: Refused,
    /// Records of other types: their number, and a key of one.
    others: BTreeMap<String, (u64, Vec<u8>)>,
}

impl Copy {
    fn new(sink: Sink, cursor: u64) -> Self {
        Self {
            sink,
            first: cursor,
            cursor,
            resumption: cursor,
            refused: Refused::default(),
            others: BTreeMap::new(),
        }
    }

    fn stored(&self) -> u64 {
        match &self.sink {
            Sink::Server(writer) => writer.stored(),
            Sink::Database { target, .. } => target.stored(),
        }
    }

    fn take(&mut self, key: &[u8], found: Found<'_>, progress: &Progress) -> Result<()> {
        let Self { sink, refused, .. } = self;
        let mut refuse = refusing(refused, progress);
        match found {
            Found::String(value, expires_at_ms) => {
                sink.put(key, value, expires_at_ms, &mut refuse)?;
                drop(refuse);
                self.note_stored();
            }
            Found::Oversized(length) => refuse(
                key,
                &format!("its value has {length} bytes, and at most {VALUE_BYTES_MAX} are copied"),
            ),
            Found::Refused(reason) => refuse(key, &reason),
            Found::Other(name) => {
                drop(refuse);
                self.count_other(name, key);
            }
        }
        Ok(())
    }

    fn count_other(&mut self, name: String, key: &[u8]) {
        let is_known = self.others.contains_key(&name) || self.others.len() < TYPES_MAX;
        let name = if is_known { name } else { "another".to_owned() };
        let (count, _) = self.others.entry(name).or_insert_with(|| (0, key.to_vec()));
        *count += 1;
    }

    /// Moves the place to go on to the step under way, once no record of an earlier one waits.
    fn note_stored(&mut self) {
        if self.sink.is_flushed() {
            self.resumption = self.cursor;
        }
    }

    /// Returns once all records are stored, in a database durably.
    fn finish(&mut self, progress: &Progress) -> Result<()> {
        let Self { sink, refused, .. } = self;
        let flushed = sink.flush(&mut refusing(refused, progress));
        self.settle(flushed)
    }

    /// Makes what is stored durable after the last flush.
    fn settle(&mut self, flushed: Result<()>) -> Result<()> {
        self.note_stored();
        // Records of any step may be lost then.
        self.sink.sync().inspect_err(|_| self.resumption = self.first)?;
        flushed
    }

    /// Fails if not everything was imported.
    fn conclude(&self) -> Result<()> {
        let mut lacking: Vec<String> = self
            .others
            .iter()
            .map(|(name, (count, key))| format!("{count} of type {name} (as {})", shown(key)))
            .collect();
        if self.refused.count > 0 {
            lacking.push(format!("{} named above", self.refused.count));
        }
        let count: u64 = self.others.values().map(|(count, _)| count).sum();
        match count + self.refused.count {
            0 => Ok(()),
            count => bail!(
                "{} not imported: {}; everything else was; values are strings here",
                counted(count, "record was", "records were"),
                lacking.join(", ")
            ),
        }
    }
}
