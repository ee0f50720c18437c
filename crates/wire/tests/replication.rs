//! Promises of the messages between two servers of this project.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

#[path = "common/bytes.rs"]
mod bytes;

use bytes::{assert_is_one_request, unhex};
use wire::limits::{
    LOG_IDENTITY_BYTES_MAX, REPLICATION_BLOCK_BYTES_MAX, REPLICATION_REASON_BYTES_MAX,
};
use wire::replication::{
    Acknowledgement, FromMaster, LogProgress, Position, ROOT_LOGS_MAX, Resume, Root, progress_in,
    progress_pairs,
};
use wire::update_log::Message;
use wire::{Invalid, Parse};

const POSITION: Position =
    Position { now_us: u64::MAX, timestamp_us: 2, remaining: 3, is_awaited: true };

fn all() -> Vec<FromMaster<'static>> {
    vec![
        FromMaster::Log(Message::NoOperation),
        FromMaster::Log(Message::Update { timestamp_us: 7, origin: 70_000, body: b"body" }),
        FromMaster::Position(POSITION),
        FromMaster::Position(Position::default()),
        FromMaster::SeedBegin { records: 4_000_000, last_uid: 9 },
        FromMaster::Record { body: b"" },
        FromMaster::Record { body: b"put it" },
        FromMaster::SeedEnd { timestamp_us: 1 },
        FromMaster::Block { bytes: 12, compressed: b"less" },
        FromMaster::Refused { is_final: true, reason: b"no" },
        FromMaster::Refused { is_final: false, reason: b"not now" },
        FromMaster::Rooted {
            root: Root { log: 8, timestamp_us: u64::MAX },
            message: Message::Update { timestamp_us: 7, origin: 7, body: b"body" },
        },
        FromMaster::Progress { pairs: b"" },
        FromMaster::Progress { pairs: b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02" },
        FromMaster::Switch { timestamp_us: 5 },
    ]
}

fn encoded(message: &FromMaster<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn every_message_of_a_master_is_read_as_it_was_written() {
    for message in all() {
        let bytes = encoded(&message);
        assert_eq!(FromMaster::parse(&bytes), Parse::Complete(message, bytes.len()));
        assert_is_one_request(&bytes, |bytes| FromMaster::parse(bytes).map(|_| ()));
    }
}

#[test]
fn pairs_are_read_as_they_were_written_within_their_limit() {
    let pairs: Vec<_> = (1..=ROOT_LOGS_MAX as u64).map(|log| (log, u64::MAX - log)).collect();
    let bytes = encoded(&FromMaster::Progress { pairs: &progress_pairs(&pairs) });
    let Parse::Complete(FromMaster::Progress { pairs: read }, _) = FromMaster::parse(&bytes) else {
        panic!("no pairs");
    };
    assert_eq!(progress_in(read).collect::<Vec<_>>(), pairs);
    let more = [pairs, vec![(0, 0)]].concat();
    for pairs in [progress_pairs(&more), vec![0; 15]] {
        assert!(FromMaster::Progress { pairs: &pairs }.encode(&mut Vec::new()).is_err());
    }
    let many = [&[0xd6][..], &(ROOT_LOGS_MAX as u32 + 1).to_be_bytes()].concat();
    assert_eq!(FromMaster::parse(&many), Parse::Invalid(Invalid::TooLarge));
}

#[test]
fn no_log_has_the_name_0() {
    let message = Message::NoOperation;
    for log in [0, 1] {
        let rooted = FromMaster::Rooted { root: Root { log, timestamp_us: 2 }, message };
        let pairs = progress_pairs(&[(1, 2), (log, 3)]);
        for message in [rooted, FromMaster::Progress { pairs: &pairs }] {
            let bytes = encoded(&message);
            match FromMaster::parse(&bytes) {
                Parse::Complete(read, _) if log == 1 => assert_eq!(read, message),
                read => assert_eq!((read, log), (Parse::Invalid(Invalid::BadParameters), 0)),
            }
        }
    }
}

#[test]
fn the_bytes_of_a_position_are_those_of_the_document() {
    let expected = "cbffffffffffffffff0000000000000002000000000000000301";
    assert_eq!(encoded(&FromMaster::Position(POSITION)), unhex(expected));
}

#[test]
fn an_acknowledgement_is_read_as_it_was_written() {
    let acknowledgement =
        Acknowledgement { executed_us: 1, executed: 2, durable_us: 3, durable: u64::MAX };
    let mut bytes = Vec::new();
    acknowledgement.encode(&mut bytes);
    assert_eq!(bytes.len(), Acknowledgement::BYTES);
    assert_is_one_request(&bytes, |bytes| Acknowledgement::parse(bytes).map(|_| ()));
    assert_eq!(
        Acknowledgement::parse(&bytes),
        Parse::Complete(acknowledgement, Acknowledgement::BYTES)
    );
    assert_eq!(Acknowledgement::parse(b"\xca"), Parse::Invalid(Invalid::UnknownCommand));
}

#[test]
fn what_a_replica_has_executed_is_read_as_it_was_written_and_limited() {
    let of = |count: u64| Resume {
        progress: (1..=count).map(|log| LogProgress::up_to(log, 7)).collect(),
    };
    let mut bytes = Vec::new();
    let longest = of(ROOT_LOGS_MAX as u64);
    longest.encode(&mut bytes).unwrap();
    assert_is_one_request(&bytes, |bytes| Resume::parse(bytes).map(|_| ()));
    assert_eq!(Resume::parse(&bytes), Parse::Complete(longest, bytes.len()));
    let mut longer = Vec::new();
    assert!(of(ROOT_LOGS_MAX as u64 + 1).encode(&mut longer).is_err());
    assert_eq!(longer, b"");
    bytes[4] += 1;
    assert_eq!(Resume::parse(&bytes), Parse::Invalid(Invalid::TooLarge));
    assert_eq!(Resume::parse(b"\xd1"), Parse::Invalid(Invalid::UnknownCommand));
    // An earlier version says less.
    let earlier = b"\xd2\0\0\0\0\0\0\0\x07\0\0\0\x03log";
    assert_is_one_request(earlier, |bytes| Resume::parse(bytes).map(|_| ()));
    assert_eq!(Resume::parse(earlier), Parse::Complete(Resume::default(), earlier.len()));
    let size = [&[0xd2; 9][..], &(LOG_IDENTITY_BYTES_MAX as u32 + 1).to_be_bytes()].concat();
    assert_eq!(Resume::parse(&size), Parse::Invalid(Invalid::TooLarge));
}

#[test]
fn what_no_master_says_is_refused() {
    assert_eq!(FromMaster::parse(b"\xc8\x10"), Parse::Invalid(Invalid::UnknownCommand));
    let mut bytes = encoded(&FromMaster::Position(POSITION));
    *bytes.last_mut().unwrap() = 2;
    assert_eq!(FromMaster::parse(&bytes), Parse::Invalid(Invalid::BadParameters));
}

#[test]
fn limits_hold_to_the_byte() {
    let header = |kind: u8, sizes: &[usize]| {
        let sizes = sizes.iter().flat_map(|size| (*size as u32).to_be_bytes());
        [kind].into_iter().chain(sizes).collect::<Vec<u8>>()
    };
    let limits = [
        (0xcf, vec![0], REPLICATION_BLOCK_BYTES_MAX),
        (0xd0, vec![], REPLICATION_REASON_BYTES_MAX),
        (0xcd, vec![], wire::limits::UPDATE_BODY_BYTES_MAX),
    ];
    for (kind, before, limit) in limits {
        let sized = |size: usize| header(kind, &[&before[..], &[size]].concat());
        let at = sized(limit);
        assert_eq!(FromMaster::parse(&at), Parse::Incomplete(at.len() + limit));
        assert_eq!(FromMaster::parse(&sized(limit + 1)), Parse::Invalid(Invalid::TooLarge));
    }
    let over = header(0xcf, &[REPLICATION_BLOCK_BYTES_MAX + 1]);
    assert_eq!(FromMaster::parse(&over), Parse::Invalid(Invalid::TooLarge));
    let mut out = Vec::new();
    for (size, result) in [
        (REPLICATION_REASON_BYTES_MAX, Ok(())),
        (REPLICATION_REASON_BYTES_MAX + 1, Err(Invalid::TooLarge)),
    ] {
        assert_eq!(
            FromMaster::Refused { is_final: true, reason: &vec![b'x'; size] }.encode(&mut out),
            result
        );
    }
    for (size, result) in [
        (REPLICATION_BLOCK_BYTES_MAX, Ok(())),
        (REPLICATION_BLOCK_BYTES_MAX + 1, Err(Invalid::TooLarge)),
    ] {
        let block = FromMaster::Block { bytes: size, compressed: b"" };
        assert_eq!(block.encode(&mut out), result);
    }
}
