use super::*;
use crate::update_log::Settings;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest value that the logs of these tests accept, in bytes.
const MAX: usize = 300;

/// Returns a database with one record, and with a log that accepts only short values.
fn store(folder: &Path, value: &[u8]) -> Store {
    let path = folder.join("casket.tch");
    let database = Database::open(path.to_str().expect("a name")).expect("a database");
    database.put(b"key", value).expect("room");
    let (mut log, _) =
        UpdateLog::open(Settings::new(folder.join("ulog")), &database).expect("a log");
    log.limit_values(MAX);
    Store::new(database, Some(Arc::new(log)), 1)
}

/// Changes a record, with a request that succeeds.
fn change(
    store: &Store,
    key: &[u8],
    request: Option<Request<'_>>,
    decide: impl Fn(Option<&RecordRef<'_>>) -> Result<Change>,
) -> Result<()> {
    let decide = |entry: Option<RecordRef<'_>>| Ok((decide(entry.as_ref())?, ()));
    store.change(key, || request, |()| Some(true), decide).map(drop)
}

fn shift(store: &Store, suffix: &[u8], width: usize) -> Result<()> {
    let request = Request::PutShift { key: b"", value: suffix, width: width as u32 };
    change(store, b"key", Some(request), |entry| Change::shift(entry, suffix, width))
}

fn put_keep(store: &Store, key: &[u8], value: &[u8]) -> Result<()> {
    let request = Request::PutKeep { key, value };
    change(store, key, Some(request), |entry| match entry {
        Some(_) => Ok(Change::Keep),
        None => Ok(Change::Put(value.to_vec(), Meta::NONE)),
    })
}

#[test]
fn a_value_that_could_not_be_logged_is_refused_before_it_is_stored() {
    type Grow = fn(&Store, &[u8]) -> Result<()>;
    let ways: [(&str, Grow); 8] = [
        ("append", |store, part| {
            let request = Request::PutCat { key: b"", value: part };
            change(store, b"key", Some(request), |entry| Change::shift(entry, part, usize::MAX))
        }),
        ("shift", |store, part| shift(store, part, 1000)),
        ("prepend", |store, part| {
            change(store, b"key", None, |entry| match entry {
                Some(entry) => Change::extend(entry, part, true),
                None => Ok(Change::Keep),
            })
        }),
        ("modify", |store, part| {
            store.modify(b"key", |entry| {
                let before = entry.map_or(&b""[..], |entry| entry.value);
                (Change::Put([before, part].concat(), Meta::NONE), ())
            })
        }),
        ("put", |store, part| store.put(b"key", &[&[7; MAX - 1], part].concat()).map(|_| ())),
        ("put_keep", |store, part| put_keep(store, b"new", &[&[7; MAX - 1], part].concat())),
        ("replace", |store, part| {
            let value = [&[7; MAX - 1], part].concat();
            change(store, b"key", None, |_| Ok(Change::Put(value.clone(), Meta::NONE)))
        }),
        ("a list that gets longer", |store, part| {
            store.modify(b"key", |entry| match entry {
                Some(entry) => (Change::Put([entry.value, part].concat(), entry.meta), ()),
                None => (Change::Keep, ()),
            })
        }),
    ];
    for (name, grow) in ways {
        for (added, is_good) in [(0, true), (1, true), (2, false)] {
            let folder = tempfile::tempdir().expect("a folder");
            let before = [7; MAX - 1];
            let store = store(folder.path(), &before);
            match grow(&store, &b"++"[..added]) {
                Ok(()) => assert!(is_good, "{name} {added}"),
                Err(Error::ValueTooLong { bytes, max }) => {
                    assert_eq!((is_good, bytes, max), (false, MAX + 1, MAX), "{name}");
                    assert_eq!(store.get(b"key").expect("a record").as_deref(), Some(&before[..]));
                    assert_eq!(store.len(), 1, "{name}");
                }
                Err(error) => panic!("{name}: {error}"),
            }
            // Other changes are still accepted.
            store.put(b"other", b"v").expect("room");
        }
    }
}

#[test]
fn a_longer_value_may_get_shorter() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store(folder.path(), &[7; 2 * MAX]);
    assert!(matches!(shift(&store, b"+", MAX + 1), Err(Error::ValueTooLong { .. })));
    put_keep(&store, b"key", b"v").expect("a record");
    assert_eq!(store.value_size(b"key").expect("a record"), Some(2 * MAX));
    shift(&store, b"+", MAX).expect("room");
    assert_eq!(store.value_size(b"key").expect("a record"), Some(MAX));
}

#[test]
fn expired_records_are_left_to_the_master_once_one_is_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (clock, time) = cabinet::Clock::manual(1000);
    let mut options = cabinet::Options::default();
    options.clock = clock.handing_over(true);
    let database = options.open("*").expect("a database");
    let log = UpdateLog::open(Settings::new(folder.path().join("ulog")), &database);
    let log = Arc::new(log.expect("a log").0);
    let store = Store::new(database, Some(Arc::clone(&log)), 1);
    let mut meta = Meta::NONE;
    meta.expires_at_ms = 2000;
    for key in [b"a", b"b"] {
        store.put_with(key, b"v", meta).expect("room");
    }
    time.set(3000);
    // Two rounds find all expired records.
    (0..2).for_each(|_| store.find_expired());
    let has_master = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let guard = store.begin(&log, Scope::Key(b"a")).expect("no failure");
        let collecting =
            scope.spawn(|| store.collect_expired(|| has_master.load(Ordering::Relaxed)));
        // A thread that does not wait for the guard by then finds the master from its beginning.
        std::thread::sleep(std::time::Duration::from_millis(50));
        has_master.store(true, Ordering::Relaxed);
        drop(guard);
        collecting.join().expect("no panic").expect("no failure");
    });
    assert_eq!(store.len(), 2);
    (0..2).for_each(|_| store.find_expired());
    store.collect_expired(|| false).expect("no failure");
    assert_eq!(store.len(), 0);
}

#[test]
fn a_clearing_of_an_empty_database_removes_nothing_that_was_stored_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store(folder.path(), b"value");
    let logged_us = |store: &Store| store.log.as_ref().map(|log| log.last_entry_us());
    let before_us = logged_us(&store);
    assert!(!store.clear_empty().expect("room"));
    assert_eq!((store.len(), logged_us(&store)), (1, before_us));
    store.remove(b"key").expect("room");
    let removed_us = logged_us(&store);
    assert!(store.clear_empty().expect("room"));
    assert!(logged_us(&store) > removed_us);
}
