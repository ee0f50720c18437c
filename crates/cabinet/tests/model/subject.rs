//! Engines under test.

use crate::named::Named;
use crate::on_disk::OnDisk;
use cabinet::io::FaultyStorage;
use cabinet::{
    Clock, Compression, Database, Durability, FixedDatabase, HashDatabase, Options, TreeDatabase,
};
use std::sync::Arc;

/// An engine that can be tested, and what may befall it.
pub(crate) trait Subject: Sized {
    /// An empty database that goes by `clock`.
    fn new(clock: Clock) -> Self;

    /// The database as it is open now.
    fn database(&self) -> &Database;

    /// Has it do what it otherwise does in the background.
    fn tend(&mut self) {}

    /// Closes it in good order and opens it again. All must be there.
    fn reopen(&mut self) {}

    /// Has it die and opens it again. All that was acknowledged must be there.
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
        Self(Database::open_with("*", &options(clock)).unwrap())
    }

    fn database(&self) -> &Database {
        &self.0
    }
}

/// `+`.
pub(crate) struct MemoryTree(Database);

impl Subject for MemoryTree {
    fn new(clock: Clock) -> Self {
        Self(Database::open_with("+", &options(clock)).unwrap())
    }

    fn database(&self) -> &Database {
        &self.0
    }
}

/// An engine that is to behave as a map from keys to values.
pub(crate) trait Modelled: OnDisk {
    /// The database, with any bytes for keys.
    fn database(engine: &Arc<Self>) -> Database {
        Database::from_engine(Arc::clone(engine) as _)
    }
}

impl Modelled for HashDatabase {}

impl Modelled for TreeDatabase {}

impl Modelled for FixedDatabase {
    fn database(engine: &Arc<Self>) -> Database {
        Database::from_engine(Arc::new(Named(Arc::clone(engine))))
    }
}

/// `.tch` on a storage in memory, whose process gets killed.
pub(crate) type HashKilled = Killed<HashDatabase>;

/// `.tch` on a storage in memory that loses what was not synced, with all writes synced.
pub(crate) type HashPowerLost = PowerLost<HashDatabase>;

/// `.tcb`, as above.
pub(crate) type TreeKilled = Killed<TreeDatabase>;

/// `.tcb`, as above.
pub(crate) type TreePowerLost = PowerLost<TreeDatabase>;

/// `.tcf`, as above.
pub(crate) type FixedKilled = Killed<FixedDatabase>;

/// `.tcf`, as above.
pub(crate) type FixedPowerLost = PowerLost<FixedDatabase>;

pub(crate) struct Killed<E: Modelled>(Disk<E>);

impl<E: Modelled> Subject for Killed<E> {
    fn new(clock: Clock) -> Self {
        Self(Disk::new(Durability::None, clock))
    }

    fn database(&self) -> &Database {
        &self.0.opened().database
    }

    fn tend(&mut self) {
        self.0.opened().engine.tend().unwrap();
        // One is due only after many bytes.
        self.0.opened().engine.checkpoint().unwrap();
    }

    fn reopen(&mut self) {
        self.0.reopen();
    }

    fn crash(&mut self) {
        let left = self.0.storage.kill();
        self.0.go_on(left);
    }
}

pub(crate) struct PowerLost<E: Modelled> {
    disk: Disk<E>,
    /// State of the generator that decides which sectors survive.
    chance: u64,
}

impl<E: Modelled> Subject for PowerLost<E> {
    fn new(clock: Clock) -> Self {
        Self { disk: Disk::new(Durability::Always, clock), chance: 1 }
    }

    fn database(&self) -> &Database {
        &self.disk.opened().database
    }

    fn tend(&mut self) {
        self.disk.opened().engine.tend().unwrap();
        self.disk.opened().engine.checkpoint().unwrap();
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
        self.disk.go_on(left);
    }
}

/// A database on a storage in memory.
struct Disk<E> {
    storage: FaultyStorage,
    options: Options,
    opened: Option<Opened<E>>,
}

struct Opened<E> {
    engine: Arc<E>,
    database: Database,
}

impl<E: Modelled> Disk<E> {
    fn new(durability: Durability, clock: Clock) -> Self {
        let mut options = options(clock);
        options.durability = durability;
        // As small as they may be, so that there are many and compaction has work.
        options.segment_bytes = Some(64 << 10);
        let mut disk = Self { storage: FaultyStorage::new(), options, opened: None };
        disk.reopen();
        disk
    }

    fn opened(&self) -> &Opened<E> {
        self.opened.as_ref().expect("it is open")
    }

    fn reopen(&mut self) {
        self.opened = None;
        let engine = Arc::new(E::open(Arc::new(self.storage.clone()), &self.options).unwrap());
        let database = E::database(&engine);
        self.opened = Some(Opened { engine, database });
    }

    /// Opens what is left after the crash. What the old handle does on closing happens to
    /// the old storage.
    fn go_on(&mut self, storage: FaultyStorage) {
        self.storage = storage;
        self.reopen();
    }
}
