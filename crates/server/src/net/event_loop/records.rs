//! Records: receives what comes over TLS, and begins and ends its sessions.
//!
//! A record is decrypted in a buffer of the loop, and its content is added to the input, which is
//! then served as that of any connection. A handshake takes as many events as it has messages.

use super::LoopState;
use crate::counters::Count;
use crate::net::connection::{Connection, Stage};
use crate::net::transport::Transport;
use crate::protocol;
use rustix::net::{RecvFlags, recv};
use tls::{FIRST_BYTE, INCOMING_BYTES_MAX};

/// Size of the buffer for records, in bytes: what a session keeps, and what is read at once.
const RECORDS_BYTES: usize = INCOMING_BYTES_MAX + (64 << 10);

/// Reason for a client that does not begin with TLS although it has to.
const TLS_REQUIRED: &str = "this port requires TLS";

/// Most bytes of such a client that are kept until they tell its protocol. Verbs are shorter.
const UNDECIDED_BYTES_MAX: usize = 256;

impl LoopState {
    /// Reads once and adds the content of the complete records to `input`. Returns the number of
    /// bytes received.
    pub(super) fn receive_records(
        &mut self,
        connection: &mut Connection,
        input: &mut Vec<u8>,
    ) -> usize {
        let mut records = std::mem::take(&mut self.records);
        if records.len() < RECORDS_BYTES {
            records.resize(RECORDS_BYTES, 0);
        }
        let kept = match &mut connection.transport {
            Transport::Tls(session) => session.resume(&mut records),
            Transport::Expected(plain) => {
                records[..plain.len()].copy_from_slice(plain);
                plain.len()
            }
            Transport::Plain | Transport::Undecided => 0,
        };
        let received = recv(connection.socket(), &mut records[kept..], RecvFlags::empty());
        let bytes = self.note_received(connection, received.map(|(bytes, _)| bytes));
        self.open(connection, &mut records[..kept + bytes], input);
        self.records = records;
        if connection.unsent_bytes() > 0 && !connection.broken {
            let sent = connection.flush(&mut self.records);
            self.counters.add(Count::BytesWritten, sent as u64);
        }
        bytes
    }

    fn open(&mut self, connection: &mut Connection, records: &mut [u8], input: &mut Vec<u8>) {
        if connection.stage != Stage::Open {
            return;
        }
        if !matches!(connection.transport, Transport::Tls(_)) {
            match records.first() {
                None => return,
                Some(&FIRST_BYTE) => self.begin_session(connection),
                Some(_) if matches!(connection.transport, Transport::Expected(_)) => {
                    return self.refuse_plain(connection, records);
                }
                Some(_) => {
                    connection.transport = Transport::Plain;
                    input.extend_from_slice(records);
                    return;
                }
            }
        }
        let Transport::Tls(session) = &mut connection.transport else { return };
        let was_handshaking = session.is_handshaking();
        let opened = session.open(records, input);
        let is_handshaking = session.is_handshaking();
        // The end of the connection without that of the session is an end all the same: requests
        // say where they end.
        connection.ended |= session.has_ended();
        if was_handshaking && !is_handshaking {
            self.complete_handshake(connection);
        }
        if let Err(error) = opened {
            self.fail_session(connection, is_handshaking, &error.to_string());
        } else if is_handshaking && (connection.ended || connection.broken) {
            self.fail_session(connection, true, "the connection ended during the handshake");
            connection.broken = true;
        }
    }

    /// Bounds the time of a handshake.
    pub(super) fn begin_handshake(&mut self, connection: &mut Connection) {
        let Some(certificates) = &self.shared.certificates else { return };
        if connection.handshake_until_s.is_none() {
            let timeout_s = certificates.handshake_timeout().as_secs();
            connection.handshake_until_s = Some(self.now_s().saturating_add(timeout_s));
            self.handshaking += 1;
        }
    }

    fn end_handshake(&mut self, connection: &mut Connection) {
        if connection.handshake_until_s.take().is_some() {
            self.handshaking -= 1;
        }
    }

    fn begin_session(&mut self, connection: &mut Connection) {
        let Some(certificates) = &self.shared.certificates else { return };
        match certificates.session() {
            Ok(session) => {
                connection.transport = Transport::Tls(Box::new(session));
                self.begin_handshake(connection);
            }
            Err(error) => {
                let client = connection.client();
                tracing::error!("cannot begin a TLS session with {client}: {error}");
                connection.broken = true;
            }
        }
    }

    fn complete_handshake(&mut self, connection: &mut Connection) {
        self.end_handshake(connection);
        self.counters.count(Count::TlsHandshake);
        let user = connection.transport.session().and_then(tls::Session::client_user);
        let Some(user) = user else { return };
        tracing::debug!("client certificate of {user}");
        if let Some(users) = &self.shared.users {
            connection.session.peer.get_or_insert_default().certify(users, &user);
        }
    }

    /// Ends a session that has failed, in its handshake or later. Its alert is sent before the
    /// connection is closed.
    fn fail_session(&mut self, connection: &mut Connection, is_handshake: bool, reason: &str) {
        self.end_handshake(connection);
        if is_handshake {
            self.counters.count(Count::TlsFailure);
        }
        self.log_failure(connection, reason);
        // Replies cannot be encrypted any more.
        connection.drop_buffers();
        connection.stage = Stage::Refusing;
    }

    /// Refuses a client without TLS in its protocol, once its bytes so far tell that. It has the
    /// time of a handshake for them.
    fn refuse_plain(&mut self, connection: &mut Connection, received: &[u8]) {
        let is_all = connection.ended || received.len() >= UNDECIDED_BYTES_MAX;
        let Some(mut reply) = protocol::require_tls(TLS_REQUIRED, received, is_all) else {
            connection.transport = Transport::Expected(received.to_vec());
            return;
        };
        self.end_handshake(connection);
        self.counters.count(Count::TlsFailure);
        self.log_failure(connection, "the client did not begin with TLS, which is required");
        connection.transport = Transport::Plain;
        connection.stage = Stage::Refusing;
        self.deliver(connection, &mut reply);
    }

    /// Logs a handshake that has taken too long.
    pub(super) fn expire_handshake(&self, connection: Option<&mut Box<Connection>>) {
        if let Some(connection) = connection.filter(|one| one.handshake_until_s.is_some()) {
            self.counters.count(Count::TlsFailure);
            self.log_failure(connection, "the handshake took too long");
        }
    }

    fn log_failure(&self, connection: &Connection, reason: &str) {
        if let Some(certificates) = &self.shared.certificates {
            certificates.log_failure(connection.address(), reason);
        }
    }
}
