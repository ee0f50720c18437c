//! A queue that survives a crash and a power failure: `durable_queue FILE.tcb put TEXT`,
//! `durable_queue FILE.tcb take`.
//!
//! Keys are numbers in big-endian order, so the first key is the oldest message. With
//! `durability=always` each change is on the disk when the function returns; changes of several
//! threads share one sync.

use cabinet::{Database, Error, Result};

/// Key that is before those of all messages; its value is the number of the last message.
const LAST: &[u8] = b"";

fn open(path: &str) -> Result<Database> {
    Database::open(&format!("{path}#durability=always"))
}

/// Adds a message. Its number and the message are written together, or not at all.
fn put(queue: &Database, message: &[u8]) -> Result<u64> {
    loop {
        let transaction = queue.transaction();
        let last = transaction.get(LAST)?.and_then(|last| last.try_into().ok());
        let number = last.map_or(0, u64::from_be_bytes) + 1;
        transaction.put(LAST, &number.to_be_bytes())?;
        transaction.put(&number.to_be_bytes(), message)?;
        match transaction.commit() {
            // Another thread took the number.
            Err(Error::Conflict) => {}
            outcome => return outcome.map(|()| number),
        }
    }
}

/// Removes the oldest message. Each message is returned to one caller.
fn take(queue: &Database) -> Result<Option<Vec<u8>>> {
    for record in queue.range(0_u64.to_be_bytes()..)? {
        let record = record?;
        // Another thread may have taken it since it was read.
        if queue.remove(&record.key)? {
            return Ok(Some(record.value));
        }
    }
    Ok(None)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [path, "put", message] => println!("{}", put(&open(path)?, message.as_bytes())?),
        [path, "take"] => match take(&open(path)?)? {
            Some(message) => println!("{}", String::from_utf8_lossy(&message)),
            None => println!("the queue is empty"),
        },
        _ => eprintln!("usage: durable_queue FILE.tcb put TEXT | take"),
    }
    Ok(())
}

#[test]
fn messages_come_out_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue.tcb").display().to_string();
    let queue = open(&path).unwrap();
    let numbers: Vec<u64> = [b"a", b"b", b"c"].map(|text| put(&queue, text).unwrap()).into();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(take(&queue).unwrap().unwrap(), b"a");
    drop(queue);
    let queue = open(&path).unwrap();
    queue.put(b"\0\0\0\0\0\0\0\x04", b"d").unwrap();
    let left: Vec<_> = std::iter::from_fn(|| take(&queue).unwrap()).collect();
    assert_eq!(left, [b"b", b"c", b"d"]);
}
