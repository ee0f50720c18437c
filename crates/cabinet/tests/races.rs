//! Short histories of threads that share a database, for tools that watch each access to memory:
//! see `cargo xtask library sanitize`. The files are on a disk.

use cabinet::{
    Change, Database, Engine, FixedDatabase, HashDatabase, Maintenance, MemoryHash, MemoryTree,
    Meta, Options, TreeDatabase, Wait,
};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// Threads that write.
const WRITERS: u32 = 2;

/// Changes of each writer, and records of the database before them.
const STEPS: u32 = 2_000;

/// Bytes of a value: records of several sizes fill append blocks.
fn value(step: u32) -> Vec<u8> {
    vec![step as u8; 8 + (step as usize * 37) % 200]
}

/// Keys are numbers, so that fixed-length databases take them too.
fn key(number: u32) -> Vec<u8> {
    (number + 1).to_string().into_bytes()
}

fn options(is_spread: bool) -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    options.width = Some(256);
    options.set_eager_append_blocks(is_spread);
    options
}

/// Fails if a value is not of one put: all bytes of each are the same.
fn check(value: &[u8]) {
    assert!(value.iter().all(|byte| *byte == value[0]), "a torn value");
}

/// Has threads put, change and remove records beside others that read, scan, compact and sync. No
/// value is torn, and no record is lost.
fn share(engine: Arc<dyn Engine>, upkeep: &(dyn Fn() + Sync)) {
    let database = Database::from_engine(Arc::clone(&engine));
    for number in 0..STEPS {
        database.put(&key(number), &value(0)).expect("a put");
    }
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let database = &database;
            scope.spawn(move || {
                for step in 0..STEPS {
                    let key = key((step * 5 + writer) % STEPS);
                    match step % 4 {
                        0 | 1 => {
                            database.put(&key, &value(step)).expect("a put");
                        }
                        2 => {
                            let change = || Change::Put(value(step), Meta::NONE);
                            database.modify(&key, |_| (change(), ())).expect("a change");
                        }
                        _ => {
                            database.remove(&key).expect("a removal");
                            database.put(&key, &value(step)).expect("a put");
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            for step in 0..STEPS {
                if let Some(found) = database.get(&key(step)).expect("a get") {
                    check(&found);
                }
            }
            for record in database.iter().expect("a scan") {
                check(&record.expect("a record").value);
            }
        });
        scope.spawn(|| {
            for step in 0..STEPS / 4 {
                let keys: Vec<Vec<u8>> = (step..step + 8).map(|step| key(step % STEPS)).collect();
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let flow = engine.read_each(&keys, Wait::Block, &mut |found| {
                    if let Some(entry) = found.expect("a get of several keys") {
                        check(entry.value);
                    }
                    ControlFlow::Continue(())
                });
                assert!(flow.is_continue());
                let transaction = database.transaction();
                transaction.put(keys[0], &value(step)).expect("a put");
                transaction.put(keys[1], &value(step)).expect("a put");
                transaction.commit().expect("a commit");
            }
        });
        scope.spawn(|| {
            for _ in 0..3 {
                upkeep();
                database.sync().expect("a sync");
                thread::yield_now();
            }
        });
    });
    for number in 0..STEPS {
        assert!(database.get(&key(number)).expect("a get").is_some(), "record {number} is lost");
    }
}

/// Shares an engine over a log in an empty directory, and compacts it and writes checkpoints
/// meanwhile.
fn share_logged<E: Engine + Maintenance + 'static>(
    name: &str,
    is_spread: bool,
    open: fn(&Path, &Options) -> cabinet::Result<E>,
    checkpoint: fn(&E) -> cabinet::Result<()>,
) {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open(&directory.path().join(name), &options(is_spread));
    let engine = Arc::new(engine.expect("the database opens"));
    let shared = Arc::clone(&engine);
    share(shared, &|| {
        engine.optimize(None).expect("compaction");
        checkpoint(&engine).expect("a checkpoint");
    });
}

#[test]
fn threads_share_a_hash_database_without_a_race() {
    for is_spread in [false, true] {
        share_logged("casket.tch", is_spread, HashDatabase::open, HashDatabase::checkpoint);
    }
}

#[test]
fn threads_share_a_fixed_length_database_without_a_race() {
    for is_spread in [false, true] {
        share_logged("casket.tcf", is_spread, FixedDatabase::open, FixedDatabase::checkpoint);
    }
}

#[test]
fn threads_share_a_tree_without_a_race() {
    share_logged("casket.tcb", false, TreeDatabase::open, TreeDatabase::checkpoint);
}

#[test]
fn threads_share_databases_in_memory_without_a_race() {
    let options = options(false);
    share(Arc::new(MemoryHash::new(&options)), &|| ());
    share(Arc::new(MemoryTree::new(&options)), &|| ());
}
