//! A database whose files somebody has tampered with opens or is refused; what opens serves.
//!
//! An input is a list of changes to the files of a small database. Most of them break a checksum,
//! so an input may ask for all checksums to be made good again afterwards: what is looked at then
//! is what the code makes of fields that no honest writer has written.
#![no_main]

mod sign;

use cabinet::io::{FaultyStorage, Open, Storage};
use cabinet::{Batch, Clock, Compression, Database, Engine, HashDatabase, Meta, Options};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

const DIRECTORY: &str = "casket.tch";
const KEYS: usize = 12;
const NOW_MS: u64 = 1_000_000;

/// Contents by name.
type Files = BTreeMap<String, Vec<u8>>;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Which of the databases the changes are made to.
    base: u8,
    /// The checksums are made good afterwards.
    sign: bool,
    edits: Vec<Edit>,
}

/// A change of one file, which is named by its place among all.
#[derive(Arbitrary, Debug)]
enum Edit {
    Overwrite {
        file: u8,
        offset: u16,
        bytes: Vec<u8>,
    },
    /// A number of eight bytes, which is what most fields are.
    Number {
        file: u8,
        word: u8,
        number: u64,
    },
    /// The same, counted from the end.
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
    /// Gives the file the name, and if it is a segment the number, of another.
    Renumber {
        file: u8,
        number: u64,
        copy: bool,
    },
    /// The name alone, as somebody else might write it.
    Rename {
        file: u8,
        digits: u8,
        number: u16,
    },
}

fuzz_target!(|input: Input| {
    let bases = bases();
    let mut files = bases[usize::from(input.base) % bases.len()].clone();
    for edit in &input.edits {
        apply(edit, &mut files);
    }
    if input.sign {
        sign::sign(&mut files);
    }
    let storage = FaultyStorage::new();
    for (name, contents) in &files {
        let file = storage.open(&Path::new(DIRECTORY).join(name), Open::New).expect("a new file");
        file.write_at(contents, 0).expect("room");
    }
    serve(&storage);
});

/// Uses a database that may be in any state, if it opens.
fn serve(storage: &FaultyStorage) {
    let Some((engine, database)) = open(storage) else { return };
    for number in 0..KEYS {
        let _ = database.get(&key(number));
        let _ = database.value_size(&key(number));
    }
    let _ = database.for_each(|_| ControlFlow::Continue(()));
    let _ = database.keys_with_prefix(b"", None);
    let _ = (database.len(), database.size_bytes(), engine.figures());

    let stored = database.put(b"new", b"value").is_ok();
    let _ = database.put_cat(&key(1), b"more");
    let _ = database.remove(&key(2));
    let mut batch = Batch::new();
    batch.put(b"one", &[1; 3000], Meta::NONE);
    batch.put(b"two", b"2", Meta { flags: 3, expires_at_ms: NOW_MS + 1 });
    batch.remove(&key(3));
    let stored_batch = database.write(&batch).is_ok();
    let check = |database: &Database| {
        if stored {
            assert_eq!(database.get(b"new").expect("a read"), Some(b"value".to_vec()));
        }
        if stored_batch {
            assert_eq!(database.get(b"two").expect("a read"), Some(b"2".to_vec()));
        }
    };
    check(&database);
    let _ = engine.tend();
    check(&database);
    let _ = engine.checkpoint();
    let _ = database.optimize();
    check(&database);
    drop((engine, database));

    let (_engine, database) = open(storage).expect("what was closed opens again");
    check(&database);
    assert!(database.clear().is_err() || database.len() == 0);
}

fn open(storage: &FaultyStorage) -> Option<(Arc<HashDatabase>, Database)> {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    options.clock = Clock::manual(NOW_MS).0;
    options.compression = Compression::Lz4;
    let storage = Arc::new(storage.clone());
    let engine = HashDatabase::open_on(storage, Path::new(DIRECTORY), &options, false).ok()?;
    let engine = Arc::new(engine);
    let database = Database::from_engine(Arc::clone(&engine) as Arc<dyn Engine>);
    Some((engine, database))
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// Databases to start from: closed; killed some time after a checkpoint; killed without one.
fn bases() -> &'static [Files; 3] {
    static BASES: OnceLock<[Files; 3]> = OnceLock::new();
    BASES.get_or_init(|| {
        let storage = FaultyStorage::new();
        let path = Path::new(DIRECTORY).join("manifest");
        let file = storage.open(&path, Open::New).expect("a new file");
        file.write_at(&sign::manifest(), 0).expect("room");

        let (engine, database) = open(&storage).expect("a new database");
        for number in 0..KEYS {
            let value = vec![b'v'; 10 * number];
            let expires_at_ms = if number % 4 == 1 { NOW_MS + number as u64 } else { 0 };
            let meta = Meta { flags: number as u32 % 3, expires_at_ms };
            database.put_with(&key(number), &value, meta).expect("room");
            if number % 5 == 4 {
                // Seals the segment, so that there are several small ones.
                database.optimize().expect("room");
            }
        }
        let without = read(&storage.kill());
        engine.checkpoint().expect("room");
        let mut batch = Batch::new();
        batch.put(&key(0), b"in a batch", Meta::NONE);
        batch.put(b"another", b"in a batch", Meta { flags: 7, expires_at_ms: 0 });
        batch.remove(&key(1));
        database.write(&batch).expect("room");
        database.remove(&key(2)).expect("room");
        database.put(&key(3), b"again").expect("room");
        let killed = read(&storage.kill());
        drop((engine, database));
        [read(&storage), killed, without]
    })
}

/// All files of the database, less most of the zeros at their ends.
fn read(storage: &FaultyStorage) -> Files {
    let mut files = Files::new();
    for name in storage.list(Path::new(DIRECTORY)).expect("a listing") {
        let path = Path::new(DIRECTORY).join(&name);
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
