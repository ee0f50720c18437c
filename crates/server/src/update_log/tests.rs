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
