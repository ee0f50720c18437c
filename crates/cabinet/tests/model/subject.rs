//! Engines under test.

use cabinet::io::FaultyStorage;
use cabinet::{Clock, Compression, Database, Durability, HashDatabase, Options};
use std::path::Path;
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

/// `.tch` on a storage in memory, whose process gets killed.
pub(crate) struct HashKilled(Disk);

impl Subject for HashKilled {
    fn new(clock: Clock) -> Self {
        Self(Disk::new(Durability::None, clock))
    }

    fn database(&self) -> &Database {
        &self.0.opened().database
    }

    fn tend(&mut self) {
        self.0.opened().engine.tend().unwrap();
    }

    fn reopen(&mut self) {
        self.0.reopen();
    }

    fn crash(&mut self) {
        let left = self.0.storage.kill();
        self.0.go_on(left);
    }
}

/// `.tch` on a storage in memory that loses what was not synced, with all writes synced.
pub(crate) struct HashPowerLost {
    disk: Disk,
    /// State of the generator that decides which sectors survive.
    chance: u64,
}

impl Subject for HashPowerLost {
    fn new(clock: Clock) -> Self {
        Self { disk: Disk::new(Durability::Always, clock), chance: 1 }
    }

    fn database(&self) -> &Database {
        &self.disk.opened().database
    }

    fn tend(&mut self) {
        self.disk.opened().engine.tend().unwrap();
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

/// A hash database on a storage in memory.
struct Disk {
    storage: FaultyStorage,
    options: Options,
    opened: Option<Opened>,
}

struct Opened {
    engine: Arc<HashDatabase>,
    database: Database,
}

impl Disk {
    fn new(durability: Durability, clock: Clock) -> Self {
        let mut options = options(clock);
        options.durability = durability;
        // As small as they may be, so that there are many and compaction has work.
        options.segment_bytes = Some(64 << 10);
        let mut disk = Self { storage: FaultyStorage::new(), options, opened: None };
        disk.reopen();
        disk
    }

    fn opened(&self) -> &Opened {
        self.opened.as_ref().expect("it is open")
    }

    fn reopen(&mut self) {
        self.opened = None;
        let storage = Arc::new(self.storage.clone());
        let path = Path::new("casket.tch");
        let engine = HashDatabase::open_on(storage, path, &self.options, false).unwrap();
        let engine = Arc::new(engine);
        let database = Database::from_engine(Arc::clone(&engine) as _);
        self.opened = Some(Opened { engine, database });
    }

    /// Opens what is left after the crash. What the old handle does on closing happens to
    /// the old storage.
    fn go_on(&mut self, storage: FaultyStorage) {
        self.storage = storage;
        self.reopen();
    }
}
