//! Particulars of a fixed-length database: keys that are ids, and limits.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::limits::FIXED_WIDTH_BYTES_MAX;
use cabinet::{
    Batch, Clock, Database, Engine, Error, FixedDatabase, Maintenance, Meta, Options, ScanCursor,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

fn open(folder: &Path, tuning: &str) -> Database {
    Database::open(&format!("{}{tuning}", folder.join("casket.tcf").display())).unwrap()
}

/// The keys in the order of their ids. A visit of all meets the same ones.
fn keys(database: &Database) -> Vec<String> {
    let mut keys = keys_from(database, ScanCursor::Start);
    let in_order = keys.clone();
    let mut met = Vec::new();
    database
        .for_each(|entry| {
            met.push(String::from_utf8(entry.key.to_vec()).unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
    met.sort_unstable();
    keys.sort_unstable();
    assert_eq!(met, keys);
    in_order
}

fn keys_from(database: &Database, from: ScanCursor) -> Vec<String> {
    let mut keys = Vec::new();
    let mut position = Some(from);
    while let Some(from) = position {
        position = database
            .scan_keys(&from, |key| keys.push(String::from_utf8(key.to_vec()).unwrap()))
            .unwrap();
    }
    keys
}

fn is_no_id<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::NoId { .. }))
}

#[test]
fn the_digits_of_a_key_are_the_id_however_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "");
    database.put(b"a5b0", b"fifty").unwrap();
    for key in [&b"50"[..], b"050", b"-5.0", b"x50"] {
        assert_eq!(database.get(key).unwrap().unwrap(), b"fifty");
    }
    assert_eq!(keys(&database), ["50"]);
    assert!(database.remove(b"5-0").unwrap());
    assert!(!database.remove(b"50").unwrap());
    for key in [&b"0"[..], b"", b"abc", b"MIN", b"1048576", b"99999999999999999999"] {
        assert!(is_no_id(database.put(key, b"")), "{key:?}");
        assert!(is_no_id(database.get(key)), "{key:?}");
        assert!(is_no_id(database.remove(key)), "{key:?}");
    }
    assert!(database.is_empty());
}

#[test]
fn ids_go_up_to_the_limit_that_the_original_would_have() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "#width=8#limsiz=1000");
    assert_eq!(database.as_numbered().unwrap().id_max(), 426);
    database.put(b"425", b"").unwrap();
    database.put(b"426", b"").unwrap();
    assert!(is_no_id(database.put(b"427", b"")));
    assert!(is_no_id(database.put(b"next", b"")));
    assert_eq!(keys(&database), ["425", "426"]);
}

#[test]
fn the_ends_are_found_and_extended() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "");
    for key in [&b"min"[..], b"max", b"prev"] {
        assert!(is_no_id(database.put(key, b"")), "{key:?}");
    }
    assert_eq!(database.get(b"min").unwrap(), None);
    database.put(b"next", b"first").unwrap();
    assert!(is_no_id(database.put(b"prev", b"")), "1 is the least id");
    database.put(b"5", b"five").unwrap();
    database.put(b"9", b"nine").unwrap();
    database.remove(b"1").unwrap();
    database.put(b"min", b"FIVE").unwrap();
    database.put_cat(b"max", b"!").unwrap();
    database.put(b"prev", b"four").unwrap();
    assert!(database.put_keep(b"next", b"ten", Meta::NONE).unwrap());
    assert!(!database.put_keep(b"max", b"", Meta::NONE).unwrap());
    assert_eq!(keys(&database), ["4", "5", "9", "10"]);
    assert_eq!(database.get(b"min").unwrap().unwrap(), b"four");
    assert_eq!(database.get(b"5").unwrap().unwrap(), b"FIVE");
    assert_eq!(database.get(b"9").unwrap().unwrap(), b"nine!");
    assert_eq!(database.get(b"max").unwrap().unwrap(), b"ten");
    assert!(database.remove(b"max").unwrap());
    assert_eq!(database.get(b"max").unwrap().unwrap(), b"nine!");
    for key in [&b"prev"[..], b"next"] {
        assert!(is_no_id(database.get(key)));
    }
    let numbered = database.as_numbered().unwrap();
    assert_eq!((numbered.min(), numbered.max()), (Some(4), Some(9)));
    assert_eq!(numbered.id(b"max"), Some(9));
    assert_eq!(numbered.id(b"next"), None);
}

#[test]
fn a_new_id_is_given_to_nobody_else() {
    const EACH: u64 = 500;
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "#width=8");
    database.put(b"100000", b"").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let database = &database;
            scope.spawn(move || {
                let key = if thread.is_multiple_of(2) { b"next" } else { b"prev" };
                for number in 0..EACH {
                    database.put(key, &(thread * EACH + number).to_le_bytes()).unwrap();
                }
            });
        }
    });
    let mut values = BTreeSet::new();
    database
        .for_each(|entry| {
            values.insert(entry.value.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(values.len() as u64, 4 * EACH + 1);
    let numbered = database.as_numbered().unwrap();
    assert_eq!(numbered.min(), Some(100_000 - 2 * EACH));
    assert_eq!(numbered.max(), Some(100_000 + 2 * EACH));
}

#[test]
fn a_value_is_cut_at_the_width_whatever_stores_it() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "#width=4");
    let get = |key: &[u8]| String::from_utf8(database.get(key).unwrap().unwrap()).unwrap();
    for (value, kept) in [("abc", "abc"), ("abcd", "abcd"), ("abcde", "abcd"), ("", "")] {
        database.put(b"1", value.as_bytes()).unwrap();
        assert_eq!(get(b"1"), kept);
    }
    database.put_cat(b"1", b"uvwx").unwrap();
    database.put_cat(b"1", b"y").unwrap();
    assert_eq!(get(b"1"), "uvwx");
    assert!(database.put_keep(b"2", b"abcdef", Meta::NONE).unwrap());
    database.put(b"next", b"ghijkl").unwrap();
    let mut batch = Batch::new();
    batch.put(b"a4", b"mnopqr", Meta::NONE);
    database.write(&batch).unwrap();
    assert_eq!([get(b"2"), get(b"3"), get(b"4")], ["abcd", "ghij", "mnop"]);
    assert_eq!(database.add_int(b"5", 7).unwrap(), 7);
    assert_eq!(database.add_int(b"5", -9).unwrap(), -2);
    // A double that is cut is no longer one.
    database.add_double(b"6", 1.5).unwrap();
    assert!(matches!(database.add_double(b"6", 1.5), Err(Error::NotANumber { width: 8 })));
}

#[test]
fn an_empty_value_is_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "");
    database.put(b"3", b"").unwrap();
    assert_eq!(database.get(b"3").unwrap().unwrap(), b"");
    assert_eq!(database.get(b"4").unwrap(), None);
    assert_eq!((database.len(), keys(&database)), (1, vec!["3".to_owned()]));
}

#[test]
fn records_are_met_in_the_order_of_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "");
    let mut ids: Vec<u64> = (1..2000).map(|number| number * 524_287 % 1_048_575).collect();
    for id in &ids {
        database.put(id.to_string().as_bytes(), b"").unwrap();
    }
    ids.sort_unstable();
    let expected: Vec<_> = ids.iter().map(u64::to_string).collect();
    assert_eq!(keys(&database), expected);
    let behind = keys_from(&database, database.scan_cursor_of(b"500000"));
    assert!(behind.len() > 500 && expected.ends_with(&behind));
    let foreign = database.scan(&ScanCursor::Hash(1), |_| ());
    assert!(matches!(foreign, Err(Error::InvalidArgument(_))));
}

#[test]
fn an_interval_has_the_records_between_its_ends() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "");
    let numbered = database.as_numbered().unwrap();
    assert!(numbered.interval(b"[min,max]").unwrap().is_empty());
    for id in [4, 5, 9, 700, 5000] {
        database.put(id.to_string().as_bytes(), b"").unwrap();
    }
    let within = |text: &str| {
        let mut found = Vec::new();
        numbered
            .for_each_key_in(numbered.interval(text.as_bytes()).unwrap(), &mut |key| {
                found.push(String::from_utf8(key.to_vec()).unwrap().parse::<u64>().unwrap());
                ControlFlow::Continue(())
            })
            .unwrap();
        let mut again = 0;
        numbered
            .for_each_in(numbered.interval(text.as_bytes()).unwrap(), &mut |_| {
                again += 1;
                if again < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .unwrap();
        assert_eq!(again, found.len().min(2));
        found
    };
    assert_eq!(within("[min,9]"), [4, 5, 9]);
    assert_eq!(within("(4,max]"), [5, 9, 700, 5000]);
    assert_eq!(within("(min,max)"), [5, 9, 700]);
    assert_eq!(within("[prev,next]"), [4, 5, 9, 700, 5000]);
    assert_eq!(within("[ 5 , 700 )"), [5, 9]);
    assert_eq!(within("[0,99999999999999999999]"), [4, 5, 9, 700, 5000]);
    for nothing in ["[9,4]", "(4,5)", "[6,8]", "[4,)", "[6000,max]"] {
        assert_eq!(within(nothing), [0u64; 0], "{nothing}");
    }
    assert_eq!(numbered.interval(b"4,9"), None);
}

#[test]
fn what_it_was_created_with_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "#width=3#limsiz=1k");
    database.put(b"7", b"abcdef").unwrap();
    let copy = folder.path().join("copy.tcf");
    database.copy_to(&copy).unwrap();
    drop(database);
    let again = open(folder.path(), "#width=200");
    let copy = Options::new().open(&copy).unwrap();
    for database in [again, copy] {
        let numbered = database.as_numbered().unwrap();
        assert_eq!((numbered.width(), numbered.id_max()), (3, 960));
        assert_eq!(database.get(b"7").unwrap().unwrap(), b"abc");
    }
}

#[test]
fn it_can_be_tuned_anew() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "#width=8#limsiz=100000");
    for id in 1..=300 {
        database.put(id.to_string().as_bytes(), b"12345678").unwrap();
    }
    let refused = database.retune("limsiz=1");
    assert!(refused.is_ok(), "426 ids are enough: {refused:?}");
    database.put(b"400", b"").unwrap();
    assert!(database.retune("width=16#limsiz=1").is_err(), "there would be 225 ids");
    assert_eq!(database.as_numbered().unwrap().width(), 8);
    database.retune("width=2#bnum=7#nonsense#limsiz=-1").unwrap();
    assert_eq!(database.get(b"300").unwrap().unwrap(), b"12");
    drop(database);
    let database = open(folder.path(), "");
    let numbered = database.as_numbered().unwrap();
    assert_eq!((numbered.width(), numbered.id_max()), (2, (4096 - 256) / 3));
    assert_eq!(database.get(b"1").unwrap().unwrap(), b"12");
    assert_eq!(database.len(), 301);
}

#[test]
fn widths_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    for (width, is_fine) in [
        (FIXED_WIDTH_BYTES_MAX - 1, true),
        (FIXED_WIDTH_BYTES_MAX, true),
        (FIXED_WIDTH_BYTES_MAX + 1, false),
    ] {
        options.width = Some(width);
        let path = folder.path().join(format!("{width}.tcf"));
        assert_eq!(FixedDatabase::open(&path, &options).is_ok(), is_fine);
        let name = format!("{}#width={width}", path.display());
        assert_eq!(Database::open(&name).is_ok(), is_fine);
    }
    let name = folder.path().join(format!("{FIXED_WIDTH_BYTES_MAX}.tcf")).display().to_string();
    let database = Database::open(&name).unwrap();
    let longest = vec![7; FIXED_WIDTH_BYTES_MAX as usize];
    for value in [&longest[1..], &longest] {
        database.put(b"1", value).unwrap();
        assert_eq!(database.value_size(b"1").unwrap(), Some(value.len()));
    }
}

#[test]
fn what_has_expired_is_not_at_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let (clock, time) = Clock::manual(1000);
    let mut options = Options::default();
    options.clock = clock;
    let path = folder.path().join("casket.tcf");
    let database = options.open(&path).unwrap();
    for id in 1..=5 {
        database.put(id.to_string().as_bytes(), id.to_string().as_bytes()).unwrap();
    }
    for key in [b"1", b"2", b"5"] {
        database.touch(key, 2000).unwrap();
    }
    time.set(3000);
    assert_eq!(database.get(b"min").unwrap().unwrap(), b"3");
    assert_eq!(database.get(b"max").unwrap().unwrap(), b"4");
    assert!(database.remove(b"min").unwrap());
    assert!(database.remove(b"max").unwrap());
    assert_eq!(database.get(b"min").unwrap(), None);
    assert!(is_no_id(database.remove(b"min")));
}

#[test]
fn a_transaction_knows_a_record_under_all_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "");
    let transaction = database.transaction();
    transaction.put(b"a5", b"one").unwrap();
    transaction.put_cat(b"5", b", two").unwrap();
    assert_eq!(transaction.get(b"05").unwrap().unwrap(), b"one, two");
    assert!(matches!(transaction.put(b"next", b""), Err(Error::Unsupported { .. })));
    assert!(is_no_id(transaction.put(b"x", b"")));
    transaction.commit().unwrap();
    assert_eq!(database.get(b"5").unwrap().unwrap(), b"one, two");
}

#[test]
fn the_files_of_another_kind_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (hash, fixed) = (folder.path().join("casket.tch"), folder.path().join("casket.tcf"));
    let options = Options::default();
    drop(options.open(&hash).unwrap());
    std::fs::rename(&hash, &fixed).unwrap();
    assert!(options.open(&fixed).is_err());
    std::fs::remove_dir_all(&fixed).unwrap();
    drop(options.open(&fixed).unwrap());
    std::fs::rename(&fixed, &hash).unwrap();
    assert!(options.open(&hash).is_err());
}

#[test]
fn what_is_open_for_reading_only_is_not_tuned() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path(), ""));
    let database = open(folder.path(), "#mode=r");
    assert!(matches!(database.retune("width=5"), Err(Error::ReadOnly(_))));
    assert_eq!(database.as_numbered().unwrap().width(), 255);
}

#[test]
fn ids_that_are_far_apart_are_kept_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tcf");
    let mut options = Options::default();
    options.width = Some(1);
    options.limit_bytes = Some(u64::MAX);
    let ids: Vec<u64> = (0..62).map(|bit| 1 << bit).chain([i64::MAX as u64 - 128]).collect();
    for round in 0..2 {
        let engine = FixedDatabase::open(&path, &options).unwrap();
        let database = Database::from_engine(std::sync::Arc::new(engine));
        for id in &ids {
            let key = id.to_string();
            if round == 0 {
                database.put(key.as_bytes(), b"x").unwrap();
            }
            assert_eq!(database.get(key.as_bytes()).unwrap().unwrap(), b"x");
        }
        assert_eq!(keys(&database), ids.iter().map(u64::to_string).collect::<Vec<_>>());
    }
}

#[test]
fn a_figure_says_what_the_index_takes() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.width = Some(1);
    let engine = FixedDatabase::open(&folder.path().join("casket.tcf"), &options).unwrap();
    for id in 1..=100_000u32 {
        engine.put(id.to_string().as_bytes(), b"x", Meta::NONE, cabinet::Wait::Block).unwrap();
    }
    let stats = engine.stats();
    let index = &stats.iter().find(|(name, _)| *name == "index_bytes").unwrap().1;
    assert!(index.parse::<u64>().unwrap() < 100_000 * 9, "{index} bytes");
}
