//! Particulars of the on-memory kinds: caps, eviction, reclaiming, memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::{Batch, Clock, Compression, Database, Error, Meta, Options, ScanCursor};

const KINDS: [&str; 2] = ["*", "+"];

fn open(kind: &str, set: impl FnOnce(&mut Options)) -> Database {
    let mut options = Options::default();
    set(&mut options);
    options.open(kind).unwrap()
}

fn key(number: u32) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[12..].copy_from_slice(&number.to_be_bytes());
    key
}

#[test]
fn there_are_never_more_records_than_the_cap() {
    for kind in KINDS {
        for cap in [1, 2, 999, 1000, 5000] {
            let database = open(kind, |options| options.capacity_records = cap);
            for number in 0..10_000 {
                database.put(&key(number), b"value").unwrap();
                assert!(database.get(&key(number)).unwrap().is_some(), "the newest is there");
                assert_eq!(database.len(), cap.min(u64::from(number) + 1), "{kind}");
            }
        }
    }
}

#[test]
fn there_is_never_more_memory_in_use_than_the_cap_and_a_tenth() {
    const CAP: u64 = 4 << 20;
    for kind in KINDS {
        let database = open(kind, |options| options.capacity_bytes = CAP);
        let mut peak = 0;
        for number in 0..60_000u32 {
            let value = vec![0; (number % 7 * 50) as usize];
            database.put(&key(number), &value).unwrap();
            if number % 100 == 0 {
                peak = peak.max(database.size_bytes());
            }
        }
        assert!(peak <= CAP + CAP / 10, "{kind} {peak}");
        assert!(peak >= CAP - CAP / 5, "{kind} {peak}");
    }
}

#[test]
fn without_a_cap_puts_are_refused_when_the_memory_is_used_up() {
    const MAX: u64 = 4 << 20;
    for kind in KINDS {
        let database = open(kind, |options| options.memory_bytes = Some(MAX));
        let refused = (0..).find_map(|number| {
            let error = database.put(&key(number), &[1; 1000]).err()?;
            assert_eq!(database.len(), u64::from(number));
            Some((number, error))
        });
        let (records, error) = refused.unwrap();
        assert!(matches!(error, Error::NoMemory { max: MAX, .. }), "{error}");
        assert!(error.to_string().contains("capsiz"), "{error}");
        let size = database.size_bytes();
        assert!((MAX * 9 / 10..=MAX + MAX / 10).contains(&size), "{kind} {size}");
        // Nothing is lost, and what takes no more memory goes on.
        for number in 0..records {
            assert_eq!(database.get(&key(number)).unwrap().unwrap(), [1; 1000]);
        }
        database.put(&key(0), &[2; 1000]).unwrap();
        database.put(&key(1), &[2; 10]).unwrap();
        let mut batch = Batch::new();
        batch.put(&key(records), &[2; 3000], Meta::NONE);
        assert!(matches!(database.write(&batch), Err(Error::NoMemory { .. })));
        batch.remove(&key(2));
        batch.remove(&key(3));
        batch.remove(&key(4));
        database.write(&batch).unwrap();
        let grown = database.put_cat(&key(5), &[1; 3000]);
        assert!(matches!(grown, Err(Error::NoMemory { .. })), "{grown:?}");
        database.remove(&key(5)).unwrap();
        database.put(&key(5), &[2; 900]).unwrap();
        // With a cap they are evicted instead, and without one again refused.
        database.retune("capsiz=4m").unwrap();
        for number in 0..10_000 {
            database.put(&key(number), &[1; 1000]).unwrap();
        }
        database.retune("capsiz=0").unwrap();
        let refused = (0..10_000).find_map(|n| database.put(&key(n), &[1; 2000]).err());
        assert!(matches!(refused, Some(Error::NoMemory { .. })), "{refused:?}");
        database.retune("memory=0").unwrap();
        for number in 0..10_000 {
            database.put(&key(number), &[1; 1000]).unwrap();
        }
        assert_eq!(database.len(), 10_000);
    }
}

#[test]
fn expired_records_make_room_where_the_memory_is_used_up() {
    for kind in KINDS {
        let (clock, time) = Clock::manual(1000);
        let database = open(kind, |options| {
            options.memory_bytes = Some(1 << 20);
            options.clock = clock;
        });
        let meta = Meta { expires_at_ms: 2000, ..Meta::NONE };
        let full = (0..).find(|number| database.put_with(&key(*number), &[1; 1000], meta).is_err());
        time.set(3000);
        let again = (0..100_000).find(|_| database.put(&key(full.unwrap()), &[1; 1000]).is_ok());
        assert!(again.is_some(), "{kind}");
    }
}

#[test]
fn many_threads_together_keep_to_the_caps() {
    for kind in KINDS {
        let database = open(kind, |options| options.capacity_records = 3000);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let database = database.clone();
                scope.spawn(move || {
                    for number in 0..5000 {
                        database.put(&key(thread << 16 | number), b"value").unwrap();
                        assert!(database.len() <= 3000 + 4, "one a thread over at most");
                    }
                });
            }
        });
        assert_eq!(database.len(), 3000, "{kind}");
    }
}

#[test]
fn a_record_that_could_never_fit_is_refused_and_evicts_nothing() {
    for kind in KINDS {
        let database = open(kind, |options| options.capacity_bytes = 10_000);
        database.put(b"a", b"value").unwrap();
        assert!(matches!(database.put(b"b", &[0; 10_000]), Err(Error::ValueTooLong { .. })));
        assert!(matches!(database.put_cat(b"a", &[0; 10_000]), Err(Error::ValueTooLong { .. })));
        assert_eq!(database.get(b"a").unwrap().unwrap(), b"value");
        database.put(b"b", &[0; 9000]).unwrap();
        assert!(database.get(b"b").unwrap().is_some());
    }
}

#[test]
fn records_in_use_stay_and_the_oldest_of_the_others_go_first() {
    for kind in KINDS {
        let database = open(kind, |options| options.capacity_records = 100);
        for number in 0..150 {
            database.get(&key(3)).unwrap();
            database.put(&key(number), b"value").unwrap();
        }
        let left = (0..150).filter(|&number| database.get(&key(number)).unwrap().is_some());
        let expected = std::iter::once(3).chain(51..150);
        assert!(left.eq(expected), "{kind}");
    }
}

#[test]
fn a_batch_keeps_to_the_caps() {
    for kind in KINDS {
        let database = open(kind, |options| options.capacity_records = 10);
        let mut batch = cabinet::Batch::new();
        for number in 0..50 {
            batch.put(&key(number), b"value", Meta::NONE);
        }
        database.write(&batch).unwrap();
        assert_eq!(database.len(), 10);
    }
}

#[test]
fn writers_reclaim_what_has_expired() {
    for kind in KINDS {
        let (clock, time) = Clock::manual(1000);
        let database = open(kind, |options| options.clock = clock);
        for number in 0..5000 {
            let expires_at_ms = 2000 + u64::from(number % 10);
            database.put_with(&key(number), b"value", Meta { flags: 0, expires_at_ms }).unwrap();
        }
        time.set(2005);
        assert_eq!(database.get(&key(5)).unwrap(), None, "expired at this moment");
        assert!(database.get(&key(6)).unwrap().is_some());
        let scanned = {
            let mut met = 0;
            let mut position = Some(ScanCursor::Start);
            while let Some(from) = position {
                position = database.scan_keys(&from, |_| met += 1).unwrap();
            }
            met
        };
        assert_eq!(scanned, 2000);
        assert_eq!(database.len(), 5000, "nobody has written since");
        for number in 0..30_000 {
            database.put(&key(10_000 + number % 5000), b"value").unwrap();
        }
        assert_eq!(database.len(), 5000 + 2000, "{kind}");
        time.set(3000);
        for number in 0..30_000 {
            database.put(&key(10_000 + number % 5000), b"value").unwrap();
        }
        assert_eq!(database.len(), 5000, "{kind}");
    }
}

#[test]
fn memory_beyond_keys_and_values_is_at_most_64_bytes_a_record() {
    for kind in KINDS {
        let database = open(kind, |_| {});
        let empty = database.size_bytes();
        for number in 0..100_000 {
            database.put(&key(number), &[0; 100]).unwrap();
        }
        let each = (database.size_bytes() - empty) / 100_000;
        assert!((116 + 12..=116 + 64).contains(&each), "{kind} {each}");
    }
}

#[test]
fn memory_comes_back() {
    for kind in KINDS {
        let database = open(kind, |_| {});
        let empty = database.size_bytes();
        for number in 0..20_000 {
            database.put(&key(number), &[0; 100]).unwrap();
        }
        let full = database.size_bytes();
        for number in 0..20_000 {
            database.put(&key(number), &[1; 100]).unwrap();
        }
        assert_eq!(database.size_bytes(), full, "{kind}: overwriting takes nothing");
        for number in 100..20_000 {
            database.remove(&key(number)).unwrap();
        }
        database.optimize().unwrap();
        assert!(database.size_bytes() - empty < full / 50, "{kind}");
        assert_eq!(database.get(&key(7)).unwrap().unwrap(), [1; 100]);
        database.clear().unwrap();
        assert_eq!(database.size_bytes(), empty, "{kind}");
    }
}

#[test]
fn compression_saves_memory() {
    for kind in KINDS {
        let sizes = [Compression::None, Compression::Lz4, Compression::Zstd].map(|compression| {
            let database = open(kind, |options| options.compression = compression);
            for number in 0..100 {
                database.put(&key(number), &[7; 5000]).unwrap();
            }
            assert_eq!(database.get(&key(5)).unwrap().unwrap(), [7; 5000]);
            database.size_bytes()
        });
        assert!(sizes[1] < sizes[0] / 4 && sizes[2] < sizes[0] / 4, "{kind} {sizes:?}");
    }
}

#[test]
fn the_ordered_kind_scans_in_the_order_of_keys() {
    let database = open("+", |_| {});
    for number in (0..1000).rev() {
        database.put(&key(number), b"").unwrap();
    }
    let mut keys = Vec::new();
    let mut position = Some(database.scan_cursor_of(&key(500)));
    while let Some(from) = position {
        position = database.scan_keys(&from, |key| keys.push(key.to_vec())).unwrap();
    }
    assert!(keys.iter().eq(&(500..1000).map(|number| key(number).to_vec()).collect::<Vec<_>>()));
    let first = database.keys_with_prefix(b"k", Some(3)).unwrap();
    assert_eq!(first, [key(0), key(1), key(2)]);
}

#[test]
fn a_copy_on_the_disk_holds_every_live_record() {
    let folder = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let database = open(kind, |_| {});
        let meta = Meta { flags: 7, expires_at_ms: u64::MAX };
        for number in 0..1000 {
            database.put_with(&key(number), &number.to_le_bytes(), meta).unwrap();
        }
        let gone = Meta { flags: 0, expires_at_ms: 1 };
        database.put_with(b"gone", b"", gone).unwrap();
        let place = folder.path().join(if kind == "*" { "hash.tch" } else { "tree.tch" });
        database.copy_to(&place).unwrap();
        let copy = Options::new().open(&place).unwrap();
        assert_eq!(copy.len(), 1000);
        for number in 0..1000 {
            let read = copy.read(&key(number), |entry| (entry.value.to_vec(), entry.meta));
            assert_eq!(read.unwrap().unwrap(), (number.to_le_bytes().to_vec(), meta));
        }
    }
}

#[test]
fn a_batch_does_not_push_itself_out() {
    const CAP: u32 = 4096;
    let database = open("*", |options| options.capacity_records = u64::from(CAP));
    for number in 0..CAP {
        database.put(&key(number), b"").unwrap();
    }
    let mut batch = Batch::new();
    let written = CAP..CAP + CAP * 3 / 4;
    // One of them is written twice, one goes again.
    batch.put(&key(written.start), b"first", Meta::NONE);
    for number in written.clone() {
        batch.put(&key(number), b"", Meta::NONE);
    }
    batch.remove(&key(written.start + 1));
    database.write(&batch).unwrap();
    let is_there = |number: &u32| database.get(&key(*number)).unwrap().is_some();
    assert_eq!(written.clone().filter(is_there).count(), written.len() - 1);
    assert_eq!(database.len(), u64::from(CAP));
    // Records of a batch that is over the cap by itself cannot all stay.
    let mut batch = Batch::new();
    for number in 0..2 * CAP {
        batch.put(&key(number), b"", Meta::NONE);
    }
    database.write(&batch).unwrap();
    assert_eq!(database.len(), u64::from(CAP));
}

#[test]
fn a_copy_that_fails_half_way_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("fixed.tcf");
    for kind in KINDS {
        let database = open(kind, |_| {});
        for number in 1..100 {
            database.put(number.to_string().as_bytes(), b"").unwrap();
        }
        database.put(b"no id", b"").unwrap();
        assert!(matches!(database.copy_to(&place), Err(Error::NoId { .. })));
        assert!(!place.exists());
        database.remove(b"no id").unwrap();
        database.copy_to(&place).unwrap();
        assert_eq!(Options::new().open(&place).unwrap().len(), 99);
        std::fs::remove_dir_all(&place).unwrap();
    }
}

#[test]
fn a_copy_needs_a_new_place_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken.tch");
    std::fs::write(&taken, b"").unwrap();
    for kind in KINDS {
        let database = open(kind, |_| {});
        assert!(matches!(database.copy_to("*".as_ref()), Err(Error::Unsupported { .. })));
        assert!(matches!(database.copy_to("copy".as_ref()), Err(Error::Name(_))));
        assert!(matches!(database.copy_to(&taken), Err(Error::Io { .. })));
    }
}

#[test]
fn lowering_a_cap_leaves_about_what_it_allows() {
    const VALUE_BYTES: u64 = 1000;
    const CAP_BYTES: u64 = 8 << 20;
    for kind in ["*", "+"] {
        let database = Database::open(kind).unwrap();
        for number in 0..4 * CAP_BYTES / VALUE_BYTES {
            database.put(&number.to_be_bytes(), &[b'v'; VALUE_BYTES as usize]).unwrap();
        }
        database.retune(&format!("capsiz={CAP_BYTES}")).unwrap();
        let (left, room) = (database.len(), CAP_BYTES / VALUE_BYTES);
        assert!(left <= room && left > room * 3 / 4, "{kind}: {left}, and room for {room}");
    }
}
