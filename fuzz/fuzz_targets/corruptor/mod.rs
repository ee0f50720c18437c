//! Corruptor: a database with corrupted files opens or is refused, and if it opens, it works.
//!
//! An input is a list of changes to the files of a small database. Most changes break a checksum.
//! So an input may request that all checksums be recomputed afterwards, which tests the code with
//! fields that no correct writer has written.

mod sign;

use cabinet::testing::{FaultyStorage, Open, Storage};
use cabinet::{Batch, Clock, Compression, Database, Engine, Error, Meta, Options};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

const KEYS: usize = 12;
const NOW_MS: u64 = 1_000_000;

/// Kind of database.
pub trait Kind: Sized {
    /// Path of the file.
    const PATH: &str;
    /// Number of the kind in the manifest.
    const NUMBER: u8;
    /// Further parameters in the manifest.
    const PARAMETERS: [u64; 3] = [0; 3];
    /// Whether the contents of its files may truncate values.
    const CUTS_VALUES: bool = false;
    /// Whether a later opening may read more than an earlier one, and so find damage later.
    const MEETS_DAMAGE_LATER: bool = false;

    fn open(storage: Arc<dyn Storage>, options: &Options) -> cabinet::Result<Self>;

    fn engine(&self) -> Arc<dyn Engine>;

    fn database(&self) -> Database {
        Database::from_engine(self.engine())
    }

    fn run_maintenance(&self) -> cabinet::Result<()>;

    fn checkpoint(&self) -> cabinet::Result<()>;

    /// Does further operations of this kind.
    fn serve(&self) {}
}

/// Implements the part of a [`Kind`] that only wraps an engine, for a tuple struct around it. Not
/// all targets need it.
#[macro_export]
macro_rules! cover {
    ($engine:ty) => {
        fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
            let opened = <$engine>::open_on(storage, Path::new(Self::PATH), options, false)?;
            Ok(Self(Arc::new(opened)))
        }

        fn engine(&self) -> Arc<dyn Engine> {
            Arc::clone(&self.0) as _
        }

        fn run_maintenance(&self) -> Result<()> {
            self.0.run_maintenance()
        }

        fn checkpoint(&self) -> Result<()> {
            self.0.checkpoint()
        }
    };
}
/// Contents of files by name.
pub type Files = BTreeMap<String, Vec<u8>>;

#[derive(Arbitrary, Debug)]
pub struct Input {
    /// Database to change.
    base: u8,
    /// Whether checksums are recomputed afterwards.
    sign: bool,
    edits: Vec<Edit>,
}

/// Change of one file, which is given by its index.
#[derive(Arbitrary, Debug)]
enum Edit {
    Overwrite {
        file: u8,
        offset: u16,
        bytes: Vec<u8>,
    },
    /// Sets a number of eight bytes, like most fields.
    Number {
        file: u8,
        word: u8,
        number: u64,
    },
    /// Like `Number`, counted from the end.
    NumberFromEnd {
        file: u8,
        word: u8,
        number: u64,
    },
    Insert {
        file: u8,
        offset: u16,
        bytes: Vec<u8>,
    },
    Cut {
        file: u8,
        length: u16,
    },
    Replace {
        file: u8,
        bytes: Vec<u8>,
    },
    Remove {
        file: u8,
    },
    /// Gives the file the name of another, and if it is a segment, the number.
    Renumber {
        file: u8,
        number: u64,
        copy: bool,
    },
    /// Changes only the name, to another spelling.
    Rename {
        file: u8,
        digits: u8,
        number: u16,
    },
}

/// Databases that inputs change.
pub type Bases = OnceLock<[Files; 3]>;

/// Applies the changes of an input to one of the databases, and uses the result.
pub fn run<K: Kind>(bases: &Bases, input: &Input) {
    let bases = bases.get_or_init(make_bases::<K>);
    let mut files = bases[usize::from(input.base) % bases.len()].clone();
    for edit in &input.edits {
        apply(edit, &mut files);
    }
    if input.sign {
        sign::sign(&mut files);
    }
    let storage = FaultyStorage::new();
    for (name, contents) in &files {
        let file = storage.open(&Path::new(K::PATH).join(name), Open::New).expect("a new file");
        file.write_at(contents, 0).expect("room");
    }
    serve::<K>(&storage);
}

/// Keys and a value for every kind: ids, and a column of a row.
const NEW: &[u8] = b"1000";
const TWO: &[u8] = b"1002";
const VALUE: &[u8] = b"column\0value";

/// Opens a database in any state, and uses it if it opens.
fn serve<K: Kind>(storage: &FaultyStorage) {
    let Some((kind, database)) = open::<K>(storage) else { return };
    for number in 0..KEYS {
        let _ = database.get(&key(number));
        let _ = database.value_size(&key(number));
    }
    let _ = database.for_each(|_| ControlFlow::Continue(()));
    let _ = database.keys_with_prefix(b"", None);
    let _ = (database.len(), database.size_bytes(), database.stats());

    let stored = database.put(NEW, VALUE).is_ok();
    let _ = database.put_cat(&key(1), VALUE);
    let _ = database.remove(&key(2));
    let mut batch = Batch::new();
    batch.put(b"1001", &[1; 3000], Meta::NONE);
    batch.put(TWO, VALUE, Meta { flags: 3, expires_at_ms: NOW_MS + 1 });
    batch.remove(&key(3));
    let stored_batch = database.write(&batch).is_ok();
    let check = |database: &Database| {
        for (key, _) in [(NEW, stored), (TWO, stored_batch)].iter().filter(|(_, stored)| *stored) {
            let found = database.get(key).expect("a read").expect("what was stored");
            assert!(found == VALUE || K::CUTS_VALUES && VALUE.starts_with(&found));
        }
    };
    check(&database);
    kind.serve();
    let _ = kind.run_maintenance();
    check(&database);
    let _ = kind.checkpoint();
    let _ = database.optimize();
    check(&database);
    drop((kind, database));

    let (_kind, database) = match try_open::<K>(storage) {
        Err(Error::Corrupted { .. }) if K::MEETS_DAMAGE_LATER => return,
        opened => opened.expect("what was closed opens again"),
    };
    check(&database);
    assert!(database.clear().is_err() || database.len() == 0);
}

fn open<K: Kind>(storage: &FaultyStorage) -> Option<(K, Database)> {
    try_open(storage).ok()
}

fn try_open<K: Kind>(storage: &FaultyStorage) -> Result<(K, Database), Error> {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    options.clock = Clock::manual(NOW_MS).0;
    options.compression = Compression::Lz4;
    options.leaf_bytes = Some(256);
    let kind = K::open(Arc::new(storage.clone()), &options)?;
    let database = kind.database();
    Ok((kind, database))
}

fn key(number: usize) -> Vec<u8> {
    (number + 1).to_string().into_bytes()
}

/// Returns databases to change: closed; killed some time after a checkpoint; killed without one.
fn make_bases<K: Kind>() -> [Files; 3] {
    let storage = FaultyStorage::new();
    let path = Path::new(K::PATH).join("manifest");
    let file = storage.open(&path, Open::New).expect("a new file");
    file.write_at(&sign::manifest(K::NUMBER, K::PARAMETERS), 0).expect("room");

    let (kind, database) = open::<K>(&storage).expect("a new database");
    for number in 0..KEYS {
        let value = [VALUE, &vec![b'v'; 10 * number]].concat();
        let expires_at_ms = if number % 4 == 1 { NOW_MS + number as u64 } else { 0 };
        let meta = Meta { flags: number as u32 % 3, expires_at_ms };
        database.put_with(&key(number), &value, meta).expect("room");
        if number % 5 == 4 {
            // Seals the segment, so that there are several small ones.
            database.optimize().expect("room");
        }
    }
    let without = read::<K>(&storage.kill());
    kind.checkpoint().expect("room");
    let mut batch = Batch::new();
    batch.put(&key(0), VALUE, Meta::NONE);
    batch.put(b"500", VALUE, Meta { flags: 7, expires_at_ms: 0 });
    batch.remove(&key(1));
    database.write(&batch).expect("room");
    database.remove(&key(2)).expect("room");
    database.put(&key(3), VALUE).expect("room");
    let killed = read::<K>(&storage.kill());
    drop((kind, database));
    [read::<K>(&storage), killed, without]
}

/// Returns all files of the database, without most of the zeros at their ends.
fn read<K: Kind>(storage: &FaultyStorage) -> Files {
    let mut files = Files::new();
    for name in storage.list(Path::new(K::PATH)).expect("a listing") {
        let path = Path::new(K::PATH).join(&name);
        let file = storage.open(&path, Open::Existing).expect("a file");
        let mut contents = vec![0; file.length().expect("a length") as usize];
        file.read_at(&mut contents, 0).expect("a read");
        let end = contents.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        contents.truncate(end.next_multiple_of(64));
        files.insert(name, contents);
    }
    files
}

fn apply(edit: &Edit, files: &mut Files) {
    let place = match edit {
        Edit::Overwrite { file, .. }
        | Edit::Number { file, .. }
        | Edit::NumberFromEnd { file, .. }
        | Edit::Insert { file, .. }
        | Edit::Cut { file, .. }
        | Edit::Replace { file, .. }
        | Edit::Remove { file }
        | Edit::Renumber { file, .. }
        | Edit::Rename { file, .. } => usize::from(*file),
    };
    if files.is_empty() {
        return;
    }
    let Some(name) = files.keys().nth(place % files.len()).cloned() else { return };
    let Some(contents) = files.get_mut(&name) else { return };
    match edit {
        Edit::Overwrite { offset, bytes, .. } => overwrite(contents, (*offset).into(), bytes),
        Edit::Number { word, number, .. } => {
            overwrite(contents, usize::from(*word) * 8, &number.to_le_bytes());
        }
        Edit::NumberFromEnd { word, number, .. } => {
            let offset = contents.len().saturating_sub(usize::from(*word) * 4);
            overwrite(contents, offset, &number.to_le_bytes());
        }
        Edit::Insert { offset, bytes, .. } => {
            let offset = usize::from(*offset).min(contents.len());
            contents.splice(offset..offset, bytes.iter().copied());
        }
        Edit::Cut { length, .. } => contents.truncate((*length).into()),
        Edit::Replace { bytes, .. } => *contents = bytes.clone(),
        Edit::Remove { .. } => {
            files.remove(&name);
        }
        Edit::Renumber { number, copy, .. } => {
            let mut contents = contents.clone();
            overwrite(&mut contents, 16, &number.to_le_bytes());
            if !copy {
                files.remove(&name);
            }
            files.insert(format!("{number:010}.log"), contents);
        }
        Edit::Rename { digits, number, .. } => {
            let contents = contents.clone();
            let digits = usize::from(*digits % 32);
            files.insert(format!("{number:0digits$}.log"), contents);
        }
    }
}

fn overwrite(contents: &mut [u8], offset: usize, bytes: &[u8]) {
    let Some(target) = contents.get_mut(offset..) else { return };
    let count = target.len().min(bytes.len());
    target[..count].copy_from_slice(&bytes[..count]);
}
