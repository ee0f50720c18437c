use super::*;
use wire::binary::Request;

const SOURCE: Source = Source { origin: 1, master: 0, root: None };

/// Opens the log in a folder. Returns it and the changes that a killed process left unfinished.
fn open(folder: &Path) -> (UpdateLog, Vec<Unfinished>) {
    let path = folder.join("casket.tch");
    let database = Database::open(path.to_str().expect("a name")).expect("a database");
    UpdateLog::open(Settings::new(folder.join("ulog")), &database).expect("a log")
}

/// Logs a put.
fn put(log: &UpdateLog, database: &Database, key: &[u8], value: &[u8]) {
    let change = log.begin(database, SOURCE, Scope::Key(key), true).expect("no failure");
    change.append(SOURCE, &Operation { request: Request::Put { key, value }, succeeded: true });
}

#[test]
fn a_change_whose_entry_does_not_fit_into_the_intent_log_stays_unfinished_until_it_is_written() {
    let memory = Database::open("*").expect("a database");
    let folder = tempfile::tempdir().expect("a folder");
    let long = vec![7; 5 << 20];
    for is_written in [false, true] {
        let (log, unfinished) = open(folder.path());
        assert_eq!(unfinished, []);
        let numbers = std::fs::read_dir(log.folder()).expect("files").count() as u64;
        // Folders with their names keep the next parts of the intent log from being made.
        for number in 1..numbers + 8 {
            let _ = std::fs::create_dir(log.folder().join(format!("journal.{number:08}")));
        }
        put(&log, &memory, b"long", &long);
        put(&log, &memory, b"short", b"v");
        if is_written {
            assert!(log.write());
            put(&log, &memory, b"next", b"v");
            assert!(log.write());
        }
        for item in std::fs::read_dir(log.folder()).expect("files") {
            // Remove these folders.
            let _ = std::fs::remove_dir(item.expect("a file").path());
        }
        // Dropping the log leaves the files as a kill does.
        drop(log);
        let (log, unfinished) = open(folder.path());
        let subjects: Vec<_> = unfinished.iter().map(|one| one.subject.clone()).collect();
        let expected = Subject::Key(b"long".to_vec());
        assert_eq!(subjects, if is_written { vec![] } else { vec![expected] });
        unfinished.iter().for_each(|one| log.resolved(one.id));
    }
}

#[test]
fn marks_without_an_entry_between_them_have_the_same_last_entry() {
    let memory = Database::open("*").expect("a database");
    let folder = tempfile::tempdir().expect("a folder");
    let (log, _) = open(folder.path());
    put(&log, &memory, b"key", b"v");
    let last_us = log.last_entry_us();
    let marks = [(); 2].map(|()| log.mark());
    assert!(marks.iter().all(|mark| mark.last_us == last_us && mark.now_us >= last_us));
    // An entry after a mark has a later time stamp.
    put(&log, &memory, b"key", b"v");
    assert!(log.last_entry_us() > marks[1].now_us);
}

#[test]
fn an_entry_counts_as_written_once_readers_may_read_it() {
    let memory = Database::open("*").expect("a database");
    let folder = tempfile::tempdir().expect("a folder");
    let (log, _) = open(folder.path());
    put(&log, &memory, b"key", b"v");
    std::thread::scope(|scope| {
        // This lock keeps the writer from moving the end.
        let end = log.tail.lock();
        scope.spawn(|| log.write());
        let file = log.folder().join("00000001.ulog");
        while std::fs::metadata(&file).expect("a file").len() == 0 {
            std::thread::yield_now();
        }
        // A writer that is late only makes the test pass.
        std::thread::sleep(TICK);
        assert_eq!(log.written.load(Ordering::SeqCst), 0);
        drop(end);
    });
    assert_eq!(log.tail().timestamp_us, log.last_entry_us());
}

#[test]
fn entries_appended_after_the_logs_own_thread_has_ended_are_written_on_closing() {
    let memory = Database::open("*").expect("a database");
    let folder = tempfile::tempdir().expect("a folder");
    let (log, _) = open(folder.path());
    log.maintain(|| true, |_| (), |_| ());
    put(&log, &memory, b"key", b"v");
    log.close();
    assert_eq!(log.tail().entries, 1);
    drop(log);
    let (log, unfinished) = open(folder.path());
    assert_eq!((log.tail().end.offset > 0, unfinished), (true, vec![]));
}

#[test]
fn a_log_on_a_full_disk_opens_and_refuses_changes_and_loses_no_recovered_entry() {
    let memory = Database::open("*").expect("a database");
    let folder = tempfile::tempdir().expect("a folder");
    let (log, _) = open(folder.path());
    put(&log, &memory, b"key", b"v");
    // A change in progress.
    let change = log.begin(&memory, SOURCE, Scope::Key(b"other"), true).expect("no failure");
    std::mem::forget(change);
    let file = log.folder().join("00000001.ulog");
    // Dropping the log leaves the files as a kill does.
    drop(log);
    std::fs::remove_file(&file).expect("a file");
    std::os::unix::fs::symlink("/dev/full", &file).expect("a link");
    for _ in 0..2 {
        let (log, unfinished) = open(folder.path());
        assert!(log.is_full() && unfinished.is_empty());
        for _ in 0..2 {
            let refused = log.begin(&memory, SOURCE, Scope::Key(b"key"), true).err();
            let refused = refused.expect("a refusal");
            assert!(matches!(refused, cabinet::Error::NoLogSpace { .. }), "{refused}");
            let file = file.display();
            let advice =
                format!("no space left for the update log {file}: free space on its file system");
            assert_eq!(refused.to_string(), advice, "a cap of the database is no cause");
            log.resume(|_| panic!("the disk is still full"));
            assert!(!log.write() && !log.sync());
        }
        log.close();
    }
    std::fs::remove_file(&file).expect("a link");
    let (log, unfinished) = open(folder.path());
    assert!(!log.is_full());
    assert_eq!(unfinished.len(), 1);
    assert_eq!(unfinished[0].subject, Subject::Key(b"other".to_vec()));
    assert!(log.tail().end.offset > 0, "the entry is in the file");
    put(&log, &memory, b"key", b"v");
    assert!(log.write());
}

#[test]
fn a_write_does_not_wait_for_a_sync() {
    let memory = Database::open("*").expect("a database");
    let folder = tempfile::tempdir().expect("a folder");
    // Each entry fills a file.
    let settings = Settings { file_bytes_max: 1, ..Settings::new(folder.path().join("ulog")) };
    let (log, _) = UpdateLog::open(settings, &memory).expect("a log");
    for _ in 0..2 {
        put(&log, &memory, b"key", b"v");
        assert!(log.write());
    }
    // A pipe in place of the first file: opening it blocks until the other end is open too.
    let first = log.folder().join("00000001.ulog");
    std::fs::remove_file(&first).expect("a file");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &first, kind, mode, 0).expect("a pipe");
    let (done, is_written) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| log.sync());
        // If the sync has not come to the pipe by then, the write has less to wait for.
        std::thread::sleep(5 * TICK);
        scope.spawn(|| {
            put(&log, &memory, b"key", b"v");
            done.send(log.write()).expect("a receiver");
        });
        let written = is_written.recv_timeout(std::time::Duration::from_secs(120));
        let pipe = std::fs::File::options().write(true).open(&first).expect("a pipe");
        drop(pipe);
        // A pipe cannot be synced.
        assert!(!syncing.join().expect("a thread"));
        assert_eq!(written, Ok(true));
    });
}

/// Opens the log of a folder and ends the process, as it were. Returns the first file.
fn reopened(folder: &Path) -> Vec<u8> {
    let (log, _) = open(folder);
    log.close();
    std::fs::read(log.folder().join("00000001.ulog")).expect("a file")
}

#[test]
fn no_flipped_bit_in_a_header_makes_a_server_remove_entries() {
    const COUNT: usize = 6;
    let memory = Database::open("*").expect("a database");
    for is_closed in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        // The values end in zeros, as what a crash of the system leaves.
        (0..COUNT).for_each(|_| put(&log, &memory, b"key", &[b'v', 0, 0, 0, 0]));
        assert!(log.write());
        if is_closed {
            log.close();
        }
        let ulog = log.folder().to_owned();
        let last_us = log.last_entry_us();
        drop(log);
        let (path, journal) = (ulog.join("00000001.ulog"), ulog.join("journal.00000001"));
        let (whole, left) = (std::fs::read(&path).expect("a file"), std::fs::read(&journal).ok());
        assert_eq!(left.is_none(), is_closed);
        let entry_bytes = whole.len() / COUNT;
        // The flipped bits of a time stamp or an id show nowhere.
        let is_seen = |bit: usize| bit / 8 == 0 || bit / 8 >= 13;
        let bits = (0..8 * ENTRY_HEADER_BYTES).filter(|bit| is_seen(*bit) || bit % 8 == 1);
        for (bit, entry) in bits.flat_map(|bit| [(bit, 2), (bit, COUNT - 1)]) {
            for item in std::fs::read_dir(&ulog).expect("files") {
                let path = item.expect("a file").path();
                if !path.ends_with("identity") {
                    std::fs::remove_file(path).expect("a file");
                }
            }
            let mut bytes = whole.clone();
            bytes[entry * entry_bytes + bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bytes).expect("room");
            if let Some(left) = &left {
                std::fs::write(&journal, left).expect("room");
            }
            let left = reopened(folder.path());
            assert_eq!(left[..bytes.len()], bytes, "bit {bit} of entry {entry}");
            let mut reader = Reader::open(&ulog, 0).expect("files").expect("a file");
            let mut count = 0;
            let error = loop {
                match reader.next(None) {
                    Ok(Some(entry)) if Operation::parse(entry.body).is_ok() => count += 1,
                    Ok(Some(_)) => break Some("not an operation".to_owned()),
                    Ok(None) => break None,
                    Err(error) => break Some(error.to_string()),
                }
            };
            let is_seen = is_seen(bit);
            let is_right = if is_seen { count == entry } else { count >= COUNT };
            assert!(is_right && error.is_some() == is_seen, "bit {bit} of {entry}: {error:?}");
            if is_seen {
                let (log, _) = open(folder.path());
                assert_eq!(log.last_entry_us(), last_us, "bit {bit} of entry {entry}");
                log.close();
            }
        }
    }
}

#[test]
fn an_incomplete_entry_is_removed_after_a_kill_and_kept_after_a_clean_stop() {
    let memory = Database::open("*").expect("a database");
    for is_closed in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        put(&log, &memory, b"key", b"v");
        assert!(log.write());
        if is_closed {
            log.close();
        }
        let path = log.folder().join("00000001.ulog");
        drop(log);
        let whole = std::fs::read(&path).expect("a file");
        let torn = [&whole[..], &whole[..20]].concat();
        std::fs::write(&path, &torn).expect("room");
        let expected = if is_closed { torn } else { whole };
        assert_eq!(reopened(folder.path()), expected);
    }
}
