//! Corruptor: damages every file of a database of every kind everywhere. The database must be
//! refused, or hold only records that were stored there once.

use crate::disk::{DiskEngine, TableDatabase};
use cabinet::testing::{FaultyStorage, Open, Storage};
use cabinet::{Batch, Database, Error, FixedDatabase, HashDatabase, Meta, Options, TreeDatabase};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

const KEYS: u32 = 60;
/// Bytes between two damaged offsets.
const STRIDE: usize = 151;
/// Ways to damage a file at an offset.
const WAYS: [fn(&mut Vec<u8>, usize); 4] = [
    |bytes, place| bytes[place] ^= 1,
    |bytes, place| bytes[place] ^= 0x80,
    |bytes, place| {
        let end = (place + 40).min(bytes.len());
        bytes[place..end].fill(0);
    },
    |bytes, place| bytes.truncate(place),
];

/// Contents of files by name.
type Files = BTreeMap<String, Vec<u8>>;
/// All values that each key ever had.
type History = BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>;

fn open<E: DiskEngine>(files: &Files) -> (FaultyStorage, cabinet::Result<(E, Database)>) {
    let storage = FaultyStorage::new();
    for (name, contents) in files {
        let file = storage.open(&Path::new(E::PATH).join(name), Open::New).unwrap();
        file.write_at(contents, 0).unwrap();
    }
    let opened = open_on(&storage);
    (storage, opened)
}

fn open_on<E: DiskEngine>(storage: &FaultyStorage) -> cabinet::Result<(E, Database)> {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    let engine = E::open(Arc::new(storage.clone()), &options)?;
    let database = engine.database();
    Ok((engine, database))
}

fn read<E: DiskEngine>(storage: &FaultyStorage) -> Files {
    let mut files = Files::new();
    for name in storage.list(Path::new(E::PATH)).unwrap() {
        let file = storage.open(&Path::new(E::PATH).join(&name), Open::Existing).unwrap();
        let mut contents = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut contents, 0).unwrap();
        // Damage to long zeros would test nothing.
        let end = contents.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        contents.truncate(end.next_multiple_of(64));
        files.insert(name, contents);
    }
    files
}

/// Returns a key and one of its values that every kind accepts: an id, and columns of a row.
fn record(key: u32, round: u32) -> (Vec<u8>, Vec<u8>) {
    let value = format!("number\0{round}\0text\0{}", format!("{key} ").repeat(key as usize % 40));
    (key.to_string().into_bytes(), value.into_bytes())
}

/// Returns a database that was closed, one that was killed some time after a checkpoint, and the
/// values that they had.
fn bases<E: DiskEngine>() -> ([Files; 2], History) {
    let storage = FaultyStorage::new();
    let (engine, database) = open_on::<E>(&storage).unwrap();
    let mut history = History::new();
    let mut note = |(key, value): (Vec<u8>, Vec<u8>)| {
        history.entry(key.clone()).or_default().insert(value.clone());
        (key, value)
    };
    for round in 0..3 {
        for key in 1..=KEYS {
            let (key, value) = note(record(key, round));
            database.put(&key, &value).unwrap();
        }
        for key in (1..=KEYS).skip(round as usize).step_by(7) {
            database.remove(&record(key, round).0).unwrap();
        }
        match round {
            // Optimizing seals the segment.
            0 => database.optimize().unwrap(),
            1 => engine.checkpoint().unwrap(),
            _ => {}
        }
    }
    let mut batch = Batch::new();
    for key in 10..20 {
        let (key, value) = note(record(key, 3));
        batch.put(&key, &value, Meta::NONE);
    }
    database.write(&batch).unwrap();
    let killed = read::<E>(&storage.kill());
    drop((engine, database));
    ([read::<E>(&storage), killed], history)
}

/// Checks that every record that can be read was stored once. Fails if a record cannot be read.
fn check(database: &Database, history: &History) -> Result<(), Error> {
    let is_good = |key: &[u8], value: &Vec<u8>| {
        let values = history.get(key);
        assert!(values.is_some_and(|values| values.contains(value)), "{key:?} is {value:?}");
    };
    let mut result = Ok(());
    for key in history.keys() {
        match database.get(key) {
            Ok(Some(value)) => is_good(key, &value),
            Ok(None) => {}
            Err(error) => result = Err(error),
        }
    }
    database.for_each(|entry| {
        is_good(entry.key, &entry.value.to_vec());
        ControlFlow::Continue(())
    })?;
    result
}

fn expect_corrupted(result: Result<(), Error>, context: &str) {
    match result {
        Ok(()) | Err(Error::Corrupted { .. }) => {}
        Err(error) => panic!("{context}: {error}"),
    }
}

fn damage_everywhere<E: DiskEngine>() {
    let (bases, history) = bases::<E>();
    let (mut refused, mut served) = (0, 0);
    for files in bases {
        check(&open::<E>(&files).1.unwrap().1, &history).unwrap();
        let mut without = files.clone();
        without.retain(|name, _| !name.starts_with("manifest"));
        assert!(matches!(open::<E>(&without).1.err(), Some(Error::Corrupted { .. })));
        for (name, contents) in &files {
            for place in (0..contents.len()).step_by(STRIDE) {
                for (number, way) in WAYS.iter().enumerate() {
                    let mut damaged = files.clone();
                    way(damaged.get_mut(name).unwrap(), place);
                    let context = format!("{} in way {number} at {place} of {name}", E::PATH);
                    match open::<E>(&damaged) {
                        (storage, Ok((engine, database))) => {
                            serve(&storage, engine, database, &history, &context);
                            served += 1;
                        }
                        (_, Err(Error::Corrupted { .. } | Error::WrongKind { .. })) => refused += 1,
                        (_, Err(error)) => panic!("{context}: {error}"),
                    }
                }
            }
            let mut damaged = files.clone();
            damaged.remove(name);
            if let (storage, Ok((engine, database))) = open::<E>(&damaged) {
                serve(&storage, engine, database, &history, &format!("{} without {name}", E::PATH));
            }
        }
    }
    assert!(served > 0, "{refused} were refused");
}

/// Uses a database that may be damaged. It must keep every change that it accepts.
fn serve<E: DiskEngine>(
    storage: &FaultyStorage,
    engine: E,
    database: Database,
    history: &History,
    context: &str,
) {
    expect_corrupted(check(&database, history), context);
    let (key, value) = (b"1000", b"number\x007");
    let stored = match database.put(key, value) {
        Ok(_) => true,
        Err(Error::Corrupted { .. }) => false,
        Err(error) => panic!("{context}: {error}"),
    };
    let mut history = history.clone();
    history.entry(key.to_vec()).or_default().insert(value.to_vec());
    expect_corrupted(engine.run_maintenance(), context);
    expect_corrupted(engine.checkpoint(), context);
    expect_corrupted(check(&database, &history), context);
    drop((engine, database));
    let (_engine, database) = open_on::<E>(storage).unwrap_or_else(|error| {
        panic!("{context}: it does not open again: {error}");
    });
    expect_corrupted(check(&database, &history), context);
    if stored {
        assert_eq!(database.get(key).unwrap().as_deref(), Some(&value[..]), "{context}");
    }
}

#[test]
fn a_hash_damaged_anywhere_is_refused_or_holds_only_stored_records() {
    damage_everywhere::<Arc<HashDatabase>>();
}

#[test]
fn a_fixed_length_database_damaged_anywhere_is_refused_or_holds_only_stored_records() {
    damage_everywhere::<Arc<FixedDatabase>>();
}

#[test]
fn a_tree_damaged_anywhere_is_refused_or_holds_only_stored_records() {
    damage_everywhere::<Arc<TreeDatabase>>();
}

#[test]
fn a_table_damaged_anywhere_is_refused_or_holds_only_stored_records() {
    damage_everywhere::<TableDatabase>();
}
