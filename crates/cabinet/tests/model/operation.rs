//! Random operations.

use proptest::prelude::*;

/// One thing to do to a database.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Record(Vec<u8>, RecordOperation),
    Batch {
        changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        expected: Vec<(Vec<u8>, bool)>,
    },
    Transaction(TransactionOperation),
    Scan,
    /// A scan of all, between the steps of which other things are done, a crash for the last.
    ScanBeside {
        operations: Vec<Operation>,
        crashes: bool,
    },
    ScanFrom(Vec<u8>),
    Prefix(Vec<u8>, Option<usize>),
    Find(Vec<u8>),
    Clear,
    Optimize,
    Sync,
    /// Wait until what was done is durable.
    Acknowledge,
    Maintain,
    /// Something beside the records.
    Rearrange(u8),
    Wait(u64),
    Reopen,
    Crash,
}

/// Changes that go together, something that somebody else does meanwhile, and how it ends.
#[derive(Clone, Debug)]
pub(crate) struct TransactionOperation {
    pub(crate) steps: Vec<(Vec<u8>, RecordOperation)>,
    pub(crate) meanwhile: Option<Vec<u8>>,
    pub(crate) commits: bool,
}

/// One thing to do to one record. Lifetimes are in milliseconds from now, negative for the past.
#[derive(Clone, Debug)]
pub(crate) enum RecordOperation {
    Get,
    Put { value: Vec<u8>, flags: u32, lifetime_ms: Option<i64> },
    PutKeep(Vec<u8>),
    Replace(Vec<u8>),
    PutCat(Vec<u8>),
    PutShift(Vec<u8>, usize),
    Extend { part: Vec<u8>, front: bool },
    Remove,
    AddInt(i32),
    AddDouble(f64),
    CompareAndSwap { value: Vec<u8>, stale: bool },
    Touch(Option<i64>),
}

pub(crate) fn operations(count: usize) -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), 1..count)
}

fn operation() -> impl Strategy<Value = Operation> {
    let beside = (proptest::collection::vec(operation_beside(), 0..12), any::<bool>());
    prop_oneof![
        45 => operation_beside(),
        1 => beside
            .prop_map(|(operations, crashes)| Operation::ScanBeside { operations, crashes }),
        2 => Just(Operation::Reopen),
        2 => Just(Operation::Crash),
    ]
}

/// One that leaves the database open.
fn operation_beside() -> impl Strategy<Value = Operation> {
    prop_oneof![
        30 => (key(), record_operation(true)).prop_map(|(key, op)| Operation::Record(key, op)),
        3 => batch(),
        3 => transaction().prop_map(Operation::Transaction),
        1 => Just(Operation::Scan),
        1 => key().prop_map(Operation::ScanFrom),
        1 => (key(), proptest::option::of(0usize..5))
            .prop_map(|(prefix, max)| Operation::Prefix(prefix, max)),
        1 => key().prop_map(Operation::Find),
        1 => Just(Operation::Clear),
        1 => Just(Operation::Optimize),
        1 => Just(Operation::Sync),
        1 => Just(Operation::Acknowledge),
        2 => Just(Operation::Maintain),
        2 => any::<u8>().prop_map(Operation::Rearrange),
        3 => (1u64..60).prop_map(Operation::Wait),
    ]
}

/// Few keys, some of them prefixes of others, one of them empty.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(b'a'..=b'c', 0..3),
        1 => Just(vec![0, 0xff, b'\n']),
        1 => Just(vec![b'k'; 3000]),
    ]
}

/// Short ones, numbers, words, and some that are long and compress well.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => any::<i32>().prop_map(|number| number.to_le_bytes().to_vec()),
        1 => any::<f64>().prop_map(|number| number.to_le_bytes().to_vec()),
        1 => "-{0,1}[0-9]{1,3} (red|green|blue)[, ](red|green)".prop_map(String::into_bytes),
        1 => (any::<u8>(), 0usize..3000).prop_map(|(byte, length)| vec![byte; length]),
        1 => (any::<u32>(), 0usize..12_000).prop_map(|(seed, length)| noise(seed, length)),
    ]
}

/// Bytes that do not compress. Drawn one by one they would take most of the test's time.
fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut state = u64::from(seed);
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn lifetime_ms() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![2 => Just(None), 1 => (-10i64..100).prop_map(Some)]
}

/// With `expires`, also those that have a record expire.
fn record_operation(expires: bool) -> impl Strategy<Value = RecordOperation> {
    let lifetime_ms = move || lifetime_ms().prop_map(move |ms| ms.filter(|_| expires));
    prop_oneof![
        3 => Just(RecordOperation::Get),
        6 => (value(), 0u32..3, lifetime_ms()).prop_map(|(value, flags, lifetime_ms)| {
            RecordOperation::Put { value, flags, lifetime_ms }
        }),
        1 => value().prop_map(RecordOperation::PutKeep),
        1 => value().prop_map(RecordOperation::Replace),
        1 => value().prop_map(RecordOperation::PutCat),
        1 => (value(), 0usize..20).prop_map(|(part, width)| RecordOperation::PutShift(part, width)),
        1 => (value(), any::<bool>())
            .prop_map(|(part, front)| RecordOperation::Extend { part, front }),
        3 => Just(RecordOperation::Remove),
        2 => any::<i32>().prop_map(RecordOperation::AddInt),
        1 => (-1e9f64..1e9).prop_map(RecordOperation::AddDouble),
        2 => (value(), any::<bool>())
            .prop_map(|(value, stale)| RecordOperation::CompareAndSwap { value, stale }),
        1 => lifetime_ms().prop_map(RecordOperation::Touch),
    ]
}

fn batch() -> impl Strategy<Value = Operation> {
    let changes = proptest::collection::vec((key(), proptest::option::of(value())), 0..6);
    let expected = proptest::collection::vec((key(), prop::bool::weighted(0.8)), 0..3);
    (changes, expected).prop_map(|(changes, expected)| Operation::Batch { changes, expected })
}

fn transaction() -> impl Strategy<Value = TransactionOperation> {
    let steps = proptest::collection::vec((key(), record_operation(false)), 0..6);
    (steps, proptest::option::weighted(0.3, key()), prop::bool::weighted(0.7))
        .prop_map(|(steps, meanwhile, commits)| TransactionOperation { steps, meanwhile, commits })
}
