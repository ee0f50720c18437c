//! Subjects: the engines under test, with their crashes.

use crate::disk::{DiskEngine, TableDatabase};
use crate::in_runs::HashInRuns;
use crate::mapped::{COLUMNS, Mapped, Numbers, Rows};
use cabinet::table::{IndexChange, IndexKind};
use cabinet::testing::FaultyStorage;
use cabinet::{
    Clock, Compression, Database, Durability, Engine, FixedDatabase, HashDatabase, Options,
    TreeDatabase,
};
use std::path::Path;
use std::sync::Arc;

/// An engine under test, and the events that it must survive.
pub(crate) trait Subject: Sized {
    /// Whether the engine keeps the flags and the expiry of a record.
    const KEEPS_META: bool = true;

    /// Whether a crash may lose changes that were not acknowledged. Otherwise it loses nothing.
    const LOSES: bool = false;

    /// Creates an empty database with this clock.
    fn new(clock: Clock) -> Self;

    /// Returns the open database.
    fn database(&self) -> &Database;

    /// Does the background work once.
    fn run_maintenance(&mut self) {}

    /// Changes something other than records.
    fn rearrange(&mut self, _choice: u8) {}

    /// Checks invariants other than the records.
    fn check(&self) {}

    /// Closes the database cleanly and reopens it. All records must be found.
    fn reopen(&mut self) {}

    /// Crashes the database and reopens it. All acknowledged changes must be found.
    fn crash(&mut self) {}
}

fn options(clock: Clock) -> Options {
    let mut options = Options::default();
    options.compression = Compression::Lz4;
    options.clock = clock;
    options
}

/// `*`.
pub(crate) struct MemoryHash(Database);

impl Subject for MemoryHash {
    fn new(clock: Clock) -> Self {
        Self(options(clock).open("*").unwrap())
    }

    fn database(&self) -> &Database {
        &self.0
    }
}

/// `+`.
pub(crate) struct MemoryTree(Database);

impl Subject for MemoryTree {
    fn new(clock: Clock) -> Self {
        Self(options(clock).open("+").unwrap())
    }

    fn database(&self) -> &Database {
        &self.0
    }
}

/// A disk database that must behave as a map from keys to values.
pub(crate) trait Modelled: DiskEngine {
    /// Like [`Subject::KEEPS_META`].
    const KEEPS_META: bool = true;

    /// Returns the engine, adapted to any bytes as keys and values.
    fn map(&self) -> Arc<dyn Engine> {
        self.engine()
    }

    /// Like [`Subject::rearrange`].
    fn rearrange(&self, _choice: u8) {}

    /// Like [`Subject::check`].
    fn check(&self) {}
}

impl Modelled for Arc<HashDatabase> {}

impl Modelled for HashInRuns {}

impl Modelled for Arc<TreeDatabase> {}

impl Modelled for Arc<FixedDatabase> {
    fn map(&self) -> Arc<dyn Engine> {
        Arc::new(Mapped::<Numbers>::new(self.engine()))
    }
}

impl Modelled for TableDatabase {
    const KEEPS_META: bool = false;

    fn map(&self) -> Arc<dyn Engine> {
        Arc::new(Mapped::<Rows>::new(self.engine()))
    }

    /// Builds the index of a column, or removes it.
    fn rearrange(&self, choice: u8) {
        use IndexKind::{Decimal, Gram, Lexical, Token};
        let number = usize::from(choice) % COLUMNS.len();
        let kind = [Lexical, Decimal, Token, Gram][number];
        if choice < 64 {
            // There may be no index.
            let _ = self.table.set_index(COLUMNS[number], IndexChange::Remove);
        } else {
            self.table.set_index(COLUMNS[number], IndexChange::Set(kind)).unwrap();
        }
    }

    /// Checks that every row has its postings, and every posting its row.
    fn check(&self) {
        self.table.check_indices().unwrap();
    }
}

/// A database on a storage in memory whose process is killed.
pub(crate) struct Killed<E: Modelled>(Disk<E>);

impl<E: Modelled> Subject for Killed<E> {
    const KEEPS_META: bool = E::KEEPS_META;

    fn new(clock: Clock) -> Self {
        Self(Disk::new(Durability::None, clock))
    }

    fn database(&self) -> &Database {
        &self.0.opened().database
    }

    fn run_maintenance(&mut self) {
        self.0.run_maintenance();
    }

    fn rearrange(&mut self, choice: u8) {
        self.0.opened().engine.rearrange(choice);
    }

    fn check(&self) {
        self.0.opened().engine.check();
    }

    fn reopen(&mut self) {
        self.0.reopen();
    }

    fn crash(&mut self) {
        let left = self.0.storage.kill();
        self.0.reopen_on(left);
    }
}

/// A database on a storage in memory that loses unsynced changes. Its writes return before they are
/// acknowledged.
pub(crate) struct PowerLost<E: Modelled> {
    disk: Disk<E>,
    /// State of the generator that decides which sectors survive.
    chance: u64,
}

impl<E: Modelled> Subject for PowerLost<E> {
    const KEEPS_META: bool = E::KEEPS_META;
    const LOSES: bool = true;

    fn new(clock: Clock) -> Self {
        Self { disk: Disk::new(Durability::Always, clock), chance: 1 }
    }

    fn database(&self) -> &Database {
        &self.disk.opened().database
    }

    fn run_maintenance(&mut self) {
        self.disk.run_maintenance();
    }

    fn rearrange(&mut self, choice: u8) {
        // Makes each history lose other sectors.
        self.chance ^= u64::from(choice) << 32;
        self.disk.opened().engine.rearrange(choice);
    }

    fn check(&self) {
        self.disk.opened().engine.check();
    }

    fn reopen(&mut self) {
        self.disk.reopen();
    }

    fn crash(&mut self) {
        let chance = &mut self.chance;
        let left = self.disk.storage.lose_power(|| {
            *chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *chance >> 33
        });
        self.disk.reopen_on(left);
    }
}

/// A database on a storage in memory.
struct Disk<E> {
    storage: FaultyStorage,
    options: Options,
    opened: Option<Opened<E>>,
}

struct Opened<E> {
    engine: E,
    database: Database,
}

impl<E: Modelled> Disk<E> {
    fn new(durability: Durability, clock: Clock) -> Self {
        let mut options = options(clock);
        options.durability = durability;
        // Segments are as small as allowed, so that there are many, and compaction has work.
        options.segment_bytes = Some(64 << 10);
        let mut disk = Self { storage: FaultyStorage::new(), options, opened: None };
        disk.reopen();
        disk
    }

    fn opened(&self) -> &Opened<E> {
        self.opened.as_ref().expect("it is open")
    }

    fn run_maintenance(&mut self) {
        self.opened().engine.run_maintenance().unwrap();
        // A checkpoint is due only after many bytes.
        self.opened().engine.checkpoint().unwrap();
    }

    fn reopen(&mut self) {
        self.opened = None;
        let engine = E::open(Arc::new(self.storage.clone()), &self.options).unwrap();
        let database = Database::from_engine(engine.map()).deferred();
        self.opened = Some(Opened { engine, database });
    }

    /// Opens the storage that is left after the crash. Changes that the old handle makes when it
    /// closes go to the old storage.
    ///
    /// A crash must leave no damage that checking or opening finds.
    fn reopen_on(&mut self, storage: FaultyStorage) {
        let path = Path::new(E::PATH);
        let report = &mut |damage| panic!("{damage}");
        cabinet::testing::check_on(&storage, path, &|_| true, report).unwrap();
        self.storage = storage;
        self.reopen();
        assert_eq!(self.opened().engine.database().damages(), []);
    }
}
