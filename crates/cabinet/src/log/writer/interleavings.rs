//! Model of the append path: threads append to a log while others seal segments, sync, and ask for
//! the end of the log. shuttle chooses the interleavings, see [`crate::base::sync`].
//!
//! The model records when each call begins and returns. After each run it compares these times with
//! the log. No two records overlap. Sequence numbers rise with the LSN. The changes of a key are in
//! their order. Each record can be read as soon as its append has returned. The promises of a seal,
//! a sync or an end of the log about earlier and later appends hold. Then the process is killed.
//! The next process finds all records and no damage; after a loss of power it finds all records
//! that a sync had covered.

use super::Purpose;
use crate::base::sync::{Mutex, model};
use crate::io::FaultyStorage;
use crate::log::record::Kind;
use crate::log::segments::{Check, with_record};
use crate::log::{Appended, EngineParameters, Log, Lsn, Recovery, Settings, StoredKind};
use crate::{Compression, Meta, Options, Wait};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PATH: &str = "casket.tch";

/// Threads that append.
const WRITERS: usize = 3;

/// Appends of each thread. They fill two segments or more.
const APPENDS: usize = 14;

/// Keys that all threads change.
const KEYS: usize = 2;

/// Longest value, in bytes. A few appends must fill a block or a segment.
const VALUE_BYTES_MAX: usize = 3900;

/// Longest value of a record that does not go into a block, in bytes.
const LONG_VALUE_BYTES_MAX: usize = 9000;

/// Time of the model: rises with each event.
#[derive(Default)]
struct Time(AtomicU64);

impl Time {
    fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// An append that has returned.
#[derive(Clone, Debug)]
struct Done {
    began: u64,
    ended: u64,
    lsn: Lsn,
    sequence: u64,
    total: usize,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Promise of a call about the appends before and after it.
enum Promised {
    /// All appends that ended before are before this LSN, and all that begin later are after it.
    /// The same holds for their sequence numbers and this one, if there is one.
    Border { began: u64, ended: u64, lsn: Lsn, sequence: Option<u64> },
    /// All appends that ended before survive a loss of power.
    Durable { began: u64, storage: FaultyStorage },
}

struct Model {
    storage: FaultyStorage,
    log: Log,
    time: Time,
    /// LSN of the last record of each key. Writers hold this lock as engines hold that of a shard.
    keys: [Mutex<Lsn>; KEYS],
    done: parking_lot::Mutex<Vec<Done>>,
    promised: parking_lot::Mutex<Vec<Promised>>,
}

fn options(is_eager: bool) -> Options {
    Options { segment_bytes: Some(64 << 10), eager_append_blocks: is_eager, ..Options::default() }
}

/// Reopens a log and returns its records in order, as keys with values.
fn records_of(storage: &FaultyStorage) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let log = open(storage, &options(false), &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
    });
    assert_eq!(log.damages, [], "an opening finds damage");
    found
}

fn open(storage: &FaultyStorage, options: &Options, each: &mut dyn FnMut(&[u8], &[u8])) -> Log {
    let parameters = EngineParameters::of(StoredKind::Hash);
    let settings = Settings::of(options);
    let storage = Arc::new(storage.clone());
    let recovery = Recovery::open(storage, Path::new(PATH), settings, options, parameters);
    let mut recovery = recovery.expect("the log opens");
    recovery
        .replay(&mut |_, _, _, record| {
            if matches!(record.kind, Kind::Put | Kind::Tombstone) {
                each(record.key, record.value);
            }
            Ok(())
        })
        .expect("the log is read");
    recovery.finish().expect("the log is ready")
}

impl Model {
    fn new(is_eager: bool) -> Self {
        let storage = FaultyStorage::new();
        let log = open(&storage, &options(is_eager), &mut |_, _| ());
        Self {
            storage,
            log,
            time: Time::default(),
            keys: Default::default(),
            done: parking_lot::Mutex::default(),
            promised: parking_lot::Mutex::default(),
        }
    }

    /// Appends records of keys that all threads change, alone and as batches.
    fn write(&self, writer: usize) {
        for number in 0..APPENDS {
            let key = thread_rng().gen_range(0..KEYS);
            let mut last = self.keys[key].lock();
            let bytes_max =
                if thread_rng().gen_ratio(1, 8) { LONG_VALUE_BYTES_MAX } else { VALUE_BYTES_MAX };
            let mut value = vec![number as u8; thread_rng().gen_range(0..bytes_max)];
            value.extend_from_slice(&[writer as u8, number as u8]);
            let began = self.time.now();
            let appended = match thread_rng().gen_range(0..16) {
                0 => self.append_batch(key, &value),
                1 => {
                    let birth = self.log.active_number();
                    value = birth.to_le_bytes().to_vec();
                    let appended = self.log.append_tombstone_born_in(&[key as u8], birth, *last);
                    appended.expect("a tombstone")
                }
                2 => self.log.append(self.put(key, &value), Purpose::Store).expect("an append"),
                _ => {
                    let record = self.put(key, &value);
                    self.log.append_after(record, Purpose::Store, *last).expect("an append")
                }
            };
            let ended = self.time.now();
            let segments = self.log.segments();
            let lsn = segments.lsn(appended.location);
            assert!(lsn > *last, "a change of a key is before an older one");
            *last = lsn;
            let read =
                with_record(&segments, appended.location, Wait::Block, Check::Whole, |record| {
                    assert_eq!(record.sequence, appended.sequence);
                    assert!(record.key == [key as u8] && record.value == value, "another record");
                    record.total
                });
            let total = read.expect("a record that was appended is read");
            let sequence = appended.sequence;
            let key = vec![key as u8];
            self.done.lock().push(Done { began, ended, lsn, sequence, total, key, value });
        }
    }

    fn put<'a>(&self, key: usize, value: &'a [u8]) -> crate::log::record::Prepared<'a> {
        let key: &'static [u8] = [&[0], &[1]][key];
        self.log.prepare(Kind::Put, key, value, Meta::NONE, Compression::None)
    }

    fn append_batch(&self, key: usize, value: &[u8]) -> Appended {
        let mut records = [self.put(key, value)];
        let mut appended = self.log.append_batch(&mut records, Purpose::Store).expect("a batch");
        appended.next().expect("the location of the record").0
    }

    /// Runs the calls of background threads and other callers.
    fn maintain(&self) {
        for _ in 0..4 {
            let began = self.time.now();
            match thread_rng().gen_range(0..5) {
                0 => {
                    let sealed = self.log.seal().expect("a seal");
                    let lsn = Lsn::new(sealed.before, 0);
                    self.promise_border(began, lsn, Some(sealed.next_sequence));
                }
                1 => {
                    let mut lsn = Lsn::default();
                    self.log.at_end(|end| lsn = end);
                    self.promise_border(began, lsn, None);
                }
                2 => {
                    let position = self.log.sync().expect("a sync");
                    assert!(self.log.commit().durable() >= position);
                    // All bytes that no sync has covered are lost.
                    let storage = self.storage.lose_power(|| 1);
                    self.promised.lock().push(Promised::Durable { began, storage });
                }
                3 => self.log.maintain_segments().expect("segments are cut"),
                _ => self.log.preallocate().expect("an allocation"),
            }
        }
    }

    fn promise_border(&self, began: u64, lsn: Lsn, sequence: Option<u64>) {
        let ended = self.time.now();
        self.promised.lock().push(Promised::Border { began, ended, lsn, sequence });
    }

    /// Compares the log with the results that its callers got.
    fn check(&self) {
        let mut done = std::mem::take(&mut *self.done.lock());
        done.sort_by_key(|one| one.lsn);
        for pair in done.windows(2) {
            let (one, next) = (&pair[0], &pair[1]);
            let end = one.lsn.offset() + one.total;
            let is_after = one.lsn.number() < next.lsn.number() || end <= next.lsn.offset();
            assert!(is_after, "records overlap");
            assert!(one.sequence < next.sequence, "sequence numbers do not rise with the LSN");
        }
        for promised in &*self.promised.lock() {
            match promised {
                Promised::Border { began, ended, lsn, sequence } => {
                    for one in &done {
                        assert!(one.ended > *began || one.lsn < *lsn, "a record before the border");
                        assert!(one.began < *ended || one.lsn >= *lsn, "a record after the border");
                        assert!(
                            sequence.is_none_or(|next| (one.sequence < next) == (one.lsn < *lsn)),
                            "a number on the other side of the border"
                        );
                    }
                }
                Promised::Durable { began, storage } => {
                    let found = records_of(storage);
                    for one in done.iter().filter(|one| one.ended < *began) {
                        let is_there =
                            found.iter().any(|(key, value)| *key == one.key && *value == one.value);
                        assert!(is_there, "a record that was synced is lost");
                    }
                }
            }
        }
        let appended: Vec<_> = done.into_iter().map(|one| (one.key, one.value)).collect();
        let found = records_of(&self.storage.kill());
        assert_eq!(found.len(), appended.len(), "the number of records found differs");
        assert!(found == appended, "the records found differ from those appended");
    }
}

/// Runs the model. Returns how many blocks and segments were begun in all runs.
fn run(seed: u64, runs: usize, is_eager: bool) -> BTreeMap<&'static str, u64> {
    let totals = Arc::new(parking_lot::Mutex::new(BTreeMap::new()));
    let sums = Arc::clone(&totals);
    model::run(seed, runs, move || {
        let model = Arc::new(Model::new(is_eager));
        let writers = (0..WRITERS).map(|writer| {
            let model = Arc::clone(&model);
            thread::spawn(move || model.write(writer))
        });
        let mut threads: Vec<_> = writers.collect();
        let other = Arc::clone(&model);
        threads.push(thread::spawn(move || other.maintain()));
        for thread in threads {
            thread.join().expect("a thread");
        }
        let mut totals = totals.lock();
        *totals.entry("blocks").or_default() += model.log.writer.blocks_begun();
        *totals.entry("segments").or_default() += model.log.active_number();
        drop(totals);
        model.check();
    });
    sums.lock().clone()
}

#[test]
fn appends_through_blocks_keep_their_promises_in_any_interleaving() {
    const RUNS: usize = 1000;
    let begun = run(1, RUNS, true);
    assert!(begun["blocks"] > 4 * RUNS as u64 && begun["segments"] > 2 * RUNS as u64, "{begun:?}");
}

#[test]
fn threads_that_meet_at_the_tail_begin_blocks_and_keep_the_same_promises() {
    const RUNS: usize = 400;
    let begun = run(2, RUNS, false);
    assert!(begun["blocks"] > RUNS as u64 / 4 && begun["segments"] > 2 * RUNS as u64, "{begun:?}");
}
