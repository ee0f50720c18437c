//! Commands: each command against exchanges captured from Tokyo Tyrant.

mod fake;

use client::{Client, Error, Pipeline, Reply};
use fake::exchange;

/// Exchanges captured from Tokyo Tyrant, in hexadecimal, separated by tabs.
const CAPTURED: &str = include_str!("../../wire/tests/captured/hash-binary.tsv");

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|char| !char.is_whitespace()).collect();
    let digit = |char: char| char.to_digit(16).expect("a hexadecimal digit") as u8;
    digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn captured(label: &str) -> (Vec<u8>, Vec<u8>) {
    let line = CAPTURED.lines().find(|line| line.split('\t').next() == Some(label)).expect(label);
    let mut fields = line.split('\t').skip(1);
    let mut field = || unhex(fields.next().expect(label));
    (field(), field())
}

/// Runs `commands` against the captured exchanges with these labels.
fn replay(labels: &[&str], commands: impl FnOnce(&Client)) {
    exchange(labels.iter().map(|label| captured(label)).collect(), commands);
}

#[test]
fn records_are_written() {
    let labels = [
        "put one=first",
        "putkeep one (exists)",
        "putkeep two",
        "putcat one +\"!\"",
        "putshl one +\"abc\" w=4",
        "putnr three",
        "out missing",
        "out empty",
        "vanish",
    ];
    replay(&labels, |client| {
        client.put(b"one", b"first").unwrap();
        assert!(!client.put_keep(b"one", b"x").unwrap());
        assert!(client.put_keep(b"two", b"second").unwrap());
        client.put_cat(b"one", b"!").unwrap();
        client.put_shift(b"one", b"abc", 4).unwrap();
        client.put_no_reply(b"three", b"third").unwrap();
        assert!(!client.out(b"nope").unwrap());
        assert!(client.out(b"").unwrap());
        client.vanish().unwrap();
    });
}

#[test]
fn records_are_read() {
    let labels = [
        "get one",
        "get missing",
        "get empty key",
        "vsiz two",
        "vsiz missing",
        "mget two,nope,three",
        "mget 0",
    ];
    replay(&labels, |client| {
        assert_eq!(client.get(b"one").unwrap(), Some(b"!abc".to_vec()));
        assert_eq!(client.get(b"nope").unwrap(), None);
        assert_eq!(client.get(b"").unwrap(), Some(Vec::new()));
        assert_eq!(client.value_size(b"two").unwrap(), Some(6));
        assert_eq!(client.value_size(b"nope").unwrap(), None);
        let pair = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        let found = client.get_many(&["two", "nope", "three"]).unwrap();
        assert_eq!(found, [pair("two", "second"), pair("three", "third")]);
        assert_eq!(client.get_many::<&str>(&[]).unwrap(), []);
    });
}

#[test]
fn keys_are_listed() {
    let end = (unhex("c851"), unhex("01"));
    let labels = ["iterinit", "iternext"];
    let prefixes = ["fwmkeys t max=-1", "fwmkeys t max=1", "fwmkeys t max=0"];
    let mut exchanges: Vec<_> = labels.iter().map(|label| captured(label)).collect();
    exchanges.push(end);
    exchanges.extend(prefixes.iter().map(|label| captured(label)));
    exchange(exchanges, |client| {
        client.iter_init().unwrap();
        assert_eq!(client.iter_next().unwrap(), Some(b"one".to_vec()));
        assert_eq!(client.iter_next().unwrap(), None);
        let two = b"two".to_vec();
        assert_eq!(client.keys_with_prefix(b"t", None).unwrap(), [two.clone(), b"three".to_vec()]);
        assert_eq!(client.keys_with_prefix(b"t", Some(1)).unwrap(), [two]);
        assert_eq!(client.keys_with_prefix(b"t", Some(0)).unwrap(), [b""; 0]);
    });
}

#[test]
fn numbers_are_incremented() {
    let labels = [
        "addint n +5",
        "addint n -7",
        "addint on non-4-byte",
        "adddouble d +1.5",
        "adddouble d -3.25",
        "adddouble on bad",
    ];
    replay(&labels, |client| {
        assert_eq!(client.add_int(b"n", 5).unwrap(), 5);
        assert_eq!(client.add_int(b"n", -7).unwrap(), -2);
        assert_eq!(client.add_int(b"two", 1).unwrap_err().code(), 6);
        assert_eq!(client.add_double(b"d", 1.5).unwrap(), 1.5);
        assert_eq!(client.add_double(b"d", -3.25).unwrap(), -1.75);
        assert_eq!(client.add_double(b"two", 1.0).unwrap_err().code(), 6);
    });
}

#[test]
fn functions_are_called() {
    let labels = [
        "ext echo",
        "ext echo xlg",
        "ext undefined",
        "misc getlist",
        "misc put",
        "misc get miss",
        "misc error NOULOG",
    ];
    replay(&labels, |client| {
        assert_eq!(client.ext(b"echo", 0, b"k", b"v").unwrap(), b"k\tv");
        assert_eq!(client.ext(b"echo", 2, b"k", b"v").unwrap(), b"k\tv");
        assert_eq!(client.ext(b"nofn", 0, b"k", b"v").unwrap_err().code(), 9999);
        let list = client.misc(b"getlist", 0, &["two", "nope", "three"]).unwrap();
        assert_eq!(list, ["two", "second", "three", "third"].map(|text| text.as_bytes().to_vec()));
        assert_eq!(client.misc(b"put", 0, &["mk", "mv"]).unwrap(), [b""; 0]);
        assert_eq!(client.misc(b"get", 0, &["mkx"]).unwrap_err().code(), 9999);
        let error = client.misc::<&str>(b"error", 1, &[]).unwrap();
        assert_eq!(error, [b"22: no record found"]);
    });
}

#[test]
fn the_database_is_managed() {
    let exchanges = vec![
        captured("sync"),
        captured("optimize bnum=200"),
        captured("rnum"),
        captured("size"),
        (unhex("c888"), unhex("00 00000004 610a620a")),
        (unhex("c873 00000002 2f63"), unhex("01")),
        (unhex("c874 00000002 0000000100000002 00000001 2f75"), unhex("00")),
        (unhex("c878 00000001 000007ba 0000000100000002 00000001 68"), unhex("00")),
    ];
    exchange(exchanges, |client| {
        client.sync().unwrap();
        client.optimize(b"bnum=200").unwrap();
        assert_eq!(client.count().unwrap(), 7);
        assert_eq!(client.size().unwrap(), 0x15a0);
        assert_eq!(client.stat().unwrap(), b"a\nb\n");
        assert_eq!(client.copy(b"/c").unwrap_err().code(), 9999);
        client.restore(b"/u", (1 << 32) + 2, 1).unwrap();
        client.set_master(b"h", 1978, (1 << 32) + 2, 1).unwrap();
    });
}

#[test]
fn a_pipeline_sends_the_same_bytes_as_single_requests() {
    let labels = ["pipelined put+get+get", "putnr three", "addint n +5", "out missing"];
    replay(&labels, |client| {
        let mut pipeline = client.pipeline();
        let fill = |pipeline: &mut Pipeline<'_>| -> Result<(), Error> {
            pipeline.put(b"p", b"1")?.get(b"p")?.get(b"nope")?;
            pipeline.put_no_reply(b"three", b"third")?.add_int(b"n", 5)?.out(b"nope")?;
            Ok(())
        };
        fill(&mut pipeline).unwrap();
        assert_eq!(pipeline.len(), 6);
        let replies = [
            Reply::Done(true),
            Reply::Value(Some(b"1".to_vec())),
            Reply::Value(None),
            Reply::Sum(Some(5)),
            Reply::Done(false),
        ];
        assert_eq!(pipeline.run().unwrap(), replies);
        assert_eq!(client.pipeline().run().unwrap(), []);
    });
}
