//! Connection to a server of Redis's protocol: pipelined requests, and replies of version 2.

use std::io::{ErrorKind, Write};

use wire::redis::{Reply, parse_reply, reply};
use wire::{Invalid, Parse};

use crate::connection::Stream;
use crate::frames::Frames;
use crate::limits::{PIPELINE_CHUNK_BYTES_MAX, REDIS_REPLY_ROOM_BYTES};
use crate::{Address, Credentials, Error, Result, Settings};

/// A connection to a server of Redis's protocol.
///
/// Each request has a reply, in their order. The replies to up to [`PIPELINE_CHUNK_BYTES_MAX`]
/// bytes of requests must be read before the next ones are sent: the server may stop reading until
/// its replies are taken.
pub struct RedisConnection {
    stream: Stream,
    frames: Frames,
    /// Requests that were not sent yet.
    requests: Vec<u8>,
    string_bytes_max: usize,
}

impl RedisConnection {
    /// Connects, and logs in if the settings have a user; one without a name has a password alone.
    /// Strings of more than `string_bytes_max` bytes are not read into memory.
    pub fn open(address: &Address, settings: &Settings, string_bytes_max: usize) -> Result<Self> {
        let stream = Stream::open(address, &Settings { login: None, ..settings.clone() })?;
        let mut connection =
            Self { stream, frames: Frames::default(), requests: Vec::new(), string_bytes_max };
        if let Some(login) = &settings.login {
            connection.stream.check_privacy(settings.allows_plain_login)?;
            connection.log_in(login)?;
        }
        Ok(connection)
    }

    fn log_in(&mut self, login: &Credentials) -> Result<()> {
        match login.name() {
            "" => self.call(&[b"AUTH", login.password().as_bytes()]),
            name => self.call(&[b"AUTH", name.as_bytes(), login.password().as_bytes()]),
        }
    }

    /// Sends a request that has no other result than whether it succeeded.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<()> {
        self.push(words);
        self.send()?;
        match self.reply()? {
            Reply::Error(text) => Err(Error::Replied(String::from_utf8_lossy(text).into_owned())),
            _ => Ok(()),
        }
    }

    /// Appends a request to those that are sent next. Returns whether these should be sent now.
    pub fn push(&mut self, words: &[&[u8]]) -> bool {
        reply::array(&mut self.requests, words.len());
        words.iter().for_each(|word| reply::string(&mut self.requests, word));
        self.requests.len() >= PIPELINE_CHUNK_BYTES_MAX
    }

    /// Sends the requests.
    pub fn send(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.requests);
        self.requests.clear();
        // A long value does not keep its memory.
        self.requests.shrink_to(2 * PIPELINE_CHUNK_BYTES_MAX);
        sent.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Error::Send(ErrorKind::TimedOut.into()),
            _ => Error::Send(error),
        })
    }

    /// Blocks until the next reply has been received.
    pub fn reply(&mut self) -> Result<Reply<'_>> {
        let limit = self.string_bytes_max;
        self.frames.wait(&mut self.stream, |input| parse_within(input, limit).map(drop))?;
        if let Some(Reply::Oversized(length)) = self.parsed()? {
            self.frames.skip(&mut self.stream, length + b"\r\n".len())?;
            return Ok(Reply::Oversized(length));
        }
        self.frames.put_back();
        // It was received above.
        Ok(self.parsed()?.unwrap_or(Reply::Null))
    }

    fn parsed(&mut self) -> Result<Option<Reply<'_>>> {
        let limit = self.string_bytes_max;
        self.frames.next(|input| parse_within(input, limit))
    }
}

/// Parses a reply, unless it takes more memory than a string of the longest length and its room.
fn parse_within(input: &[u8], string_bytes_max: usize) -> Parse<Reply<'_>> {
    match parse_reply(input, string_bytes_max) {
        Parse::Incomplete(needed) if needed > string_bytes_max + REDIS_REPLY_ROOM_BYTES => {
            Parse::Invalid(Invalid::TooLarge)
        }
        parsed => parsed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::thread::{self, JoinHandle};

    /// Starts a server that replies to each connection with these bytes, byte by byte, and returns
    /// the requests of the last one.
    fn server(replies: Vec<u8>) -> (Address, JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = Address::from(("127.0.0.1", listener.local_addr().unwrap().port()));
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            replies.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        (address, serving)
    }

    #[test]
    fn replies_come_in_the_order_of_the_requests_and_a_long_string_is_passed_over() {
        let replies = b"+OK\r\n$3\r\nabc\r\n$4\r\nab\r\n\r\n*2\r\n$1\r\n0\r\n*0\r\n-ERR no\r\n";
        let (address, serving) = server(replies.to_vec());
        let login = Some(Credentials::new("", "secret"));
        let settings = Settings { login, ..Settings::default() };
        let mut connection = RedisConnection::open(&address, &settings, 3).unwrap();
        for _ in 0..3 {
            assert!(!connection.push(&[b"GET", b"a"]));
        }
        connection.send().unwrap();
        assert_eq!(connection.reply().unwrap(), Reply::String(b"abc"));
        assert_eq!(connection.reply().unwrap(), Reply::Oversized(4));
        assert!(matches!(connection.reply().unwrap(), Reply::Array(_)));
        assert_eq!(connection.reply().unwrap(), Reply::Error(b"ERR no"));
        let error = connection.reply().unwrap_err();
        assert!(matches!(error, Error::Receive(_)), "{error}");
        drop(connection);
        let get = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n".repeat(3);
        let expected = format!("*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n{get}");
        assert_eq!(String::from_utf8(serving.join().unwrap()).unwrap(), expected);
    }

    #[test]
    fn the_memory_of_a_reply_is_limited() {
        // The rest of an array takes three bytes for each reply at least.
        let needed = |count: usize| format!("*{count}\r\n").len() + 3 * count;
        let count = (1..).find(|count| needed(count + 1) > REDIS_REPLY_ROOM_BYTES).unwrap();
        for (count, is_taken) in [(count - 1, true), (count, true), (count + 1, false)] {
            let parsed = parse_within(format!("*{count}\r\n").as_bytes(), 0).map(drop);
            assert_eq!(matches!(parsed, Parse::Incomplete(_)), is_taken, "{count}: {parsed:?}");
            assert_eq!(parsed == Parse::Invalid(Invalid::TooLarge), !is_taken, "{count}");
        }
    }

    #[test]
    fn a_refused_login_is_an_error_with_the_servers_text() {
        let (address, serving) = server(b"-WRONGPASS no\r\n".to_vec());
        let login = Some(Credentials::new("ann", "wrong"));
        let settings = Settings { login, ..Settings::default() };
        let error = RedisConnection::open(&address, &settings, 3).err().unwrap();
        assert_eq!(error.to_string(), "the server replied: WRONGPASS no");
        serving.join().unwrap();
    }
}
