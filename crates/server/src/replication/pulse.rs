//! Pulse: the master's heartbeat for a replica of this project.
//!
//! The thread that serves the replica sends the messages. While it counts the entries of a long
//! log, or skips the replica's own entries, it has nothing to send. Meanwhile the thread that reads
//! from the replica repeats the last position. The socket is locked from the beginning of a message
//! to its end.

use super::HEARTBEAT;
use super::sender::Failure;
use super::whole::WholeMessages;
use crate::update_log::now_us;
use parking_lot::Mutex;
use std::io::Write;
use std::time::{Duration, Instant};
use tls::Stream;
use wire::replication::{FromMaster, Position};

/// The sending half of a link.
pub(super) struct Pulse<'s> {
    stream: &'s Stream,
    sent: Mutex<Sent>,
}

struct Sent {
    at: Instant,
    /// The position that was sent last; `None` before the first, as the replica first expects to
    /// learn whether an initial sync begins.
    position: Option<Position>,
}

impl<'s> Pulse<'s> {
    pub(super) fn new(stream: &'s Stream) -> Self {
        Self { stream, sent: Mutex::new(Sent { at: Instant::now(), position: None }) }
    }

    /// Sends messages. `position` is the last position among them.
    pub(super) fn send(&self, bytes: &[u8], position: Option<Position>) -> std::io::Result<()> {
        let mut sent = self.sent.lock();
        let mut stream = self.stream;
        stream.write_all(bytes)?;
        sent.at = Instant::now();
        sent.position = position.or(sent.position);
        Ok(())
    }

    /// Repeats the last position if nothing was sent for a second. Skips a socket that is being
    /// written to, or is full.
    pub(super) fn beat(&self) -> Result<(), Failure> {
        self.beat_at(Instant::now())
    }

    fn beat_at(&self, now: Instant) -> Result<(), Failure> {
        let Some(mut sent) = self.sent.try_lock() else { return Ok(()) };
        let is_silent = now.saturating_duration_since(sent.at) >= HEARTBEAT;
        let Some(position) = sent.position.filter(|_| is_silent) else {
            return Ok(());
        };
        let mut messages = WholeMessages::new(self.stream, Duration::ZERO);
        let repeated = FromMaster::Position(Position { now_us: now_us(), ..position });
        messages.push(|output| {
            // The message has a fixed length, below every limit.
            let _ = repeated.encode(output);
        });
        match messages.flush() {
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return Ok(()),
            flushed => flushed?,
        }
        sent.at = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use wire::Parse;

    #[test]
    fn the_last_position_is_repeated_after_a_second_of_silence_and_not_before() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = Stream::from(TcpStream::connect(address).expect("a connection"));
        let mut replica = listener.accept().expect("a connection").0;
        let pulse = Pulse::new(&stream);
        // There is no position to repeat yet.
        pulse.beat_at(Instant::now() + HEARTBEAT).expect("a connection");
        let position = Position { timestamp_us: 7, remaining: 3, ..Position::default() };
        pulse.send(b"messages", Some(position)).expect("a connection");
        let sent_at = pulse.sent.lock().at;
        let almost = Duration::from_nanos(1);
        for after in [Duration::ZERO, HEARTBEAT - almost, HEARTBEAT, 2 * HEARTBEAT - almost] {
            pulse.beat_at(sent_at + after).expect("a connection");
        }
        stream.shut_down().expect("a connection");
        let mut received = Vec::new();
        replica.read_to_end(&mut received).expect("a connection");
        let repeated = received.strip_prefix(b"messages").expect("what was sent first");
        let Parse::Complete(FromMaster::Position(heard), length) = FromMaster::parse(repeated)
        else {
            panic!("{repeated:?}");
        };
        assert_eq!((heard.timestamp_us, heard.remaining), (7, 3));
        assert_eq!(length, repeated.len());
    }
}
