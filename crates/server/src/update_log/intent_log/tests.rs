use super::*;

const SOURCE: Source = Source { origin: 300, master: 4, root: None };

fn begin(folder: &Path) -> (IntentLog, Vec<Unfinished>) {
    let recovered = Recovered::of(folder, 0).expect("files");
    IntentLog::begin(folder, &recovered).expect("no failure")
}

fn entry(timestamp_us: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let entry = Entry { timestamp_us, origin: 1, master: 0, body };
    entry.encode(&mut bytes).expect("an entry within the limit");
    bytes
}

#[test]
fn entries_that_the_update_log_lacks_are_recovered() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut intent_log, _) = begin(folder.path());
    for timestamp_us in 1..=3 {
        intent_log.entry(&entry(timestamp_us, b"body"), 0).expect("no failure");
    }
    let lacking = Recovered::of(folder.path(), 1).expect("files");
    assert_eq!(lacking.entries, [entry(2, b"body"), entry(3, b"body")].concat());
    assert_eq!(lacking.last_timestamp_us, 3);
    assert_eq!(Recovered::of(folder.path(), 3).expect("files").entries, b"");
}

#[test]
fn changes_that_are_not_done_stay_unfinished_until_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut intent_log, _) = begin(folder.path());
    let done = intent_log.change(SOURCE, Some(b"done")).expect("no failure");
    intent_log.change(SOURCE, Some(b"")).expect("no failure");
    intent_log.change(SOURCE, None).expect("no failure");
    intent_log.done(done);
    let expected = [Subject::Key(Vec::new()), Subject::All];
    for _ in 0..2 {
        let (mut intent_log, unfinished) = begin(folder.path());
        let subjects: Vec<_> = unfinished.iter().map(|one| one.subject.clone()).collect();
        assert_eq!(subjects, expected);
        assert!(unfinished.iter().all(|one| one.source == SOURCE));
        // Killed once more before any of them is resolved.
        intent_log.entry(&entry(9, b""), 0).expect("no failure");
    }
    let (mut intent_log, unfinished) = begin(folder.path());
    unfinished.iter().for_each(|one| intent_log.done(one.id));
    assert_eq!(begin(folder.path()).1, []);
}

#[test]
fn an_intent_log_of_several_parts_loses_no_entry_and_no_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut intent_log, _) = begin(folder.path());
    intent_log.change(SOURCE, Some(b"in progress")).expect("no failure");
    let number = intent_log.next_spare_number().expect("a number");
    intent_log.add_spare(Spare::create(folder.path(), number).expect("no failure"));
    // One entry is longer than a part.
    let lengths = [PART_BYTES / 2, PART_BYTES / 2, 3 * PART_BYTES, 10, PART_BYTES];
    let mut all = Vec::new();
    for (timestamp_us, length) in (1..).zip(lengths) {
        let entry = entry(timestamp_us, &vec![7; length]);
        all.extend_from_slice(&entry);
        intent_log.entry(&entry, all.len() as u64).expect("no failure");
    }
    assert_eq!(Recovered::of(folder.path(), 0).expect("files").entries, all);
    // Entries in the update log are no longer needed here.
    intent_log.forget(all.len() as u64);
    let recovered = Recovered::of(folder.path(), 0).expect("files");
    assert!(recovered.entries.len() < all.len() && all.ends_with(&recovered.entries));
    assert_eq!(recovered.unfinished.len(), 1);
}

#[test]
fn an_incomplete_record_ends_the_intent_log_whichever_byte_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut intent_log, _) = begin(folder.path());
    let [first, last] = [entry(1, b"first"), entry(2, b"last")];
    intent_log.entry(&first, 0).expect("no failure");
    let path = intent_log.part.path.clone();
    let start = intent_log.part.appender.end();
    intent_log.entry(&last, 0).expect("no failure");
    let end = intent_log.part.appender.end();
    drop(intent_log);
    let whole = std::fs::read(&path).expect("a file");
    for at in (start..end).filter(|at| whole[*at] != 0) {
        let mut bytes = whole.clone();
        bytes[at] = 0;
        std::fs::write(&path, bytes).expect("no failure");
        assert_eq!(Recovered::of(folder.path(), 0).expect("files").entries, first, "{at}");
    }
    std::fs::write(&path, whole).expect("no failure");
    assert_eq!(Recovered::of(folder.path(), 0).expect("files").entries, [first, last].concat());
}

#[test]
fn spare_parts_are_used_in_order_or_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let spare = |intent_log: &mut IntentLog| {
        let number = intent_log.next_spare_number().expect("a number");
        Spare::create(folder.path(), number).expect("no failure")
    };
    let (mut intent_log, _) = begin(folder.path());
    let mut all = Vec::new();
    let mut log = |intent_log: &mut IntentLog, length: usize| {
        let entry = entry(all.len() as u64 + 1, &vec![7; length]);
        all.extend_from_slice(&entry);
        intent_log.entry(&entry, all.len() as u64).expect("no failure");
        all.clone()
    };
    // The next entry does not fit into this spare part.
    let small = spare(&mut intent_log);
    intent_log.add_spare(small);
    log(&mut intent_log, PART_BYTES);
    assert_eq!(parts(folder.path()).expect("files").len(), 2);
    // A writer has begun a later part meanwhile.
    let late = spare(&mut intent_log);
    log(&mut intent_log, 2 * PART_BYTES);
    intent_log.add_spare(late);
    let all = (0..12).map(|_| log(&mut intent_log, PART_BYTES / 4)).last().expect("entries");
    let recovered = Recovered::of(folder.path(), 0).expect("files");
    assert!(recovered.entries == all);
    let numbers = parts(folder.path()).expect("files").into_iter().map(|(number, _)| number);
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 3, 5, 6, 7]);
}

#[test]
fn a_part_that_cannot_be_allocated_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    // No disk has space for it.
    assert!(Part::create(folder.path(), 1, 1 << 62).is_err());
    assert_eq!(parts(folder.path()).expect("files"), []);
}

#[test]
fn an_intent_log_from_before_a_restart_of_the_system_is_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut intent_log, _) = begin(folder.path());
    intent_log.change(SOURCE, Some(b"key")).expect("no failure");
    let path = intent_log.part.path.clone();
    drop(intent_log);
    let mut bytes = std::fs::read(&path).expect("a file");
    bytes[MAGIC.len()] ^= 1;
    std::fs::write(&path, bytes).expect("no failure");
    assert_eq!(begin(folder.path()).1, []);
}
