//! Reply delivery: sends replies, at once or after the log is durable, then updates the connection.

use super::{LINGER_SECONDS, LoopState, SCRATCH_BYTES_MAX};
use crate::counters::Count;
use crate::net::connection::{Connection, Stage};
use crate::net::mailbox::Message;
use crate::net::pending_reply::FirstAcknowledgement;
use crate::net::slab::Token;
use crate::net::worker_pool::{Job, Task};
use crate::ops::acknowledgement::AcknowledgementPoint;
use crate::ops::channels::{SUBSCRIBER_BYTES_MAX, Subscriber};
use crate::protocol::Context;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Reply if the budget of all buffers is exhausted.
const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";

/// Fails a connection that the memory budget cannot hold, and frees its buffers.
pub(super) fn out_of_memory(connection: &mut Connection) {
    // In the middle of a reply the client would take the message for a part of it.
    let is_between_replies =
        connection.unsent_bytes() == 0 && !connection.session.http.is_sending();
    connection.drop_buffers();
    connection.pending_reply = None;
    if is_between_replies {
        connection.deliver(&mut OUT_OF_MEMORY.to_vec(), &mut Vec::new());
    }
    connection.broken = true;
}

impl LoopState {
    /// Sends a reply. `output` is empty afterwards.
    pub(super) fn deliver(&mut self, connection: &mut Connection, output: &mut Vec<u8>) {
        // The client's time counts from the reply.
        connection.moved_at_s = self.now_s();
        if !output.is_empty() && !connection.broken {
            let sent = connection.deliver(output, &mut self.records);
            self.counters.add(Count::BytesWritten, sent as u64);
            connection.note_output(sent, self.now_ms());
        }
        output.clear();
        // A reply that was withdrawn may have grown the buffer too.
        if output.capacity() > SCRATCH_BYTES_MAX {
            *output = Vec::new();
        }
    }

    /// Sends the waiting replies, then executes the requests that waited for them.
    pub(super) fn flush_and_resume(&mut self, token: Token, connection: &mut Connection) {
        let sent = connection.flush(&mut self.records);
        if sent > 0 {
            self.counters.add(Count::BytesWritten, sent as u64);
            connection.moved_at_s = self.now_s();
        }
        connection.note_output(sent, self.now_ms());
        self.resume(token, connection);
    }

    /// Sends the messages that have come for a subscriber, once its replies are sent. One that does
    /// not take them is disconnected, and so is one that may not have them any more. While a
    /// request of the connection is in a pool, so is its session, and the messages wait.
    pub(super) fn publish(&mut self, connection: &mut Connection) {
        let Some(subscriptions) = &connection.session.subscriptions else { return };
        let subscriber = Arc::clone(subscriptions.subscriber());
        if connection.stage == Stage::Closing || connection.stage == Stage::Refusing {
            return;
        }
        if subscriber.is_overrun() {
            self.counters.count(Count::SlowSubscriber);
            tracing::warn!(
                "the subscriber {} is disconnected: it does not read, and more than {} MiB of \
                 messages wait for it, or more than there is memory for",
                connection.client(),
                SUBSCRIBER_BYTES_MAX >> 20
            );
            connection.broken = true;
            return;
        }
        let is_mid_reply = connection.session.http.is_sending() || connection.unsent_bytes() > 0;
        if is_mid_reply || connection.pending_reply.is_some() {
            return;
        }
        let descriptor = connection.descriptor();
        let (shared, session) = (&self.shared, &mut connection.session);
        if !Context::new(shared, false, &self.counters, session, descriptor).may_listen() {
            tracing::info!(
                "the subscriber {} is disconnected: its user has no right to its channels",
                connection.client()
            );
            connection.broken = true;
            return;
        }
        if let Some(mut messages) = subscriber.take() {
            self.deliver(connection, &mut messages);
        }
    }

    /// Lets publishers tell this loop of messages for a connection that subscribes.
    fn attach(&self, token: Token, subscriber: &Subscriber) {
        subscriber.attach(|| {
            let (hub, number) = (Arc::downgrade(&self.hub), self.number);
            Box::new(move || {
                if let Some(hub) = hub.upgrade() {
                    hub.mailboxes[number].post(Message::Published(token));
                }
            })
        });
    }

    /// Delays replies of a connection until `point` is reached.
    pub(super) fn delay_replies(
        &mut self,
        token: Token,
        connection: &mut Connection,
        point: AcknowledgementPoint,
        acknowledgement: FirstAcknowledgement,
    ) {
        if self.shared.is_reached(point) {
            return;
        }
        connection.delay_replies(point, acknowledgement, self.now);
        // Points only rise, but completions of the pool may come late.
        let index = self.pending_replies.partition_point(|(other, _)| *other <= point);
        self.pending_replies.insert(index, (point, token));
        self.mailbox().has_pending_replies.store(true, Ordering::SeqCst);
        if self.shared.is_reached(point) {
            // The listener may have run before the flag was set.
            self.mailbox().wake();
        }
    }

    /// Submits a task that finds out whether the log has failed.
    pub(super) fn ask_log(&mut self) {
        let Some(&(AcknowledgementPoint { durable, .. }, _)) = self.pending_replies.front() else {
            return;
        };
        if !self.is_asking_log {
            let task = Task::AwaitDurable(durable);
            // A full queue does no harm: the next tick tries again.
            self.is_asking_log = self
                .hub
                .pool
                .submit(Job { event_loop: self.number, task, is_script: false })
                .is_ok();
        }
    }

    /// Updates the budget, the stage and the watched events of a connection after it has acted.
    /// Returns whether it stays open.
    #[inline]
    pub(super) fn update(&mut self, token: Token, connection: &mut Connection) -> bool {
        if !connection.charge() {
            out_of_memory(connection);
        }
        if let Some(subscriptions) = &connection.session.subscriptions {
            self.attach(token, subscriptions.subscriber());
            if subscriptions.subscriber().has_told() {
                self.publish(connection);
            }
        }
        if connection.is_done() {
            return false;
        }
        if connection.stage == Stage::Refusing && connection.unsent_bytes() == 0 {
            connection.end_output();
            connection.stage = Stage::Lingering { until_s: self.now_s() + LINGER_SECONDS };
            self.lingering += 1;
        }
        if connection.paused && connection.reads() {
            connection.paused = false;
        }
        match connection.watch(&self.epoll, token) {
            Ok(()) => true,
            Err(error) => {
                let client = connection.client();
                tracing::error!("cannot watch the connection of {client}, it is closed: {error}");
                false
            }
        }
    }
}

#[cfg(test)]
#[path = "../../../../tls/tests/support/mod.rs"]
mod certificates;

#[cfg(test)]
mod tests {
    use super::super::{BUFFER_BYTES, EventLoop, WAKER};
    use super::*;
    use crate::Config;
    use crate::net::hub::Hub;
    use crate::net::listener::Beginning;
    use crate::ops::long::PIECE_BYTES;
    use crate::protocol::{self, Step};
    use cabinet::Database;
    use rustix::event::epoll::EventFlags;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// Size of a reply beyond the buffers of a socket whose client does not read, in bytes.
    const LONG_BYTES: usize = 8 << 20;

    /// Pieces of a large value.
    const PIECES: usize = 40;

    fn state(config: Config) -> LoopState {
        state_of(config, Database::open("*").expect("a database"))
    }

    fn state_of(config: Config, database: Database) -> LoopState {
        let hub = Hub::new(config, database).expect("a server's state");
        EventLoop::new(0, hub).expect("an event loop").state
    }

    fn connected(state: &LoopState) -> (Connection, UnixStream) {
        begun(state, Beginning::Plain)
    }

    fn begun(state: &LoopState, beginning: Beginning) -> (Connection, UnixStream) {
        let (client, socket) = UnixStream::pair().expect("sockets");
        socket.set_nonblocking(true).expect("a socket");
        (Connection::new(socket.into(), beginning, Arc::clone(&state.shared)), client)
    }

    /// Reads once, and returns the number of bytes that a session has decrypted.
    fn open(session: &mut tls::Session, client: &mut UnixStream) -> usize {
        let (mut records, mut plain) = (vec![0; 100_000], Vec::new());
        let kept = session.resume(&mut records);
        let received = client.read(&mut records[kept..]).expect("records");
        session.open(&mut records[..kept + received], &mut plain).expect("a session");
        plain.len()
    }

    #[test]
    fn the_end_of_a_session_is_not_said_behind_a_reply_that_is_cut_off() {
        let authority = super::certificates::Authority::new();
        let files = authority.server(&["localhost"]);
        let tls = crate::TlsSettings {
            files: crate::ServerFiles {
                certificates: files.certificate,
                key: files.key,
                client_authorities: None,
            },
            listen: Vec::new(),
            is_optional: true,
            handshake_timeout: Duration::from_secs(600),
        };
        let mut state = state(Config { tls: Some(tls), ..Config::default() });
        let trusting =
            tls::ClientSettings { authorities: Some(authority.file()), ..Default::default() };
        let trusting = trusting.read().expect("settings");
        for bytes in [1, LONG_BYTES] {
            let (mut connection, mut client) = begun(&state, Beginning::Tls);
            let mut session = tls::Session::client(&trusting, "localhost").expect("a session");
            while session.is_handshaking() || !session.unsent().is_empty() {
                client.write_all(session.unsent()).expect("a message");
                session.consume(session.unsent().len());
                state.ready(WAKER + 1, &mut connection, EventFlags::IN);
                if session.is_handshaking() {
                    open(&mut session, &mut client);
                }
            }
            state.deliver(&mut connection, &mut vec![b'v'; bytes]);
            assert_eq!(connection.unsent_bytes() > 0, bytes == LONG_BYTES);
            // The socket has space again when the connection ends.
            let mut received = 0;
            while rustix::io::ioctl_fionread(&client).expect("a socket") > 0 {
                received += open(&mut session, &mut client);
            }
            connection.end_session();
            drop(connection);
            let mut is_open = true;
            while is_open && !session.has_ended() {
                let before = received;
                received += open(&mut session, &mut client);
                is_open = received > before;
            }
            assert_eq!((received == bytes, session.has_ended()), (bytes == 1, bytes == 1));
        }
    }

    #[test]
    fn a_clients_timeout_counts_from_the_reply() {
        let limit = Some(Duration::from_secs(5));
        let mut state = state(Config { timeout: limit, idle_timeout: limit, ..Config::default() });
        for bytes in [0, 1, LONG_BYTES] {
            let (mut connection, _client) = connected(&state);
            state.now = state.shared.started + Duration::from_secs(60);
            state.deliver(&mut connection, &mut vec![b'v'; bytes]);
            assert_eq!(connection.unsent_bytes() > 0, bytes == LONG_BYTES);
            for (second, is_late) in [(65, false), (66, true)] {
                state.now = state.shared.started + Duration::from_secs(second);
                assert_eq!(state.is_late(&connection, second), is_late, "{bytes} bytes");
            }
        }
    }

    /// Lets a client take a value of [`PIECES`] pieces. The client needs `seconds` per piece, and
    /// so does the server. Returns how many pieces the client took in time.
    fn pieces_in_time(seconds: u64) -> usize {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("casket.tch").display().to_string();
        let database = Database::open(&name).expect("a database");
        database.put(b"key", &vec![b'v'; PIECES * PIECE_BYTES]).expect("a put");
        let config = Config { timeout: Some(Duration::from_secs(30)), ..Config::default() };
        let mut state = state_of(config, database);
        let (mut connection, mut client) = connected(&state);
        state.now = state.shared.started;
        let mut request = &b"GET /key HTTP/1.1\r\nHost: localhost\r\n\r\n"[..];
        for piece in 0..PIECES {
            let mut output = Vec::new();
            connection.begin_wait(state.now);
            let mut context =
                Context::new(&state.shared, true, &state.counters, &mut connection.session, 0);
            let step = protocol::step(&mut context, request, &mut output);
            assert!(matches!(step, Step::Executed { .. }), "{step:?}");
            request = b"";
            state.now += Duration::from_secs(seconds);
            connection.end_wait(state.now);
            let bytes = output.len();
            state.deliver(&mut connection, &mut output);
            state.now += Duration::from_secs(seconds);
            if state.is_late(&connection, state.now_s()) {
                return piece;
            }
            let mut taken = 0;
            while taken < bytes {
                taken += client.read(&mut [0; BUFFER_BYTES]).expect("a part");
                let sent = connection.flush(&mut Vec::new());
                connection.note_output(sent, state.now_ms());
            }
            assert_eq!(connection.unsent_bytes(), 0);
        }
        PIECES
    }

    #[test]
    fn incomplete_requests_are_charged_their_length() {
        let mut state = state(Config::default());
        let (mut connection, mut client) = connected(&state);
        for piece in [&b"set key 0 0 1000\r\n"[..], b"v", b"v", b"v"] {
            client.write_all(piece).expect("a client's bytes");
            state.ready(WAKER + 1, &mut connection, EventFlags::IN);
            assert!(state.update(WAKER + 1, &mut connection));
        }
        assert_eq!(connection.input.len(), 21);
        let used_bytes = state.shared.served.budget.used_bytes();
        assert!((21..1000).contains(&used_bytes), "{used_bytes}");
    }

    #[test]
    fn all_pieces_of_a_large_reply_share_one_timeout() {
        // A piece takes 16 s at the least rate.
        assert_eq!(pieces_in_time(15), PIECES);
        let late = pieces_in_time(20);
        assert!((2..12).contains(&late), "{late}");
    }

    #[test]
    fn a_buffer_that_grew_beyond_the_limit_is_freed_whether_or_not_its_reply_was_sent() {
        let mut state = state(Config::default());
        for (capacity, is_kept) in [(SCRATCH_BYTES_MAX, true), (SCRATCH_BYTES_MAX + 1, false)] {
            for reply in [&b""[..], b"v"] {
                let (mut connection, _client) = connected(&state);
                let mut output = Vec::with_capacity(capacity);
                output.extend_from_slice(reply);
                state.deliver(&mut connection, &mut output);
                assert!(output.is_empty());
                assert_eq!(output.capacity() == capacity, is_kept, "{capacity}");
            }
        }
    }

    #[test]
    fn no_error_message_is_sent_in_the_middle_of_a_reply() {
        let mut state = state(Config::default());
        for replies in [&[][..], &[1], &[LONG_BYTES], &[LONG_BYTES, 1]] {
            let (mut connection, mut client) = connected(&state);
            for bytes in replies {
                state.deliver(&mut connection, &mut vec![b'v'; *bytes]);
            }
            // Reading makes room in the socket for more.
            let sent = replies.iter().sum::<usize>() - connection.unsent_bytes();
            let mut received = vec![0; sent];
            client.read_exact(&mut received).expect("what was sent");
            out_of_memory(&mut connection);
            assert!(connection.is_done());
            drop(connection);
            client.read_to_end(&mut received).expect("the end");
            let of_replies = received.iter().take_while(|byte| **byte == b'v').count();
            let end = if replies.contains(&LONG_BYTES) { &b""[..] } else { OUT_OF_MEMORY };
            assert_eq!(&received[of_replies..], end, "{replies:?}");
        }
    }
}
